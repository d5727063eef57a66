"""torch.distributed.tensor.parallel over Gloo on the GPT of bench/gpt.toml; one JSON line a step.

    torch_tensor.py --data FILE [--ranks 2] [--steps 15] [--global-batch 8]

Each rank is a process with one thread on a core of its own. Query, key and value are three column-parallel layers, as
this package can cut them by heads; embedding and head stay whole, which saves communication. Model, optimizer and its
numbers are those of `trireme train bench/gpt.toml`, but gradients are not clipped.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gloo_group  # noqa: E402
import gpt_model  # noqa: E402
from torch_gpt import batches, parser_of  # noqa: E402


class Attention(nn.Module):
    """gpt_model.Attention of `heads` heads on this rank, with three layers in the place of one."""

    def __init__(self, width, heads, ranks):
        super().__init__()
        self.heads, self.own = heads, heads // ranks
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.own, width // self.heads)
        q, k, v = (layer(x).view(split).transpose(1, 2) for layer in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


def cut_model(options):
    mesh = init_device_mesh("cpu", (options.ranks,))
    model = gpt_model.Gpt(layers=options.layers, heads=options.heads, width=options.width, block=options.block)
    columns = ("attention.query", "attention.key", "attention.value", "mlp.up")
    for layer in model.layer:
        layer.attention = Attention(options.width, options.heads, options.ranks)
        plan = {name: ColwiseParallel() for name in columns}
        parallelize_module(layer, mesh, plan | {name: RowwiseParallel() for name in ("attention.out", "mlp.down")})
    return model


def make_optimizer(model):
    """As gpt_model's; DTensors and plain tensors in groups of their own, which AdamW's loops ask for."""
    groups = []
    for cut in (True, False):
        for matrix in (True, False):
            own = [p for p in model.parameters() if isinstance(p, DTensor) == cut and (p.dim() >= 2) == matrix]
            if own:
                groups.append({"params": own, "weight_decay": 0.1 if matrix else 0.0})
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)


def train(rank, options):
    torch.manual_seed(1)
    model = cut_model(options)
    optimizer = make_optimizer(model)
    source = batches(options.data, options.global_batch, options.block, 0)
    for step in range(options.steps):
        dist.barrier()
        start = time.perf_counter()
        tokens, targets = next(source)
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        if rank == 0:
            print(json.dumps({"event": "step", "step": step, "loss": loss.item(),
                              "step_seconds": time.perf_counter() - start}), flush=True)


def main():
    options = parser_of(__doc__).parse_args()
    gloo_group.run(train, options.ranks, options)


if __name__ == "__main__":
    main()
