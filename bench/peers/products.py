"""The machine's limit of a training step: the model's matrix products alone; one JSON line a step.

    products.py [--model gpt|bert|resnet18] [--ranks 2] [--steps 15] [--precision fp32|bf16] [--global-batch 8]

Every linear layer's three products (forward, gradient of its input, gradient of its weights) and every convolution with
its two gradients, on operands of the shapes that they have in torch_gpt.py. A product is computed by the faster of
the libraries that LibTorch carries: its own choice (MKL, or oneDNN in bf16), or oneDNN. Attention is left out.
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gloo_group  # noqa: E402
import torch_gpt  # noqa: E402


class Recorder(TorchFunctionMode):
    """The shapes of all linear layers and convolutions that run under it."""

    def __init__(self):
        super().__init__()
        self.linear, self.convolutions = [], []

    def add_linear(self, x, weight):
        self.linear.append((x.numel() // x.shape[-1], *reversed(weight.shape)))

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.linear:
            self.add_linear(args[0], args[1])
        elif function is F.multi_head_attention_forward:  # within it, this mode is off
            self.add_linear(args[0], args[5])   # query, in_proj_weight
            self.add_linear(args[0], args[11])  # out_proj_weight
        elif function in (F.conv2d, torch.conv2d):
            self.convolutions.append((args[0].shape, args[1].shape, args[3], args[4]))
        return function(*args, **(kwargs or {}))


def onednn(left, right):
    """left [m, k] times right^T [n, k]."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


def linear_products(rows, inputs, outputs, kind):
    """Three lists of ways to compute one product: functions without arguments. oneDNN has no bf16 on old processors."""
    ways = 1 if kind == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else 2
    x, weight, y = (torch.randn(shape).to(kind) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs)))
    return [both[:ways] for both in (
        (lambda: x @ weight.t(), lambda: onednn(x, weight)), (lambda: y @ weight, lambda: onednn(y, weight.t())),
        (lambda: y.t() @ x, lambda: onednn(y.t(), x.t())))]


def convolution(image, kernel, stride, padding, kind):
    x, weight = torch.randn(image).to(kind), torch.randn(kernel).to(kind)
    out = F.conv2d(x, weight, None, stride, padding)

    def both():
        F.conv2d(x, weight, None, stride, padding)
        torch.ops.aten.convolution_backward(out, x, weight, None, stride, padding, (1, 1), False, (0, 0), 1,
                                            (True, True, False))
    return [both]


def seconds(product):
    product()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    return min(times)


def train(rank, options):
    """Not training: each step computes all products once."""
    torch.manual_seed(1)
    kind = torch.bfloat16 if options.precision == "bf16" else torch.float32
    model, _, source, _ = torch_gpt.subject(options, rank)
    with torch.no_grad():
        with Recorder() as recorder:
            model(*next(source))
        faster = {shape: [min(ways, key=seconds) for ways in linear_products(*shape, kind)]
                  for shape in dict.fromkeys(recorder.linear)}
        products = [product for shape in recorder.linear for product in faster[shape]]
        products += [product for shapes in recorder.convolutions for product in convolution(*shapes, kind)]
        for step in range(options.steps):
            dist.barrier()
            start = time.perf_counter()
            for product in products:
                product()
            took = time.perf_counter() - start
            if rank == 0:
                print(json.dumps({"event": "step", "step": step, "loss": 0.0, "step_seconds": took}), flush=True)


if __name__ == "__main__":
    arguments = torch_gpt.parse()
    gloo_group.run(train, arguments.ranks, arguments)
