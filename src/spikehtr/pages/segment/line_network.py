"""The network: a grey page in, maps of its lines out. About a million parameters, plain torch, exportable to ONNX.

A U-shaped encoder and decoder. Dense 3x3 convolutions where the maps are large (they run best on CPUs), large depthwise
kernels where they are small, for context: whether a gap is between words or between columns is seen from afar.
BatchNorm throughout, so that it folds into the convolutions. With neurons in place of ReLU, all convolutions but the
first read spikes.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from spikehtr.pages.segment.maps import COARSE, COARSE_NAMES, FINE, FINE_NAMES


class Maps(NamedTuple):
    """What the network says: logits, but for the heights.

    `fine` [B, 4, H/2, W/2]: baseline, line start, line end, region border.
    `coarse` [B, 7, H/4, W/4]: body of a line; log(height above / UNIT), log(height below / UNIT), true within bodies;
    four logits of how far a line's reading direction is turned clockwise from left to right.
    """

    fine: Tensor
    coarse: Tensor


@dataclass(frozen=True, slots=True)
class NetworkShape:
    """Widths at strides 2, 4, 8, 16 and 32 and blocks at each."""

    widths: tuple[int, ...] = (16, 32, 64, 112, 160)
    blocks: tuple[int, ...] = (1, 2, 2, 4, 4)
    expansion: int = 2
    kernel: int = 7  # of the depthwise convolutions
    decoder: tuple[int, ...] = (40, 64, 96)  # widths at strides 4, 8, 16
    burst: int = 0  # most spikes of a neuron; 0: no neurons, but ReLU

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NetworkShape:
        fields: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in values.items()}
        return cls(**fields)


SMALL = NetworkShape((8, 12, 16, 16, 16), (1, 1, 1, 1, 1), decoder=(12, 16, 16))  # for trying out


class Neurons(nn.Module):
    """Integer-valued neurons (bursts) at one timestep: each fires as often as its input, rounded, says, at most `most`
    times. What follows reads whole numbers and adds weights up; gradients are those of the input within the bounds."""

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def forward(self, x: Tensor) -> Tensor:
        level = x.clamp(0, self.most)
        return level + (level.round() - level).detach()


def activation(burst: int) -> nn.Module:
    return Neurons(burst) if burst else nn.ReLU()


class ConvBN(nn.Sequential):
    """Convolution without bias, BatchNorm, and an activation unless left out."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, then: nn.Module | None = None
    ):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), then or nn.Identity())


class DenseBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, width: int, burst: int):
        super().__init__()
        self.body = nn.Sequential(ConvBN(width, width, 3, then=activation(burst)), ConvBN(width, width, 3))
        self.activation = activation(burst)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.activation(x + self.body(x)))


class WideBlock(nn.Module):
    """A large depthwise kernel, two 1x1 convolutions and a shortcut. With neurons, every convolution reads spikes."""

    def __init__(self, width: int, kernel: int, expansion: int, burst: int):
        super().__init__()
        self.body = nn.Sequential(
            ConvBN(width, width, kernel, groups=width, then=Neurons(burst) if burst else None),
            ConvBN(width, width * expansion, 1, then=activation(burst)),
            ConvBN(width * expansion, width, 1),
        )
        self.activation = Neurons(burst) if burst else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.activation(x + self.body(x)))


class Merge(nn.Module):
    """A coarser map brought to the finer one's size and added to it, then a block."""

    def __init__(self, coarse: int, fine: int, width: int, burst: int):
        super().__init__()
        self.from_coarse = ConvBN(coarse, width, 1)
        self.from_fine = ConvBN(fine, width, 1)
        self.activation = activation(burst)
        self.block = DenseBlock(width, burst)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        larger = F.interpolate(self.from_coarse(coarse), scale_factor=2.0, mode="bilinear", align_corners=False)
        return cast(Tensor, self.block(self.activation(larger + self.from_fine(fine))))


class LineNetwork(nn.Module):
    """Images [B, 1, H, W] in [0, 1], black is 0, sides multiples of MULTIPLE -> `Maps`."""

    def __init__(self, shape: NetworkShape | None = None):
        super().__init__()
        self.shape = shape = shape or NetworkShape()
        widths, kinds, burst = shape.widths, (False, False, False, True, True), shape.burst

        def block(width: int, wide: bool) -> nn.Module:
            return WideBlock(width, shape.kernel, shape.expansion, burst) if wide else DenseBlock(width, burst)

        self.stem = ConvBN(2, widths[0], 5, 2, then=activation(burst))
        self.downs = nn.ModuleList(ConvBN(a, b, 3, 2, then=activation(burst)) for a, b in pairwise(widths))
        self.stages = nn.ModuleList(
            nn.Sequential(*(block(width, wide) for _ in range(count)))
            for width, count, wide in zip(widths, shape.blocks, kinds, strict=True)
        )
        outs = (*shape.decoder, widths[4])
        self.merges = nn.ModuleList(Merge(outs[i + 1], widths[i + 1], outs[i], burst) for i in range(3))
        self.fine = nn.Conv2d(outs[0], len(FINE_NAMES) * (COARSE // FINE) ** 2, 1)
        self.coarse = nn.Conv2d(outs[0], len(COARSE_NAMES), 1)
        nn.init.zeros_(self.fine.weight)
        # Nearly all of a page is no baseline.
        nn.init.constant_(cast(Tensor, self.fine.bias), -3.0)

    def forward(self, images: Tensor) -> Maps:
        x = self.stem(torch.cat([1 - images, evened(images)], 1))
        kept = []
        for number, stage in enumerate(self.stages):
            x = stage(self.downs[number - 1](x) if number else x)
            kept.append(x)
        for number in (2, 1, 0):
            x = self.merges[number](x, kept[number + 1])
        return Maps(F.pixel_shuffle(self.fine(x), COARSE // FINE), self.coarse(x))


def evened(images: Tensor) -> Tensor:
    """Dark strokes with shade and contrast taken out: how much darker than around it, in local standard deviations."""
    cells = F.avg_pool2d(torch.cat([images, images * images], 1).float(), 8)
    cells = F.avg_pool2d(cells, 9, 1, 4, count_include_pad=False)
    around = F.interpolate(cells, scale_factor=8.0, mode="bilinear", align_corners=False)
    mean, square = around[:, :1], around[:, 1:]
    deviation = (square - mean * mean).clamp(min=0).sqrt()
    return ((mean - images) / (deviation + 0.03)).clamp(-4, 4) / 2


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def folded(network: LineNetwork) -> LineNetwork:
    """A copy for reading: every BatchNorm folded into its convolution."""
    reading = deepcopy(network).eval()
    for module in reading.modules():
        if isinstance(module, ConvBN) and isinstance(module[1], nn.BatchNorm2d):
            module[0] = fuse_conv_bn_eval(cast(nn.Conv2d, module[0]), module[1])
            module[1] = nn.Identity()
    return reading
