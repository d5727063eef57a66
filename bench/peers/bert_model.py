"""The same encoder as trireme/models/bert.cc, of PyTorch's own nn.TransformerEncoderLayer: what bench/ and
tests/compat compare with.

Post-norm, GELU(tanh), epsilon 1e-12, a masked-token head tied to the embedding. trireme_name() maps a
name to the one that it has in Trireme.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

EPSILON = 1e-12
gelu = functools.partial(F.gelu, approximate="tanh")

# nn.TransformerEncoderLayer's names and Trireme's.
LAYER_NAMES = {
    "self_attn.in_proj_weight": "attention.qkv.weight", "self_attn.in_proj_bias": "attention.qkv.bias",
    "self_attn.out_proj.weight": "attention.out.weight", "self_attn.out_proj.bias": "attention.out.bias",
    "linear1.weight": "mlp.up.weight", "linear1.bias": "mlp.up.bias",
    "linear2.weight": "mlp.down.weight", "linear2.bias": "mlp.down.bias",
    "norm1.weight": "norm1.weight", "norm1.bias": "norm1.bias",
    "norm2.weight": "norm2.weight", "norm2.bias": "norm2.bias",
}


class Embed(nn.Module):
    def __init__(self, vocab, width, block):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, width))
        self.position = nn.Parameter(torch.empty(block, width))
        self.norm = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, tokens):
        return self.norm(F.embedding(tokens, self.weight) + self.position[: tokens.shape[1]])


class Head(nn.Module):
    def __init__(self, width, weight):
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, x):
        return F.linear(self.norm(gelu(self.transform(x))), self.weight, self.bias)


class Bert(nn.Module):
    """tokens [B, T] -> logits [B, T, vocab]; with targets (-1: not asked), the mean cross-entropy of those
    asked for."""

    def __init__(self, layers=12, heads=12, width=768, block=128, vocab=257):
        super().__init__()
        self.embed = Embed(vocab, width, block)
        self.layer = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation=gelu,
                                       layer_norm_eps=EPSILON, batch_first=True) for _ in range(layers))
        self.head = Head(width, self.embed.weight)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, tokens, targets=None):
        x = self.embed(tokens)
        for layer in self.layer:
            x = layer(x)
        logits = self.head(x)
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)


def trireme_name(name):
    parts = name.split(".", 2)
    if parts[0] != "layer":
        return name
    return ".".join([parts[0], parts[1], LAYER_NAMES[parts[2]]])
