"""GFCN: D. Coquenet et al., 'Recurrence-Free Unconstrained Handwritten Text Recognition Using Gated Fully
Convolutional Network', ICFHR 2020. 1.38 M parameters at 64 pixels height.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns
from spikehtr.baselines.norms import instance_norm, map_norm
from spikehtr.config import ModelConfig

_STEM = (32, 64)
_BLOCKS = ((64, 2), (128, 2), (128, 1), (128, 1), (128, 1))  # channels, and how many columns become one; rows: two
_SHRINK = 32  # rows by the blocks
_GATED_LAYERS, _KERNEL = 6, 8
_NOISE, _DROPOUT, _EPS = 0.01, 0.4, 1e-3


class Separable(nn.Module):
    """A depthwise 3x3 convolution and a pointwise one: [B, C, H, W] -> [B, D, H, W]"""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.pointwise(self.depthwise(x))
        return y


class Gate(nn.Module):
    """Half of the channels let the other half through, both normalised: [B, 2 C, H, W] -> [B, C, H, W]"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.values, self.doors = map_norm(channels), map_norm(channels)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        value, door = x.chunk(2, dim=1)
        let_through: Tensor = self.values(torch.tanh(value), own) * self.doors(torch.sigmoid(door), own)
        return let_through


class Block(nn.Module):
    """[B, C, H, W] -> [B, D, H/2, W / columns]"""

    def __init__(self, channels: int, out: int, columns: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = Separable(channels, 2 * out), Separable(2 * out, 2 * out)
        self.norm, self.gate = instance_norm(2 * out, _EPS), Gate(out)
        self.columns, self.dropout = columns, nn.Dropout(dropout)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        x = F.relu(own(self.first(x)))
        x = self.norm(F.relu(own(self.second(x))), own)
        gated: Tensor = self.dropout(self.gate(F.max_pool2d(x, (2, self.columns)), own))
        return gated


class GatedLayer(nn.Module):
    """Each token with three before and four after it: [B, C, 1, L] -> same"""

    def __init__(self, channels: int, dropout: float) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, (1, _KERNEL), groups=channels)
        self.pointwise = nn.Conv2d(channels, 2 * channels, 1)
        self.gate, self.dropout = Gate(channels), nn.Dropout(dropout)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        x = self.depthwise(F.pad(x, ((_KERNEL - 1) // 2, _KERNEL // 2)))
        gated: Tensor = self.dropout(self.gate(F.relu(own(self.pointwise(x))), own))
        return gated


class GFCN(Baseline):
    # A gate multiplies two maps of mean 0: eleven of them in a row make half of a fresh network's logits of rounding
    # the weights to fp16, and noise of them in bf16.
    full_precision = True

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        drop = self.drop(_DROPOUT)
        channels: int = config.in_channels
        self.stem, self.stem_norms = nn.ModuleList(), nn.ModuleList()
        for width in map(self.scaled_width, _STEM):
            self.stem.append(nn.Conv2d(channels, width, 3, padding=1))
            self.stem.append(nn.Conv2d(width, width, 3, padding=1))
            self.stem_norms.append(instance_norm(width, _EPS))
            channels = width
        self.blocks = nn.ModuleList()
        for width, columns in _BLOCKS:
            self.blocks.append(Block(channels, self.scaled_width(width), columns, drop))
            channels = self.scaled_width(width)
        rows = config.height // _SHRINK
        self.fold = nn.Conv2d(channels, 2 * channels, (rows, 1), groups=channels)  # the rows become one
        self.mix = nn.Conv2d(2 * channels, 2 * channels, 1)
        self.shortcut = self.preview_head(2 * channels)
        self.layers = nn.ModuleList(GatedLayer(2 * channels, drop) for _ in range(_GATED_LAYERS))
        self.dropout = nn.Dropout(drop)
        self.head = nn.Linear(2 * channels, vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = ink  # [B, C, H, W]
        if self.training and self.config.baseline.dropout:
            x = own(x + self.drop(_NOISE) * torch.randn_like(x))
        for number, norm in enumerate(self.stem_norms):
            x = F.relu(own(self.stem[2 * number](x)))
            x = norm(F.relu(own(self.stem[2 * number + 1](x))), own)
            x = self.dropout(x)
        for block in self.blocks:
            x = block(x, own)  # at last [B, 128, H/32, W/4]
        x = own(F.relu(self.mix(self.fold(x))))  # [B, 256, 1, L0]
        return x.squeeze(2).transpose(1, 2)

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        own = Columns(lengths, tokens.shape[1])
        x = own(tokens.transpose(1, 2)[:, :, None])  # [B, 256, 1, L]
        for layer in self.layers:
            x = layer(x, own)
        logits: Tensor = self.head(x.squeeze(2).transpose(1, 2))
        return logits
