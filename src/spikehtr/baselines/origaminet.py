"""OrigamiNet at line level: M. Yousef and T. Bishop, 'OrigamiNet: Weakly-Supervised, Segmentation-Free, One-Step, Full
Page Text Recognition by Learning to Unfold', CVPR 2020. 39.0 M parameters: twice its basic widths, as for IAM's lines.

A line has nothing to unfold, so what is left is a deep gated convolutional network and the mean of each column.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns
from spikehtr.baselines.norms import instance_norm, map_norm
from spikehtr.config import ModelConfig

_MAPS, _KERNEL = 33, 11  # of the first, softmaxed layer
_WIDTHS = {0: 256, 2: 512, 4: 1024, 6: 2048}  # of the blocks from there on
_BLOCKS, _POOLED = 12, (0, 2)  # and after which of them the map is halved
_TOKENS = 4  # blocks before the reducer's place
_SHRINK = 4
_CLOSED = 2.0  # by which gates start closed


class NormedConv(nn.Module):
    """A convolution without bias and a normalisation of each channel: [B, C, H, W] -> [B, D, H, W]"""

    def __init__(self, channels: int, out: int, kernel: int = 1, depthwise: bool = False) -> None:
        super().__init__()
        groups = channels if depthwise else 1
        self.conv = nn.Conv2d(channels, out, kernel, padding=kernel // 2, groups=groups, bias=False)
        self.norm = instance_norm(out, affine=True)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        y: Tensor = self.norm(self.conv(x), own)
        return y


class Separable(nn.Module):
    """Pointwise, then depthwise 3x3, each normalised: [B, C, H, W] -> [B, D, H, W]"""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.pointwise, self.depthwise = NormedConv(channels, out), NormedConv(out, out, 3, depthwise=True)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        y: Tensor = self.depthwise(self.pointwise(x, own), own)
        return y


class GateBlock(nn.Module):
    """A gated bottleneck beside the identity: [B, C, H, W] -> same"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        narrow = max(1, channels // 2)
        self.squeeze, self.gated = Separable(channels, narrow), Separable(narrow, 2 * narrow)
        self.widen = Separable(narrow, channels)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        value, door = self.gated(F.elu(self.squeeze(x, own)), own).chunk(2, dim=1)
        y = torch.tanh(value) * torch.sigmoid(door - _CLOSED)
        return x + F.elu(self.widen(y, own))


class OrigamiNet(Baseline):
    per_label = ("head.conv.weight", "head.norm.weight", "head.norm.bias", "shortcut.conv.weight", "shortcut.conv.bias")
    head: NormedConv  # type: ignore[assignment]

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        maps = self.scaled_width(_MAPS)
        channels: int = config.in_channels
        self.input_norm, self.maps_norm = map_norm(channels), map_norm(maps)
        self.point, self.spread = NormedConv(channels, maps), NormedConv(maps, maps, _KERNEL, depthwise=True)
        channels += maps
        self.blocks, self.wider = nn.ModuleList(), nn.ModuleList()
        dim = 0  # of a token
        for number in range(_BLOCKS):
            if number == _TOKENS:
                dim = channels * (config.height // _SHRINK)
                self.channels = channels
            out = self.scaled_width(_WIDTHS[number]) if number in _WIDTHS else channels
            self.blocks.append(GateBlock(channels))
            self.wider.append(NormedConv(channels, out) if out != channels else nn.Identity())
            channels = out
        self.shortcut = self.preview_head(dim)
        self.norm = map_norm(channels)
        self.head = NormedConv(channels, vocab_size)
        self.logit_norm = map_norm(vocab_size)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)

    def features(self, ink: Tensor, own: Columns) -> Tensor:
        line = self.input_norm(ink, own)  # [B, C, H, W]
        x = self.spread(own(self.point(line, own).softmax(1)), own)
        x = torch.cat([self.maps_norm(x, own), line], dim=1)  # [B, 33 + C, H, W]
        x = self._blocks(x, own, 0, _TOKENS)
        return x.flatten(1, 2).transpose(1, 2)  # [B, 512, H/4, L0] -> [B, L0, 512 H/4]

    def read(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        own = Columns(lengths, tokens.shape[1])
        x = own(tokens.transpose(1, 2).unflatten(1, (self.channels, -1)))
        x = self._blocks(x, own, _TOKENS, _BLOCKS)  # [B, 2048, H/4, L]
        x = F.elu(self.head(self.norm(x, own), own)).mean(2, keepdim=True)  # [B, V, 1, L]
        logits: Tensor = self.logit_norm(x, own).squeeze(2).transpose(1, 2)
        return logits

    def _blocks(self, x: Tensor, own: Columns, first: int, end: int) -> Tensor:
        for number in range(first, end):
            x = self.blocks[number](x, own)
            if not isinstance(self.wider[number], nn.Identity):
                x = F.elu(self.wider[number](x, own))
            if number in _POOLED:
                x = F.max_pool2d(x, 2)
        return x
