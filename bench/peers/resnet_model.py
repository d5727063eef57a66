"""The same ResNet-18 as trireme/models/resnet.cc, in PyTorch: what bench/ and tests/compat compare with.

torchvision's layers and names with the stem that CIFAR-10 takes (a 3 x 3 convolution, no pooling); blocks
carry Trireme's names, so state dicts are exchanged as they are.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)

    def forward(self, images):
        return F.relu(self.bn1(self.conv1(images)))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        inner = F.relu(self.bn1(self.conv1(x)))
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.bn2(self.conv2(inner)) + shortcut)


class Head(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.bias = nn.Parameter(torch.empty(classes))

    def forward(self, x):
        return F.linear(x.mean((2, 3)), self.weight, self.bias)


class Resnet18(nn.Module):
    """images [B, 3, side, side] -> logits [B, classes]; with targets, the mean cross-entropy."""

    def __init__(self, width=64, classes=10):
        super().__init__()
        self.stem = Stem(width)
        inputs = width
        for stage in range(4):
            outputs = width << stage
            blocks = [Residual(inputs, outputs, 2 if stage > 0 else 1), Residual(outputs, outputs, 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = outputs
        self.head = Head(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        bound = 1 / math.sqrt(inputs)
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.uniform_(self.head.bias, -bound, bound)

    def forward(self, images, targets=None):
        x = self.stem(images)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        logits = self.head(x)
        return logits if targets is None else F.cross_entropy(logits, targets)


def make_optimizer(model, learning_rate=0.05, momentum=0.9, weight_decay=5e-4):
    """SGD, one fused kernel, with weight decay on matrices and convolutions only, as trireme.optim does."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, weight_decay=weight_decay, fused=True)
