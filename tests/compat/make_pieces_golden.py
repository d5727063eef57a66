"""Writes golden/pieces.json: what the programs of examples/pieces print, by PyTorch.

    python3 tests/compat/make_pieces_golden.py [--compare]      # needs torch

Each function is the Python of the program of that name; {program: {name: [values]}}. --compare: the file
must say what this PyTorch says, within 1e-6.
"""

import collections
import json
import math
import pathlib
import sys

import torch
import torch.utils.checkpoint

from check_piece import difference

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden" / "pieces.json"


def wave(function, count, dtype=torch.double):
    return function(torch.arange(count, dtype=dtype))


def autocast(said):
    def eighths(rows, columns):
        count = torch.arange(rows * columns)
        return (((count * 37) % 23 - 11).float() / 8).view(rows, columns)

    x, w = eighths(3, 16), eighths(2, 16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x, w)
    y.float().square().sum().backward()
    said["bits"].append(y.element_size() * 8)
    said["y"] += y.float().flatten().tolist()
    said["gradient"] += w.grad.flatten().tolist()


def clip_grad_norm(said):
    a, b = wave(torch.sin, 12).requires_grad_(), wave(torch.cos, 5).requires_grad_()
    sgd = torch.optim.SGD([a, b], lr=0.1)
    for _ in range(4):
        sgd.zero_grad()
        ((3 * a).exp().sum() + b.pow(4).sum()).backward()
        said["norm"].append(torch.nn.utils.clip_grad_norm_([a, b], 1.0).item())
        sgd.step()
        said["a"].append(a.sum().item())
        said["b"].append(b.sum().item())


def ema(said):
    net = torch.nn.Linear(4, 1).double()
    with torch.no_grad():
        for one in net.parameters():
            one.copy_(wave(torch.sin, one.numel()).view(one.shape))
    x = wave(torch.cos, 32).view(8, 4)
    sgd = torch.optim.SGD(net.parameters(), lr=0.2)
    averaged = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(net)  # the first one copies: ours starts with the weights as they are
    for _ in range(10):
        sgd.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
        sgd.step()
        averaged.update_parameters(net)
        said["trained"].append(net(x).sum().item())
        said["averaged"].append(averaged(x).sum().item())


def grad_scaler(said):
    w = torch.arange(1, 5, dtype=torch.float).requires_grad_()
    sgd = torch.optim.SGD([w], lr=0.125)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=2)
    for step in range(8):
        sgd.zero_grad()
        scaler.scale(w.square().sum()).backward()
        if step == 3:
            w.grad[0] = math.inf
        scaler.step(sgd)
        scaler.update()
        said["scale"].append(scaler.get_scale())
        said["w"].append(w.sum().item())


def learning_rate(said):
    schedulers = torch.optim.lr_scheduler

    def train(name, optimizer, schedule, w):
        for _ in range(12):
            optimizer.zero_grad()
            (w - 1).square().sum().backward()
            optimizer.step()
            said[name + "_rate"].append(optimizer.param_groups[0]["lr"])
            said[name + "_w"].append(w.sum().item())
            schedule.step() if len(said[name + "_w"]) < 12 else None

    a = torch.arange(6, dtype=torch.double).requires_grad_()
    adam = torch.optim.Adam([a], lr=0.3)
    warmup = schedulers.LinearLR(adam, start_factor=1 / 4, end_factor=1, total_iters=3)
    cosine = schedulers.CosineAnnealingLR(adam, T_max=9, eta_min=0.03)
    train("cosine", adam, schedulers.SequentialLR(adam, [warmup, cosine], milestones=[3]), a)

    b = torch.arange(6, dtype=torch.double).requires_grad_()
    sgd = torch.optim.SGD([b], lr=0.2)
    train("one_cycle", sgd,
          schedulers.OneCycleLR(sgd, max_lr=0.2, total_steps=12, pct_start=0.5, div_factor=10,
                                final_div_factor=1e4, cycle_momentum=False), b)


def sines(layers, width):
    """Linear layers with known weights."""
    made = [torch.nn.Linear(width, width).double() for _ in range(layers)]
    with torch.no_grad():
        for i, layer in enumerate(made):
            for one in layer.parameters():
                one.copy_(torch.sin(torch.arange(one.numel(), dtype=torch.double) + i).view(one.shape))
    return made


def offload(said):
    layers = sines(4, 64)
    x = wave(torch.cos, 65536).view(1024, 64)
    in_file = {}  # bytes of what is saved and no parameter, each once

    def pack(tensor):
        if not tensor.is_leaf and tensor._base is None or tensor is x:
            in_file[tensor.data_ptr()] = tensor.nbytes
        return tensor

    for step in range(2):
        h = x
        in_file.clear()
        for layer in layers:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                h = torch.tanh(layer(h))
        h.square().sum().backward()
        said["output"].append(h.sum().item())
    said["bytes"].append(sum(in_file.values()))
    said["gradient"] += [layer.weight.grad.abs().sum().item() for layer in layers]


def recompute(said):
    layers = sines(4, 8)
    runs = 0
    torch.manual_seed(5)
    h = wave(torch.cos, 48).view(6, 8)
    for layer in layers:
        def block(x, layer=layer):
            nonlocal runs
            runs += 1
            return torch.tanh(torch.nn.functional.dropout(layer(x), 0.25))
        h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)
    h.square().sum().backward()
    said["output"].append(h.sum().item())
    said["runs"].append(runs)
    said["gradient"] += [layer.weight.grad.abs().sum().item() for layer in layers]


def tensorboard(said):
    for step in range(1, 21):
        said["loss/train"].append(math.exp(-0.1 * step))
        if step % 5 == 0:
            said["loss/validation"].append(1.1 * math.exp(-0.1 * step))


def weights(said):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4),
                              torch.nn.Linear(4, 2)).double()
    with torch.no_grad():
        for one in net.parameters():
            one.copy_(wave(torch.sin, one.numel()).view(one.shape))
    x = wave(torch.cos, 15).view(5, 3)
    net(x)
    said["y"] += net.eval()(x).flatten().tolist()


def main():
    golden = {}
    for piece in (autocast, clip_grad_norm, ema, grad_scaler, learning_rate, offload, recompute, tensorboard,
                  weights):
        said = collections.defaultdict(list)
        piece(said)
        golden[piece.__name__] = said
    if "--compare" not in sys.argv[1:]:
        GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
        return
    written = json.loads(GOLDEN.read_text())
    for name in sorted(golden.keys() | written.keys()):
        fault = difference(written.get(name, {}), golden.get(name, {}))
        if fault:
            sys.exit(f"{name}: {fault} (is what PyTorch {torch.__version__} says)")
    print(f"PyTorch {torch.__version__} says what {GOLDEN.name} says")


if __name__ == "__main__":
    main()
