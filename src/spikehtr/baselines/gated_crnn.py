"""Gated-CRNN: T. Bluche and R. Messina, 'Gated Convolutional Recurrent Neural Networks for Multilingual Handwriting
Recognition', ICDAR 2017. 0.73 M parameters at any height.

(The paper's table gives 18.2 M and the error rates of a plain CRNN for it: `crnn`.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import BLSTM, Baseline, Columns
from spikehtr.config import ModelConfig

_TILE = 2  # tiles of 2 x 2 pixels become channels
# Channels, kernel and stride (rows, columns) of each convolution, and whether a gate follows.
_CONVS = (
    (8, (3, 3), (1, 1), False),
    (16, (4, 2), (4, 2), True),
    (32, (3, 3), (1, 1), True),
    (64, (4, 2), (4, 1), True),
    (128, (3, 3), (1, 1), False),
)
_UNITS = 128


class Gate(nn.Module):
    """x times how far each of its values is let through: [B, C, H, W] -> same"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.conv(x))  # 0 in the padding, where x is


class GatedCRNN(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        channels = config.in_channels * _TILE**2
        self.convs, self.gates = nn.ModuleList(), nn.ModuleList()
        for width, kernel, stride, gated in _CONVS:
            out = self.scaled_width(width)
            self.convs.append(nn.Conv2d(channels, out, kernel, stride))
            self.gates.append(Gate(out) if gated else nn.Identity())
            channels = out
        units = self.scaled_width(_UNITS)
        self.shortcut = self.preview_head(channels)
        self.first, self.second = BLSTM(channels, units), BLSTM(units, units)
        self.between = nn.Linear(2 * units, units)
        self.head = nn.Linear(2 * units, vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = F.pixel_unshuffle(ink, _TILE)  # [B, 4 C, H/2, W/2]
        for (_, kernel, stride, _), conv, gate in zip(_CONVS, self.convs, self.gates, strict=True):
            high, wide = (k - s for k, s in zip(kernel, stride, strict=True))  # how far kernels overlap
            x = F.pad(x, (wide // 2, (wide + 1) // 2, high // 2, (high + 1) // 2))
            x = gate(torch.tanh(own(conv(x))))
        return x.amax(2).transpose(1, 2)  # [B, 128, H/32, L0], the strongest row of each column -> [B, L0, 128]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        z = torch.tanh(self.between(self.first(tokens, lengths)))  # [B, L, 128]
        logits: Tensor = self.head(self.second(z, lengths))
        return logits
