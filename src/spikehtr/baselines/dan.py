"""DAN at line level: D. Coquenet et al., 'DAN: A Segmentation-Free Document Attention Network for Handwritten Document
Recognition', TPAMI 2023. 7.6 M parameters: VAN's convolutions, eight decoder layers, an LSTM before the head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spikehtr.baselines.autoregressive import Autoregressive, CharacterDecoder, Memory
from spikehtr.baselines.common import Columns
from spikehtr.baselines.htr_vt import positions
from spikehtr.baselines.van import VAN, Encoder
from spikehtr.config import ModelConfig
from spikehtr.ops.masks import valid_mask

_HEADS, _LAYERS, _WINDOW = 4, 8, 100
_DROPOUT, _ENCODER_DROPOUT = 0.1, 0.5


class DAN(Autoregressive):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        widths, separable = (list(map(self.scaled_width, part)) for part in (VAN.widths, VAN.separable))
        self.dim = dim = self.scaled_width(VAN.separable[-1], multiple=2 * _HEADS)
        self.encoder = Encoder(config.in_channels, widths, [*separable[:-1], dim], self.drop(_ENCODER_DROPOUT))
        self.decoder = CharacterDecoder(
            dim, vocab_size, _LAYERS, _HEADS, dim, self.drop(_DROPOUT), window=_WINDOW, recurrent=True
        )

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        return self.encoder.columns(ink, own)

    def memory(self, tokens: Tensor, lengths: Tensor) -> Memory:
        x = self.encoder.maps(tokens, lengths)  # [B, d, rows, L]
        rows, columns = x.shape[2:]
        across = positions(columns, self.dim // 2, x.device).expand(rows, -1, -1)
        down = positions(rows, self.dim // 2, x.device)[:, None].expand_as(across)
        place = torch.cat([down, across], dim=2).flatten(0, 1)  # [rows L, d]
        inside = valid_mask(lengths, columns).repeat(1, rows)
        return Memory(x.flatten(2).transpose(1, 2) + place.to(x.dtype), inside)
