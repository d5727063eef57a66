"""The same GPT as trireme/models/gpt.cc, in PyTorch: what bench/ and tests/compat compare with.

Architecture and initial values as nanoGPT (https://github.com/karpathy/nanoGPT): token and position
embedding, pre-norm blocks, causal attention through scaled_dot_product_attention, GELU(tanh), a final
norm, the head tied to the embedding. Parameters carry Trireme's names, so state dicts are exchanged
as they are.

    python3 gpt_model.py --precision bf16     # milliseconds of a step of one process, one thread
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        batch, length, width = x.shape
        split = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=bias)
        self.down = nn.Linear(4 * width, width, bias=bias)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.norm1 = nn.LayerNorm(width, bias=bias)
        self.attention = Attention(width, heads, bias)
        self.norm2 = nn.LayerNorm(width, bias=bias)
        self.mlp = Mlp(width, bias)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embed(nn.Module):
    def __init__(self, vocab, width, block):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, width))
        self.position = nn.Parameter(torch.empty(block, width))

    def forward(self, tokens):
        return F.embedding(tokens, self.weight) + self.position[: tokens.shape[1]]


class Head(nn.Module):
    def __init__(self, width, weight, bias):
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=bias)
        self.weight = weight

    def forward(self, x):
        return F.linear(self.norm(x), self.weight)


class Gpt(nn.Module):
    """tokens [B, T] -> logits [B, T, vocab]; with targets, the mean cross-entropy."""

    def __init__(self, layers=6, heads=6, width=384, block=256, vocab=256, bias=False):
        super().__init__()
        self.embed = Embed(vocab, width, block)
        self.layer = nn.ModuleList(Layer(width, heads, bias) for _ in range(layers))
        self.head = Head(width, self.embed.weight, bias)
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                residual = name.endswith("out.weight") or name.endswith("down.weight")
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens, targets=None):
        x = self.embed(tokens)
        for layer in self.layer:
            x = layer(x)
        logits = self.head(x)
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def make_optimizer(model, learning_rate=1e-3, betas=(0.9, 0.99), weight_decay=0.1):
    """AdamW, one fused kernel, with weight decay on matrices only, as trireme.optim does."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, weight_decay=weight_decay, fused=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = Gpt(vocab=args.vocab)
    optimizer = make_optimizer(model)
    tokens = torch.randint(args.vocab, (args.sequences, 257))

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        middle = time.process_time()
        optimizer.step()
        optimizer.zero_grad()
        return middle, time.process_time()

    step()
    gradient, update = [], []
    for _ in range(args.steps):
        start = time.process_time()
        middle, end = step()
        gradient.append((middle - start) * 1e3)
        update.append((end - middle) * 1e3)
    median = args.steps // 2
    print(f"{args.precision}: forward and backward {sorted(gradient)[median]:.1f} ms, "
          f"update {sorted(update)[median]:.1f} ms (CPU time, median of {args.steps})")
    if args.profile:
        with torch.profiler.profile() as profile:
            step()
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25))


if __name__ == "__main__":
    main()
