"""CNN + BLSTM: J. Puigcerver, 'Are Multidimensional Recurrent Layers Really Necessary for Handwritten Text
Recognition?', ICDAR 2017; the network PyLaia trains. 9.6 M parameters at 128 pixels height.
"""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import BLSTM, Baseline, Columns
from spikehtr.config import ModelConfig

_CHANNELS = (16, 32, 48, 64, 80)
_DROPOUT = (0.0, 0.0, 0.2, 0.2, 0.2)  # before each convolution
_POOLED = 3  # the first blocks halve height and width
_UNITS, _LAYERS, _RECURRENT_DROPOUT = 256, 5, 0.5


class CNNBLSTM(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        channels: list[int] = [config.in_channels, *map(self.scaled_width, _CHANNELS)]
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(channels))
        self.norms = nn.ModuleList(map(nn.BatchNorm2d, channels[1:]))
        dim = channels[-1] * (config.height >> _POOLED)
        self.shortcut = self.preview_head(dim)
        self.blstm = BLSTM(dim, self.scaled_width(_UNITS), _LAYERS, self.drop(_RECURRENT_DROPOUT))
        self.dropout = nn.Dropout(self.drop(_RECURRENT_DROPOUT))
        self.head = nn.Linear(2 * self.scaled_width(_UNITS), vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = ink  # [B, C, H, W]
        for block, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.dropout(x, self.drop(_DROPOUT[block]), self.training)
            x = F.leaky_relu(own(norm(conv(x))))
            if block < _POOLED:
                x = F.max_pool2d(x, 2)
        return x.flatten(1, 2).transpose(1, 2)  # [B, 80, H/8, L0] -> [B, L0, 80 H/8]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        z = self.blstm(self.dropout(tokens), lengths)  # [B, L, 512]
        logits: Tensor = self.head(self.dropout(z))
        return logits
