"""Writes golden/optimizers.safetensors: 50 steps of every optimizer and schedule in fp64, by PyTorch.

    python3 tests/compat/make_optimizer_golden.py [FILE]      # needs torch and safetensors

SGD, AdamW, Adafactor and Adagrad are torch.optim's own; LAMB and Lion are written here from their papers
(arXiv:1904.00962 algorithm 2, arXiv:2302.06675 algorithm 2), FTRL as TensorFlow's Ftrl computes it (McMahan et al. 2013,
algorithm 1). Gradients are a formula of step and element, so that both
sides have them without a file. Inside: `OPTIMIZER/NAME`, every fifth element after 50 steps, and `schedule/NAME`:
the rate of each of 60 steps.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

STEPS, RATES = 50, 60
# A matrix whose rows end inside 4,096-element chunks, one with rows longer than a chunk, a vector,
# a convolution's weight.
SHAPES = {"matrix": (10, 450), "wide": (2, 4200), "vector": (50,), "kernel": (6, 5, 3, 3)}
EVERY = 5  # of the elements after training, row by row, this one is kept


def gradient_of(step, index, shape):
    """Gradient `index` of step `step`: (a mod 2003 - 1001) / 1000, exact integers below 2^53."""
    count = torch.Size(shape).numel()
    i = torch.arange(count, dtype=torch.int64)
    a = (i * 7919 + step * 104729 + index * 1299709 + i * i * 31) % 2003
    return ((a - 1001).double() / 1000).reshape(shape)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                state["t"] += 1
                state["m"] = beta1 * state["m"] + (1 - beta1) * p.grad
                state["v"] = beta2 * state["v"] + (1 - beta2) * p.grad**2
                m = state["m"] / (1 - beta1 ** state["t"])
                v = state["v"] / (1 - beta2 ** state["t"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                size, length = p.norm(), update.norm()
                ratio = size / length if size > 0 and length > 0 else 1.0
                p -= group["lr"] * ratio * update


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                update = (beta1 * state["m"] + (1 - beta1) * p.grad).sign()
                p -= group["lr"] * (update + group["weight_decay"] * p)
                state["m"] = beta2 * state["m"] + (1 - beta2) * p.grad


class Ftrl(torch.optim.Optimizer):
    """tf.keras.optimizers.Ftrl with learning_rate_power = -0.5; `linear` starts so that initial weights are kept."""

    def __init__(self, params, lr, l1, l2, initial=0.1):
        super().__init__(params, {"lr": lr, "l1": l1, "l2": l2, "initial": initial})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, l1, l2 = group["lr"], group["l1"], group["l2"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(accum=torch.full_like(p, group["initial"]), linear=-(group["initial"] ** 0.5) / lr * p)
                accum = state["accum"] + p.grad**2
                state["linear"] += p.grad - (accum.sqrt() - state["accum"].sqrt()) / lr * p
                quadratic = accum.sqrt() / lr + 2 * l2
                linear = state["linear"]
                p.copy_(torch.where(linear.abs() > l1, (l1 * linear.sign() - linear) / quadratic, 0.0))
                state["accum"] = accum


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.25, weight_decay=0.1),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1),
    "lamb": lambda p: Lamb(p, lr=0.01, weight_decay=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.02, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.1),
    "ftrl": lambda p: Ftrl(p, lr=0.05, l1=0.2, l2=0.05),
    "lion": lambda p: Lion(p, lr=0.003, weight_decay=0.1),
}


def train(make, initial):
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in initial.items()}
    optimizer = make(list(parameters.values()))
    for step in range(STEPS):
        for index, (name, parameter) in enumerate(parameters.items()):
            parameter.grad = gradient_of(step, index, SHAPES[name])
        optimizer.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def rates(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule = make(optimizer)
    out = []
    for _ in range(RATES):
        out.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return torch.tensor(out, dtype=torch.float64)


def schedules():
    lr = torch.optim.lr_scheduler
    warmup = lambda o, steps: lr.LambdaLR(o, lambda t: (t + 1) / (steps + 1) if t < steps else 1.0)
    after = lambda o, steps, make: lr.SequentialLR(o, [warmup(o, steps), make(o)], [steps])
    return {
        "constant": lambda o: warmup(o, 5),
        "linear": lambda o: after(o, 5, lambda o: lr.LinearLR(o, 1.0, 0.1, total_iters=45)),
        "cosine": lambda o: lr.CosineAnnealingLR(o, T_max=60, eta_min=0.05),
        "polynomial": lambda o: lr.PolynomialLR(o, total_iters=50, power=2.0),
        "one_cycle": lambda o: lr.OneCycleLR(o, max_lr=0.5, total_steps=RATES + 1, final_div_factor=1e3),
        "step": lambda o: after(o, 5, lambda o: lr.StepLR(o, step_size=10, gamma=0.5)),
        "wsd": lambda o: lr.SequentialLR(
            o, [lr.ConstantLR(o, 1.0), lr.LinearLR(o, 1.0, 0.1, total_iters=20)], [30]),
    }


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(__file__).resolve().parent
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "golden" / "optimizers.safetensors"
    initial = {name: gradient_of(1000, index, shape) * 0.1
               for index, (name, shape) in enumerate(SHAPES.items())}
    out = {}
    for optimizer, make in OPTIMIZERS.items():
        out |= {f"{optimizer}/{name}": value.flatten()[::EVERY] for name, value in train(make, initial).items()}
    out |= {f"schedule/{name}": rates(make) for name, make in schedules().items()}
    save_file({name: value.contiguous() for name, value in out.items()}, path)
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
