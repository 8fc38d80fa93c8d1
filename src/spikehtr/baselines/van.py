"""VAN and SPAN at line level, which are one network in two widths: convolutions alone, and the maximum of each column.

VAN: D. Coquenet et al., 'End-to-End Handwritten Paragraph Text Recognition Using a Vertical Attention Network', TPAMI
2023: 1.73 M parameters (2.7 M with the attention that paragraphs need). SPAN: D. Coquenet et al., 'SPAN: A Simple
Predict and Align Network for Handwritten Paragraph Recognition', ICDAR 2021: 18.2 M.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns
from spikehtr.baselines.gfcn import Separable
from spikehtr.baselines.norms import instance_norm
from spikehtr.config import ModelConfig

_STRIDES = ((1, 1), (2, 2), (2, 2), (2, 2), (2, 1), (2, 1))  # of the convolution blocks: rows, columns
_DROPOUT, _EPS = 0.5, 1e-3


class Lots(NamedTuple):
    """What was drawn for the lines of a batch and the places of a block."""

    values: Tensor  # [places, B, 1, 1, 1], share of the values that is dropped
    channels: Tensor  # the same of whole channels
    chance: Tensor  # uniform, of the shape of the first map


class MixDropout(nn.Module):
    """Each line is dropped from at one of a block's three places, drawn by lot: single values of the map at `rate`, or
    whole channels at half of it. Drawn on the device, so that a recording draws anew."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def draw(self, x: Tensor, places: int = 3) -> Lots | None:
        """For the block whose first map is x [B, C, H, W]; None where nothing is dropped."""
        if not (self.training and self.rate):
            return None
        lines, device = len(x), x.device
        place, kind = torch.randint(places, (lines,), device=device), torch.rand(lines, device=device) < 0.5
        here = torch.arange(places, device=device)[:, None] == place  # [places, B]
        values, channels = self.rate * (here & kind), 0.5 * self.rate * (here & ~kind)
        every = (places, lines, 1, 1, 1)
        return Lots(values.view(every).to(x.dtype), channels.view(every).to(x.dtype), torch.rand_like(x))

    def forward(self, x: Tensor, lots: Lots | None, place: int) -> Tensor:
        if lots is None:
            return x
        values, channels = lots.values[place], lots.channels[place]
        chance = lots.chance if lots.chance.shape == x.shape else torch.rand_like(x)
        kept = (chance >= values) & (torch.rand_like(x[:, :, :1, :1]) >= channels)
        return x * kept / ((1 - values) * (1 - channels))


class Block(nn.Module):
    """Three convolutions with a normalisation before the last: [B, C, H, W] -> [B, D, H / rows, W / columns]"""

    def __init__(self, convs: tuple[nn.Module, nn.Module, nn.Module], channels: int, rate: float, last: bool) -> None:
        """`last`: there is a ReLU after the last convolution too."""
        super().__init__()
        self.conv1, self.conv2, self.conv3 = convs
        self.norm, self.dropout, self.last = instance_norm(channels, _EPS), MixDropout(rate), last

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        x = F.relu(own(self.conv1(x)))
        lots = self.dropout.draw(x)
        x = F.relu(own(self.conv2(self.dropout(x, lots, 0))))
        x = own(self.conv3(self.norm(self.dropout(x, lots, 1), own)))
        x = F.relu(x) if self.last else x
        dropped: Tensor = self.dropout(x, lots, 2)
        return dropped


def conv_block(channels: int, out: int, stride: tuple[int, int], rate: float) -> Block:
    convs = (
        nn.Conv2d(channels, out, 3, padding=1),
        nn.Conv2d(out, out, 3, padding=1),
        nn.Conv2d(out, out, 3, stride, padding=1),
    )
    return Block(convs, out, rate, last=True)


def separable_block(channels: int, out: int, rate: float) -> Block:
    return Block((Separable(channels, out), Separable(out, out), Separable(out, out)), out, rate, last=False)


class Encoder(nn.Module):
    """Six blocks that shrink the map to a thirty-second of its rows and an eighth of its columns, and four that do not.

    Between the two, where the reducer has its place, a token is a column: [B, L0, C rows].
    """

    def __init__(self, channels: int, widths: list[int], separable: list[int], rate: float) -> None:
        super().__init__()
        self.shrinking, self.keeping = nn.ModuleList(), nn.ModuleList()
        for width, stride in zip(widths, _STRIDES, strict=True):
            self.shrinking.append(conv_block(channels, width, stride, rate))
            channels = width
        self.channels = channels  # of the tokens, in each row
        for width in separable:
            self.keeping.append(separable_block(channels, width, rate))
            channels = width

    def columns(self, ink: Tensor, own: Columns) -> Tensor:
        """[B, C, H, W] -> [B, L0, D rows]"""
        x = ink
        for block in self.shrinking:
            x = block(x, own)
        return x.flatten(1, 2).transpose(1, 2)

    def maps(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """[B, L, D rows], [B] -> [B, E, rows, L]"""
        own = Columns(lengths, tokens.shape[1])
        x = own(tokens.transpose(1, 2).unflatten(1, (self.channels, -1)))
        for block in self.keeping:
            y = block(x, own)
            x = x + y if x.shape == y.shape else y
        return x


class VAN(Baseline):
    widths: ClassVar[tuple[int, ...]] = (16, 32, 64, 128, 128, 128)
    separable: ClassVar[tuple[int, ...]] = (128, 128, 128, 256)

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        widths, separable = (list(map(self.scaled_width, part)) for part in (self.widths, self.separable))
        self.encoder = Encoder(config.in_channels, widths, separable, self.drop(_DROPOUT))
        rows = config.height // 2 ** sum(stride[0] > 1 for stride in _STRIDES)
        self.shortcut = self.preview_head(self.encoder.channels * rows)
        self.head = nn.Linear(separable[-1], vocab_size)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        return self.encoder.columns(ink, own)

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        x = self.encoder.maps(tokens, lengths)
        logits: Tensor = self.head(x.amax(2).transpose(1, 2))
        return logits


class SPAN(VAN):
    widths = (32, 64, 128, 256, 512, 512)
    separable = (512, 512, 512, 512)
