"""What the PyTorch peers share: a process per rank, on a core of its own, in one Gloo group."""
import gc
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def member(rank, body, arguments, ranks, store):
    """Runs body(rank, *arguments) with one thread as a member of a Gloo group of `ranks`."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    body(rank, *arguments)
    # A DDP model, an optimizer or a pipeline stage that still lives holds the group. Its destructor would then
    # run at the interpreter's end and join Gloo's threads while it holds the GIL that they wait for: a hang.
    gc.collect()
    dist.destroy_process_group()


def run(body, ranks, *arguments):
    """Starts `ranks` processes that run body(rank, *arguments); raises if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(member, args=(body, arguments, ranks, os.path.join(folder, "store")), nprocs=ranks)
