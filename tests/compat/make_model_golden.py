"""Writes golden/resnet.safetensors and golden/bert.safetensors: tiny models trained by PyTorch, which
model_golden_test.cc repeats.

    python3 tests/compat/make_model_golden.py [FOLDER]     # from the root; needs torch and safetensors

Inside each: `gradient/NAME` of the first step and `final/NAME` after 50 steps, computed in fp64 (kept in
fp32 and fp64), batch norm's buffers among the latter, and `losses` (mean loss of each step, fp64). Initial
weights and data are formulas of whole numbers, so that both sides have them, exactly, without a file.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "peers"))
import bert_model  # noqa: E402
import gpt_model  # noqa: E402
import resnet_model  # noqa: E402

STEPS, SAMPLES = 50, 4
SIDE, RESNET_WIDTH = 16, 2
BLOCK, VOCAB = 12, 24


def numbers(count, key):
    """`count` multiples of 2^-20 in [-1, 1): exact in fp32."""
    i = torch.arange(count, dtype=torch.int64)
    return (((i + 1) * (40503 + 2 * key) * 2654435761 >> 7) % (1 << 21) - (1 << 20)).double() / (1 << 20)


def fill(parameters):
    """The key is the place in name order; norms' weights are around 1."""
    with torch.no_grad():
        for key, name in enumerate(sorted(parameters)):
            p = parameters[name]
            values = numbers(p.numel(), key).view_as(p)
            if p.dim() >= 2:
                p.copy_(values / 4)
            else:
                p.copy_(values / 8 + (1 if name.endswith("weight") else 0))


def images_of(step):
    images = numbers(SAMPLES * 3 * SIDE * SIDE, 1000 + step).view(SAMPLES, 3, SIDE, SIDE)
    targets = torch.tensor([(3 * step + 5 * s) % 10 for s in range(SAMPLES)])
    # Something to learn: the class shows in one row.
    for s in range(SAMPLES):
        images[s, :, targets[s] % SIDE] += 1
    return images, targets


def tokens_of(step):
    tokens = torch.tensor([[(7 * (step + s) + (s + 2) * t + t * t // 3) % (VOCAB - 1) for t in range(BLOCK)]
                           for s in range(SAMPLES)])
    targets = torch.full_like(tokens, -1)
    for s in range(SAMPLES):
        for t in range((step + s) % 4, BLOCK, 4):
            targets[s, t] = tokens[s, t]
            tokens[s, t] = VOCAB - 1
    return tokens, targets


def train(model, optimizer, batch_of, name_of, path):
    parameters = {name_of(name): p for name, p in model.named_parameters()}
    out, losses = {}, []
    for step in range(STEPS):
        loss = model(*batch_of(step))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            out |= {f"gradient/{name}": p.grad.float().contiguous() for name, p in parameters.items()}
        optimizer.step()
        optimizer.zero_grad()
    out |= {f"final/{name}": p.detach().clone().contiguous() for name, p in parameters.items()}
    out |= {f"final/{name}": b.clone() for name, b in model.named_buffers()}
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    save_file(out, path)
    print(f"{path}: {path.stat().st_size} bytes, losses {losses[0]:.4f} ... {losses[-1]:.4f}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests" / "compat" / "golden"
    torch.set_num_threads(1)
    resnet = resnet_model.Resnet18(width=RESNET_WIDTH).double()
    fill(dict(resnet.named_parameters()))
    train(resnet, resnet_model.make_optimizer(resnet, learning_rate=0.01), images_of, lambda name: name,
          folder / "resnet.safetensors")
    bert = bert_model.Bert(layers=2, heads=2, width=16, block=BLOCK, vocab=VOCAB).double()
    fill({bert_model.trireme_name(name): p for name, p in bert.named_parameters()})
    train(bert, gpt_model.make_optimizer(bert, learning_rate=3e-3), tokens_of, bert_model.trireme_name,
          folder / "bert.safetensors")


if __name__ == "__main__":
    main()
