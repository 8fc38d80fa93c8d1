"""CRNN with a CTC shortcut: G. Retsinas et al., 'Best Practices for a Handwritten Text Recognition System', DAS 2022.

7.4 M parameters: residual blocks 2 x 64, 3 x 128, 2 x 256 as in the authors' released model. (The paper's own runs had
2, 4 and 4 of them: 9.9 M.)
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import BLSTM, Baseline, Columns, ResidualBlock, Shortcut
from spikehtr.config import ModelConfig

_STEM = 32
_STAGES = ((2, 64), (3, 128), (2, 256))  # blocks and channels, with 2x2 max pooling between the stages
_UNITS, _LAYERS = 256, 3
_RECURRENT_DROPOUT, _HEAD_DROPOUT = 0.2, 0.5


class Retsinas(Baseline):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        channels = self.scaled_width(_STEM)
        self.stem = nn.Conv2d(config.in_channels, channels, 7, (4, 2), padding=3)
        self.stages = nn.ModuleList()
        for blocks, width in _STAGES:
            inputs = [channels] + [self.scaled_width(width)] * (blocks - 1)
            channels = self.scaled_width(width)
            self.stages.append(nn.ModuleList(ResidualBlock(c, channels) for c in inputs))
        # The auxiliary loss trains it (weight 0.1), and with the reducer on it is the preview.
        self.shortcut = Shortcut(channels, vocab_size, kernel=3, dropout=self.drop(_HEAD_DROPOUT))
        self.blstm = BLSTM(channels, self.scaled_width(_UNITS), _LAYERS, self.drop(_RECURRENT_DROPOUT))
        self.dropout = nn.Dropout(self.drop(_HEAD_DROPOUT))
        self.head = nn.Linear(2 * self.scaled_width(_UNITS), vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = F.relu(own(self.stem(ink)))  # [B, 32, H/4, W/2]
        for number, stage in enumerate(self.stages):
            if number:
                x = F.max_pool2d(x, 2)
            assert isinstance(stage, nn.ModuleList)
            for block in stage:
                x = block(x, own)
        return x.amax(2).transpose(1, 2)  # [B, 256, H/16, L0], the strongest row of each column -> [B, L0, 256]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.blstm(tokens, lengths)))
        return logits
