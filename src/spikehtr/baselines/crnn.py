"""CRNN: B. Shi et al., 'An End-to-End Trainable Neural Network for Image-Based Sequence Recognition', TPAMI 2017.

Seven convolutions, two BLSTM layers. At 60 pixels height, with 512 units a direction, it has 18.2 M parameters: the
size that LAM's and HTR-ConvText's tables give for a CRNN, and the paper's table for its 'Gated-CRNN'. No source names
the units; they are what that size comes to.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import BLSTM, Baseline, Columns
from spikehtr.config import ModelConfig
from spikehtr.errors import SpikeHTRError

_CHANNELS = (64, 128, 256, 256, 512, 512)  # 3x3 convolutions
_NORMED = (2, 4)  # those with batch normalisation; the last, 2x2 convolution has it too
_POOLS = {0: (2, 2), 1: (2, 2), 3: (2, 1), 5: (2, 1)}  # after which, rows and columns
_SHRINK = 16  # rows by the poolings
_UNITS, _LAYERS = 512, 2


class CRNN(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        rows = config.height // _SHRINK - 1  # the last convolution has no rows beyond the map
        if rows < 1:
            raise SpikeHTRError(f"crnn needs lines of at least {2 * _SHRINK} pixels: model.height is {config.height}")
        channels: int = config.in_channels
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for number, width in enumerate(map(self.scaled_width, _CHANNELS)):
            self.convs.append(nn.Conv2d(channels, width, 3, padding=1))
            self.norms.append(nn.BatchNorm2d(width) if number in _NORMED else nn.Identity())
            channels = width
        self.last = nn.Conv2d(channels, channels, 2)
        self.last_norm = nn.BatchNorm2d(channels)
        dim, units = channels * rows, self.scaled_width(_UNITS)
        self.shortcut = self.preview_head(dim)
        self.blstm = BLSTM(dim, units, _LAYERS)
        self.head = nn.Linear(2 * units, vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = ink  # [B, C, H, W]
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = F.relu(own(norm(conv(x))))
            if number in _POOLS:
                x = F.max_pool2d(x, _POOLS[number])
        x = F.relu(own(self.last_norm(self.last(F.pad(x, (0, 1))))))  # [B, 512, H/16 - 1, L0]
        return x.flatten(1, 2).transpose(1, 2)  # [B, L0, 512 rows]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blstm(tokens, lengths))
        return logits
