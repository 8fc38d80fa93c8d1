"""PAR: L. Kang et al., 'Pay Attention to What You Read: Non-recurrent Handwritten Text-Line Recognition', Pattern
Recognition 129, 2022. 55 M parameters (54.7 in LAM's table): a ResNet-50, four transformer layers over the columns and
four decoder layers.

The source starts from weights trained on ImageNet, this from none. No source gives the transformer's width together
with that size; 512 and a feed-forward part of 2,048 come to it.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.autoregressive import Autoregressive, CharacterDecoder, Memory
from spikehtr.baselines.common import Columns
from spikehtr.baselines.htr_vt import Attention, positions
from spikehtr.config import ModelConfig
from spikehtr.ops.masks import valid_mask

_STEM = 64
_STAGES = ((3, 64, (1, 1)), (4, 128, (2, 2)), (6, 256, (2, 2)), (3, 512, (2, 1)))  # blocks, width, stride
_WIDER, _SHRINK = 4, 32  # channels that a block gives, of its width; rows by all stages
_DIM, _HEADS, _LAYERS, _FEED_FORWARD = 512, 8, 4, 2048
_DROPOUT = 0.1


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with batch normalisation beside a shortcut: [B, C, H, W] -> [B, 4 D, h, w]"""

    def __init__(self, channels: int, width: int, stride: tuple[int, int]) -> None:
        super().__init__()
        out = _WIDER * width
        self.conv1, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.skip: nn.Module = nn.Identity()
        if channels != out or stride != (1, 1):
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        y = F.relu(own(self.norm1(self.conv1(x))))
        y = F.relu(own(self.norm2(self.conv2(y))))
        return F.relu(own(self.norm3(self.conv3(y)) + self.skip(x)))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each normalised after it is added: [B, L, d], inside [B, L]"""

    def __init__(self, dim: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(dim, _HEADS, dropout)
        self.feed = nn.Sequential(
            nn.Linear(dim, feed_forward), nn.ReLU(), nn.Dropout(dropout), nn.Linear(feed_forward, dim)
        )
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, z: Tensor, inside: Tensor) -> Tensor:
        z = self.norm1(z + self.dropout(self.attention(z, inside)))
        y: Tensor = self.norm2(z + self.dropout(self.feed(z)))
        return y


class PAR(Autoregressive):
    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        channels = self.scaled_width(_STEM)
        self.stem = nn.Conv2d(config.in_channels, channels, 7, 2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.blocks = nn.ModuleList()
        for blocks, published, stride in _STAGES:
            width = self.scaled_width(published)
            for number in range(blocks):
                self.blocks.append(Bottleneck(channels, width, (1, 1) if number else stride))
                channels = _WIDER * width
        self.dim, rate = self.scaled_width(_DIM, multiple=2 * _HEADS), self.drop(_DROPOUT)
        feed_forward = self.scaled_width(_FEED_FORWARD)
        self.fold = nn.Linear(channels * (config.height // _SHRINK), self.dim)
        self.layers = nn.ModuleList(EncoderLayer(self.dim, feed_forward, rate) for _ in range(_LAYERS))
        self.decoder = CharacterDecoder(self.dim, vocab_size, _LAYERS, _HEADS, feed_forward, rate)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        x = F.relu(own(self.stem_norm(self.stem(ink))))  # [B, 64, H/2, W/2]
        x = own(F.max_pool2d(x, 3, 2, padding=1))
        for block in self.blocks:
            x = block(x, own)  # at last [B, 2048, H/32, W/16]
        return x.flatten(1, 2).transpose(1, 2)

    def memory(self, tokens: Tensor, lengths: Tensor) -> Memory:
        z = self.fold(tokens)
        z = z + positions(z.shape[1], self.dim, z.device).to(z.dtype)
        inside = valid_mask(lengths, z.shape[1])
        for layer in self.layers:
            z = layer(z, inside)
        return Memory(z, inside)
