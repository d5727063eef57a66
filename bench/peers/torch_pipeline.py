"""torch.distributed.pipelining over Gloo on the GPT of bench/gpt.toml; one JSON line a step.

    torch_pipeline.py --data FILE [--schedule gpipe|1f1b] [--ranks 2] [--steps 15] [--global-batch 8] [--micro 2]

Each rank is a process with one thread on a core of its own and holds as many layers as the others. Model, initial
values, optimizer and its numbers are those of `trireme train bench/gpt.toml`, but for what this package leaves
to its user: the head's weights are not tied to the embedding's, and gradients are not clipped. Both save it work.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gloo_group  # noqa: E402
import gpt_model  # noqa: E402
from torch_gpt import batches, parser_of  # noqa: E402

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def stage_of(options, rank):
    model = gpt_model.Gpt(layers=options.layers, heads=options.heads, width=options.width, block=options.block)
    first, end = rank * options.layers // options.ranks, (rank + 1) * options.layers // options.ranks
    parts = list(model.layer)[first:end]
    if rank == 0:
        parts.insert(0, model.embed)
    if rank == options.ranks - 1:
        model.head.weight = nn.Parameter(model.head.weight.detach().clone())
        parts.append(model.head)
    return nn.Sequential(*parts)


def mean_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


def train(rank, options):
    torch.manual_seed(1)
    module = stage_of(options, rank)
    stage = PipelineStage(module, rank, options.ranks, torch.device("cpu"))
    schedule = SCHEDULES[options.schedule](stage, options.global_batch // options.micro, loss_fn=mean_loss)
    optimizer = gpt_model.make_optimizer(module)
    source = batches(options.data, options.global_batch, options.block, 0)
    last = rank == options.ranks - 1
    for step in range(options.steps):
        dist.barrier()
        start = time.perf_counter()
        tokens, targets = next(source)
        losses = []
        if rank == 0:
            schedule.step(tokens)
        elif last:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        if last:
            print(json.dumps({"event": "step", "step": step, "loss": torch.stack(losses).mean().item(),
                              "step_seconds": time.perf_counter() - start}), flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--micro", type=int, default=2)
    options = parser.parse_args()
    gloo_group.run(train, options.ranks, options)


if __name__ == "__main__":
    main()
