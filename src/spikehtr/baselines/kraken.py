"""kraken's default recogniser: three BLSTM layers on wide convolutions, 4.0 M parameters at 120 pixels height.

[1,120,0,1 Cr3,13,32 Do0.1,2 Mp2,2 Cr3,13,32 Do0.1,2 Mp2,2 Cr3,9,64 Do0.1,2 Mp2,2 Cr3,9,64 Do0.1,2 S1(1x0)1,3 Lbx200
Do0.1,2 Lbx200 Do0.1,2 Lbx200 Do O1c80] in its notation.
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import BLSTM, Baseline, Columns
from spikehtr.config import ModelConfig

_CONVS = ((32, 13), (32, 13), (64, 9), (64, 9))  # channels and width of the kernel, 3 rows high
_POOLED = 3  # the first blocks halve height and width
_UNITS, _LAYERS = 200, 3
_MAP_DROPOUT, _HEAD_DROPOUT = 0.1, 0.5  # the first drops whole channels


class Kraken(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        channels: list[int] = [config.in_channels, *(self.scaled_width(width) for width, _ in _CONVS)]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, (3, kernel), padding=(1, kernel // 2))
            for (a, b), (_, kernel) in zip(pairwise(channels), _CONVS, strict=True)
        )
        units, dim = self.scaled_width(_UNITS), channels[-1] * (config.height >> _POOLED)
        self.shortcut = self.preview_head(dim)
        self.blstms = nn.ModuleList(BLSTM(width, units) for width in [dim] + [2 * units] * (_LAYERS - 1))
        self.head = nn.Linear(2 * units, vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = ink  # [B, C, H, W]
        for block, conv in enumerate(self.convs):
            x = F.dropout2d(F.relu(own(conv(x))), self.drop(_MAP_DROPOUT), self.training)
            if block < _POOLED:
                x = F.max_pool2d(x, 2)
        return x.flatten(1, 2).transpose(1, 2)  # [B, 64, H/8, L0] -> [B, L0, 64 H/8]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        z = tokens  # [B, L, d]
        for layer, blstm in enumerate(self.blstms):
            if layer:
                z = F.dropout1d(z.transpose(1, 2), self.drop(_MAP_DROPOUT), self.training).transpose(1, 2)
            z = blstm(z, lengths)  # [B, L, 400]
        logits: Tensor = self.head(F.dropout(z, self.drop(_HEAD_DROPOUT), self.training))
        return logits
