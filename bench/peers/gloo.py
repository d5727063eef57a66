"""torch.distributed's collectives over Gloo, measured as bench/comm/comm_bench.cc does. Run by
bench/run_comm.py:  gloo.py COLLECTIVE RANKS SECONDS BYTES...   (bytes of the whole)"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def step_of(what, data, ranks):
    whole, other = data
    part = whole[: whole.numel() // ranks]
    if what == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if what == "reduce":
        return lambda: dist.reduce(whole, 0)
    if what == "broadcast":
        return lambda: dist.broadcast(whole, 0)
    if what == "all_gather":
        parts = list(other.chunk(ranks))
        return lambda: dist.all_gather(parts, part)
    if what == "gather":
        parts = list(other.chunk(ranks)) if dist.get_rank() == 0 else None
        return lambda: dist.gather(part, parts, 0)
    if what == "scatter":
        parts = list(other.chunk(ranks)) if dist.get_rank() == 0 else None
        return lambda: dist.scatter(part, parts, 0)
    return None  # Gloo has no reduce_scatter; its all_to_all works on pairs of sends


def batch(step, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        step()
    slowest = torch.tensor([(time.perf_counter() - start) / calls])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return slowest.item()


def run(rank, what, ranks, budget, sizes, store):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    everything = [torch.zeros(max(sizes) // 4) for _ in range(2)]
    for size in sizes:
        step = step_of(what, [one[: size // 4] for one in everything], ranks)
        if step is None or size < 4 * ranks:
            continue
        batch(step, 2)
        calls = min(max(int(budget / 5 / max(batch(step, 3), 1e-7)), 1), 20000)
        seconds = statistics.median(batch(step, calls) for _ in range(5))
        if rank == 0:
            print(json.dumps({"bytes": size, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    what, ranks, budget = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (what, ranks, budget, [int(one) for one in sys.argv[4:]],
                       os.path.join(folder, "store")), nprocs=ranks)
