"""Writes golden/gpt_fp16.safetensors: a tiny GPT that PyTorch trains under autocast(float16) with a
GradScaler on the CPU, which half_golden_test.cc repeats.

    python3 tests/compat/make_half_golden.py [folder]      # from the root; needs torch and safetensors

Inside: `initial/NAME` (fp16-exact), `losses` and `scales` of 50 AdamW steps that begin with a scale of
65536, `losses_fp32` of the same steps in fp32, the `norm` of the first step's gradient, unscaled, and
`found`: the scale at which a GradScaler that begins with 2^32 takes its first step. The tokens are those
of make_gpt_golden.py.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "compat"))
from make_gpt_golden import BLOCK, STEPS, VOCAB, Gpt, make_optimizer, tokens_of  # noqa: E402


def make_model():
    torch.manual_seed(11)
    model = Gpt(layers=2, heads=2, width=16, block=BLOCK, vocab=VOCAB, bias=True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            else:
                parameter.mul_(5)
            parameter.copy_(parameter.half())
    return model


def norm_of(model):
    return torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))


def train(half, initial_scale=65536.0, steps=STEPS):
    """Losses, the scale after each step, the first gradient's norm, the number of steps taken."""
    model = make_model()
    optimizer = make_optimizer(model, learning_rate=3e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial_scale, enabled=half)
    losses, scales, norm = [], [], None
    for step in range(steps):
        tokens = tokens_of(step)
        with torch.autocast("cpu", torch.float16, enabled=half):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = norm_of(model) if norm is None else norm
        losses.append(loss.item())
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        optimizer.zero_grad()
    return losses, scales, norm


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "compat" / "golden"
    torch.set_num_threads(1)
    out = {f"initial/{name}": p.detach().clone() for name, p in make_model().named_parameters()}
    losses, scales, norm = train(half=True)
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    out["scales"] = torch.tensor(scales, dtype=torch.float64)
    out["norm"] = norm.double().reshape(1)
    out["losses_fp32"] = torch.tensor(train(half=False)[0], dtype=torch.float64)
    found = train(half=True, initial_scale=2.0**32, steps=32)[1][-1]
    out["found"] = torch.tensor([found], dtype=torch.float64)
    folder.mkdir(exist_ok=True)
    save_file(out, folder / "gpt_fp16.safetensors")
    print(f"losses {losses[0]:.4f} ... {losses[-1]:.4f}, fp32 {out['losses_fp32'][-1]:.4f}, "
          f"scale {scales[-1]:.0f}, found {found:.0f}, norm {norm:.4f}")


if __name__ == "__main__":
    main()
