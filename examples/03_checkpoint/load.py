"""load.py DIR: the example's weights in Python's PyTorch."""

import math
import pathlib
import sys

import safetensors.torch
import torch

folder = pathlib.Path(sys.argv[1])
latest = folder / (folder / "latest").read_text().strip()
net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
for file in (latest / "model.safetensors", folder / "weights.safetensors"):
    net.load_state_dict(safetensors.torch.load_file(file), strict=True)
turn = [0.1 * (i // 2) for i in range(58)]
side = [1 if i % 2 == 0 else -1 for i in range(58)]
points = torch.tensor([[s * t * math.cos(t), s * t * math.sin(t)] for s, t in zip(side, turn)])
loss = torch.nn.functional.cross_entropy(net(points), torch.arange(58) % 2).item()
print(f"strict load of {latest.name} and weights.safetensors; loss {loss:.3f}")
assert loss < 0.69, "it has not learned"   # ln 2: a coin
