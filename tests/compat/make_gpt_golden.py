"""Writes golden/gpt.safetensors: a tiny GPT trained by PyTorch, which gpt_golden_test.cc repeats.

    python3 tests/compat/make_gpt_golden.py      # from the root; needs torch and safetensors

Inside: `initial/NAME` (fp32-exact), `gradient/NAME` of the first step (computed in fp64), `final/NAME`
after 50 AdamW steps in fp64, and `losses` (mean loss of each step, fp64). Tokens are a formula, so
that both sides have them without a file.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
from gpt_model import Gpt, make_optimizer  # noqa: E402

STEPS, SEQUENCES, BLOCK, VOCAB = 50, 3, 10, 24


def tokens_of(step):
    """[SEQUENCES, BLOCK + 1]: a sequence with a pattern to learn, another one each step."""
    rows = [[(7 * (step + s) + (s + 2) * t + t * t // 3) % VOCAB for t in range(BLOCK + 1)]
            for s in range(SEQUENCES)]
    return torch.tensor(rows)


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model = Gpt(layers=2, heads=2, width=16, block=BLOCK, vocab=VOCAB, bias=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # not only zeros and ones: their gradients' paths count too
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            else:
                parameter.mul_(5)
    model = model.double()
    names = dict(model.named_parameters())
    out = {f"initial/{name}": p.detach().float().clone() for name, p in names.items()}
    optimizer = make_optimizer(model, learning_rate=3e-3)
    losses = []
    for step in range(STEPS):
        tokens = tokens_of(step)
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out |= {f"gradient/{name}": p.grad.float() for name, p in names.items()}
        optimizer.step()
        optimizer.zero_grad()
    out |= {f"final/{name}": p.detach().clone() for name, p in names.items()}
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    path = ROOT / "tests" / "compat" / "golden" / "gpt.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file(out, path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, losses {losses[0]:.4f} ... {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
