"""PyTorch over Gloo on the model of bench/gpt.toml, bert.toml or resnet18.toml; one JSON line a step.

    torch_gpt.py --data FILE [--model gpt|bert|resnet18] [--parallel ddp|compiled|zero1|fsdp2|none] [--ranks 2]
                 [--steps 15] [--precision fp32|bf16] [--global-batch 8] [--device cpu|cuda]

ddp: DistributedDataParallel; compiled: under torch.compile (its first step takes minutes); zero1: DDP with
ZeroRedundancyOptimizer; fsdp2: fully_shard on every layer and on the whole, weights freed after forward
(ZeRO-3), in bf16 with its MixedPrecisionPolicy (bf16 weights, fp32 gradient sums); none: one process, under
torch.compile, on any --device; a last line has the most bytes that tensors took there.

Each rank is a process with one thread on a core of its own. Model, initial values, optimizer, its
numbers and the clipping are those of `trireme train bench/MODEL.toml`; bf16 is autocast where not said.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bert_model  # noqa: E402
import gloo_group  # noqa: E402
import gpt_model  # noqa: E402
import resnet_model  # noqa: E402

MASK = 256  # the token that bert reads where a byte is hidden
PROFILED = range(5, 8)  # steps
RECORD = 1 + 3 * 32 * 32  # of CIFAR-10's binary version


def batches(path, sequences, block, rank, seed=1):
    """Windows of block + 1 bytes at random places of the file: tokens and targets [sequences, block]."""
    with open(path, "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    while True:
        starts = torch.randint(len(data) - block - 1, (sequences,), generator=generator)
        windows = torch.stack([data[start:start + block + 1] for start in starts]).long()
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def masked(path, sequences, block, rank):
    """Windows of which 15 % of the bytes are hidden: tokens, and targets that are -1 elsewhere."""
    generator = torch.Generator().manual_seed(77 + rank)
    asked = max(1, (15 * block + 50) // 100)
    for tokens, _ in batches(path, sequences, block, rank):
        where = torch.rand(tokens.shape, generator=generator).argsort(1)[:, :asked]
        targets = torch.full_like(tokens, -1).scatter(1, where, tokens.gather(1, where))
        yield tokens.scatter(1, where, MASK), targets


def images(path, count, rank):
    """Records at random, normalised: images [count, 3, 32, 32] and labels."""
    with open(os.path.join(path, "data_batch_1.bin"), "rb") as file:
        records = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).view(-1, RECORD)
    generator = torch.Generator().manual_seed(1000 + rank)
    while True:
        chosen = records[torch.randint(len(records), (count,), generator=generator)]
        pixels = chosen[:, 1:].view(-1, 3, 32, 32).float() / 255
        yield (pixels - 0.47) / 0.25, chosen[:, 0].long()


def subject(options, rank):
    """The model, its optimizer, the batches of this rank, and what its gradient is clipped to (None: not)."""
    share = options.global_batch // options.ranks
    if options.model == "resnet18":
        model = resnet_model.Resnet18(options.width)
        return model, resnet_model.make_optimizer, images(options.data, share, rank), None
    shape = {"layers": options.layers, "heads": options.heads, "width": options.width, "block": options.block}
    if options.model == "bert":
        model, source = bert_model.Bert(**shape), masked(options.data, share, options.block, rank)
    else:
        model, source = gpt_model.Gpt(vocab=options.vocab, **shape), batches(options.data, share, options.block, rank)
    return model, gpt_model.make_optimizer, source, 1.0


def units(model):
    """Modules that FSDP2 shards one by one: layers, or residual blocks."""
    if hasattr(model, "layer"):
        return list(model.layer)
    return [block for name, stage in model.named_children() if name.startswith("layer") for block in stage]


def sharded(model, options):
    """As the manual of FSDP2 has it: each layer a unit of its own, the rest in the root's."""
    policy = MixedPrecisionPolicy()
    if options.precision == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (options.ranks,))
    for unit in units(model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def parallelised(model, make_optimizer, options):
    if options.parallel == "none":
        return torch.compile(model), make_optimizer(model)
    if options.parallel == "fsdp2":
        return sharded(model, options), make_optimizer(model)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    if options.parallel == "compiled":
        parallel = torch.compile(parallel)
    optimizer = make_optimizer(model)
    if options.parallel == "zero1":
        numbers = ("lr", "betas", "momentum", "weight_decay", "fused")
        defaults = {key: optimizer.defaults[key] for key in numbers if key in optimizer.defaults}
        optimizer = ZeroRedundancyOptimizer(optimizer.param_groups, type(optimizer), **defaults)
    return parallel, optimizer


def train(rank, options):
    torch.manual_seed(1)
    model, make_optimizer, source, clip = subject(options, rank)
    model.to(options.device)
    parallel, optimizer = parallelised(model, make_optimizer, options)
    autocast = options.precision == "bf16" and options.parallel != "fsdp2"
    profile = torch.profiler.profile()
    for step in range(options.steps):
        if options.profile and step == PROFILED[0]:
            profile.start()
        start = time.perf_counter()
        tokens, targets = (one.to(options.device) for one in next(source))
        with torch.autocast(options.device, torch.bfloat16, enabled=autocast):
            loss = parallel(tokens, targets)
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if options.parallel != "none":
            dist.all_reduce(mean)
        if rank == 0:
            print(json.dumps({"event": "step", "step": step, "loss": mean.item() / options.ranks,
                              "step_seconds": time.perf_counter() - start}), flush=True)
        if options.profile and step == PROFILED[-1]:
            profile.stop()
            profile.export_chrome_trace(options.profile)


def parser_of(about):
    """The options of all peers that train: the docstring is `about`."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--data", required=True)
    for name, value in (("ranks", 2), ("steps", 15), ("global-batch", 8), ("layers", 6), ("heads", 6), ("width", 384),
                        ("block", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


def parse():
    parser = parser_of(__doc__)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--model", choices=["gpt", "bert", "resnet18"], default="gpt")
    parser.add_argument("--parallel", choices=["ddp", "compiled", "zero1", "fsdp2", "none"], default="ddp")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: with --parallel none")
    parser.add_argument("--profile", help="with --parallel none: write the profile of three steps to this file")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    options = parser.parse_args()
    if options.parallel != "none" and options.global_batch % options.ranks != 0:
        parser.error(f"{options.ranks} ranks cannot have equal parts of --global-batch {options.global_batch}")
    return options


def main():
    options = parse()
    if options.parallel == "none":
        options.ranks = 1
        train(0, options)
        if options.device == "cuda":
            print(json.dumps({"event": "memory", "bytes": torch.cuda.max_memory_allocated()}))
        return
    gloo_group.run(train, options.ranks, options)


if __name__ == "__main__":
    main()
