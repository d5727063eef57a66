"""torch.distributed's collectives over Gloo, measured as trireme/comm/choice/measure.cc does. Run by
bench/run_comm.py:  gloo.py COLLECTIVE RANKS SECONDS BYTES...   (bytes of the whole)"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

import gloo_group

BATCHES = 7


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


def run(rank, what, ranks, budget, sizes):
    everything = [torch.zeros(max(sizes) // 4) for _ in range(2)]
    for size in sizes:
        step = step_of(what, [one[: size // 4] for one in everything], ranks)
        if step is None or size < 4 * ranks:
            continue
        batch(step, 2)
        calls = min(max(int(budget / BATCHES / max(batch(step, 3), 1e-7)), 1), 10000)
        seconds = statistics.median(batch(step, calls) for _ in range(BATCHES))
        if rank == 0:
            print(json.dumps({"bytes": size, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    num_ranks = int(sys.argv[2])
    gloo_group.run(run, num_ranks, sys.argv[1], num_ranks, float(sys.argv[3]), [int(one) for one in sys.argv[4:]])
