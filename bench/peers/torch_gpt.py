"""PyTorch over Gloo on the GPT of bench/gpt.toml; one JSON line a step.

    torch_gpt.py --data FILE [--parallel ddp|compiled|zero1|fsdp2] [--ranks 2] [--steps 15]
                 [--precision fp32|bf16] [--global-batch 8]

ddp: DistributedDataParallel; compiled: under torch.compile (its first step takes minutes); zero1: DDP with
ZeroRedundancyOptimizer; fsdp2: fully_shard on every layer and on the whole, weights freed after forward
(ZeRO-3), in bf16 with its MixedPrecisionPolicy (bf16 weights, fp32 gradient sums).

Each rank is a process with one thread on a core of its own. Model, initial values, optimizer, its
numbers and the clipping are those of `trireme train bench/gpt.toml`; bf16 is autocast where not said.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from gpt_model import Gpt, make_optimizer  # noqa: E402

def batches(path, sequences, block, rank, seed=1):
    """Windows of block + 1 bytes at random places of the file: tokens and targets [sequences, block]."""
    with open(path, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    while True:
        starts = torch.randint(len(data) - block - 1, (sequences,), generator=generator)
        windows = torch.stack([data[start:start + block + 1] for start in starts]).long()
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def sharded(model, options):
    """As the manual of FSDP2 has it: each layer a unit of its own, the rest in the root's."""
    policy = MixedPrecisionPolicy()
    if options.precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (options.ranks,))
    for layer in model.layer:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def parallelised(model, options):
    if options.parallel == "fsdp2":
        return sharded(model, options), make_optimizer(model)
    parallel = DistributedDataParallel(model)
    if options.parallel == "compiled":
        parallel = torch.compile(parallel)
    optimizer = make_optimizer(model)
    if options.parallel == "zero1":
        defaults = {key: optimizer.defaults[key] for key in ("lr", "betas", "weight_decay")}
        optimizer = ZeroRedundancyOptimizer(optimizer.param_groups, torch.optim.AdamW, **defaults)
    return parallel, optimizer


def train(rank, options, store):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.ranks)
    torch.manual_seed(1)
    model = Gpt(layers=options.layers, heads=options.heads, width=options.width, block=options.block)
    parallel, optimizer = parallelised(model, options)
    source = batches(options.data, options.global_batch // options.ranks, options.block, rank)
    for step in range(options.steps):
        start = time.perf_counter()
        tokens, targets = next(source)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bf16" and options.parallel != "fsdp2"):
            loss = parallel(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(json.dumps({"event": "step", "step": step, "loss": mean.item() / options.ranks,
                              "step_seconds": time.perf_counter() - start}), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--global-batch", type=int, default=8)
    for name, value in (("layers", 6), ("heads", 6), ("width", 384), ("block", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--parallel", choices=["ddp", "compiled", "zero1", "fsdp2"], default="ddp")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, args=(options, os.path.join(folder, "store")), nprocs=options.ranks)


if __name__ == "__main__":
    main()
