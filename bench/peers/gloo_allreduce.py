"""torch.distributed's all_reduce over Gloo, over the sizes of bench/comm/all_reduce_bench.cc and
measured alike. Run by bench/run_comm.py:  gloo_allreduce.py RANKS MAX_BYTES SECONDS"""
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


SIZES = [8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 18, 1 << 20, 4 << 20, 16 << 20, 64 << 20,
         128 << 20]


def batch(data, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    return (time.perf_counter() - start) / calls


def run(rank, ranks, max_bytes, budget, store):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    everything = torch.zeros(max_bytes // 4)
    for size in (one for one in SIZES if one <= max_bytes):
        data = everything[: size // 4]
        batch(data, 2)
        once = torch.tensor([batch(data, 3)])
        dist.all_reduce(once, op=dist.ReduceOp.MAX)
        calls = min(max(int(budget / 5 / max(once.item(), 1e-7)), 1), 20000)
        seconds = statistics.median(batch(data, calls) for _ in range(5))
        if rank == 0:
            print(json.dumps({"bytes": size, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, max_bytes, budget = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, (ranks, max_bytes, budget, os.path.join(folder, "store")), nprocs=ranks)
