"""The spiking 2D encoder (Section 3.3): line image -> T x W/4 tokens.

stem -> gated injection -> stage 1 (full size) -> stage 2 (1/2) -> stage 3 (1/4) -> dual-resolution fusion -> height
pooling. Maps are [T, B, C, H, W]; a convolution always reads zeros at padded columns, as it would past the image's
own edge, so every module that ends a chain of pointwise operations multiplies by the column mask.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import ModelConfig
from spikehtr.model.entry import Entry
from spikehtr.model.lif import make_neuron
from spikehtr.model.masking import MaskedGroupNorm, SharedDropout, ramp, shrink

NO_NEURON, SILU = ops.Neuron(ops.NONE), ops.Neuron(ops.SILU)


class Conv2d(nn.Conv2d):
    """nn.Conv2d, padded by half its kernel, by `ops.conv2d`."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.conv2d(x, self.weight, self.bias, self.stride, self.groups)


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise convolution of maps [T, B, C, H, W], what a norm can use of its sums, and the maps again."""

    def forward(self, x: Tensor, widths: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:  # type: ignore[override]
        return ops.depthwise(x, self.weight, widths)


class SpikingConv2d(nn.Module):
    """Convolution, norm, neuron, and the membrane shortcut where asked for (Eq. 8).

    H = Norm(Conv(X));  Y = LIF(H) + alpha * H

    With `spikes_first` Y = Norm(Conv(LIF(Norm'(X)))) instead: the convolution reads spikes, and what is analog stays in
    the sum that follows. Norm' sets each channel's threshold; where X is a norm's output already, there is none.

    With `neurons = "read"` there is a neuron only where nothing but its spikes goes on; elsewhere Y = H.
    """

    def __init__(
        self,
        config: ModelConfig,
        cin: int,
        cout: int,
        kernel: int,
        stride: int | tuple[int, int] = 1,
        groups: int = 1,
        bypass: bool = True,
        after: MaskedGroupNorm | None = None,
        burst: int = 1,
        start_bias: float | None = None,
    ) -> None:
        """`after`: the norm whose output is read, and nothing added to it. `burst`, `start_bias`: `make_neuron`'s."""
        super().__init__()
        groups_of_norm = config.encoder.norm_groups
        self.first = config.encoder.spikes_first
        self.drive = MaskedGroupNorm(cin, groups_of_norm) if self.first and after is None else None
        kind = DepthwiseConv2d if groups > 1 and not self.first else Conv2d
        self.conv = kind(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = MaskedGroupNorm(cout, groups_of_norm)
        drive = (self.drive or after) if self.first else self.norm
        fires = not bypass or self.first or config.encoder.neurons == "all"
        self.neuron = make_neuron(config, drive, burst, start_bias, fires)
        wanted = bypass and config.encoder.shortcuts
        self.alpha = nn.Parameter(torch.tensor(config.encoder.bypass_init)) if wanted else None

    def forward(
        self,
        x: Tensor,
        widths: Tensor,
        read: Tensor | None = None,
        residual: Tensor | None = None,
        gain: Tensor | None = None,
    ) -> Tensor:
        """x [T, B, cin, H, W], widths [B] of the output, `read` [B] of x where it is wider -> [T, B, cout, H', W'].

        With `residual` of that shape: residual + gain_b * Y.
        """
        if self.first:
            x = self._fire(x, widths if read is None else read)
        h = self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2])  # [T, B, cout, H', W']
        return self.finish(h, widths, residual, gain)

    def finish(
        self,
        h: Tensor,
        widths: Tensor,
        residual: Tensor | None = None,
        gain: Tensor | None = None,
        sums: Tensor | None = None,
    ) -> Tensor:
        """What follows the convolution; 0 at padded columns."""
        norm, neuron = self.norm, NO_NEURON if self.first else self.neuron.numbers
        return ops.norm_neuron(
            h, widths, norm.weight, norm.bias, norm.numbers, neuron, self.alpha, residual, gain, sums
        )

    def _fire(self, x: Tensor, widths: Tensor) -> Tensor:
        """What `spikes_first` has before the convolution: same shape, 0 at padded columns (but for PW2's, which reads
        each column by itself)."""
        if self.drive is None:
            return self.neuron(x)
        norm = self.drive
        return ops.norm_neuron(x, widths, norm.weight, norm.bias, norm.numbers, self.neuron.numbers)


class ConvMix2d(nn.Module):
    """Depthwise mixing in space, then pointwise mixing over channels; both residual.

    PW1's neuron has no shortcut, so PW2 reads pure spikes; a norm stands before PW1 (with `spikes_first` it is PW1's
    own, and its neuron follows).
    """

    def __init__(self, config: ModelConfig, channels: int, drop_path: float) -> None:
        super().__init__()
        c = config.encoder
        wide = round(c.expansion * channels)
        self.dw = SpikingConv2d(config, channels, channels, c.kernel, groups=channels)
        self.norm = None if c.spikes_first else MaskedGroupNorm(channels, c.norm_groups)
        # The neuron between the two has settings of its own; with `spikes_first` it is PW2's.
        (burst1, start1), (burst2, start2) = (c.pw1_burst, c.pw1_start_bias), (1, None)
        if c.spikes_first:
            (burst1, start1), (burst2, start2) = (burst2, start2), (burst1, start1)
        self.pw1 = SpikingConv2d(config, channels, wide, 1, bypass=False, burst=burst1, start_bias=start1)
        self.pw2 = SpikingConv2d(config, wide, channels, 1, after=self.pw1.norm, burst=burst2, start_bias=start2)
        self.dropout = SharedDropout(c.dropout, per="channel")
        self.drop_path = SharedDropout(drop_path, per="line")

    def forward(self, x: Tensor, widths: Tensor) -> Tensor:
        """[T, B, C, H, W], [B] -> same shape. Where x goes two ways it is handed through the operator that reads it, so
        that its two gradients meet there."""
        if self.norm is None:
            x = x + self.drop_path(self.dw(x, widths))
            return x + self.drop_path(self.pw2(self.dropout(self.pw1(x, widths)), widths))
        h, sums, x = self.dw.conv(x, widths)
        x = self.dw.finish(h, widths, x, self.drop_path.gain(x), sums)
        norm = self.norm
        y, x = ops.group_norm_fork(x, widths, norm.weight, norm.bias, norm.numbers)
        y = self.dropout(self.pw1(y, widths))
        return self.pw2(y, widths, residual=x, gain=self.drop_path.gain(x))


class Stage(nn.Module):
    """A spiking 3x3 convolution (stride 2 in the paper's stages 2 and 3) and its ConvMix2d blocks."""

    def __init__(
        self, config: ModelConfig, cin: int, cout: int, stride: tuple[int, int], drop_paths: list[float]
    ) -> None:
        super().__init__()
        self.conv = SpikingConv2d(config, cin, cout, 3, stride)
        self.blocks = nn.ModuleList(ConvMix2d(config, cout, rate) for rate in drop_paths)

    def forward(self, x: Tensor, widths: Tensor, read: Tensor) -> Tensor:
        """x [T, B, cin, H, W], widths [B] of the output, `read` [B] of x -> [T, B, cout, H', W']"""
        x = self.conv(x, widths, read)
        for block in self.blocks:
            x = block(x, widths)
        return x


class DownMix(nn.Module):
    """Shrink a map: Avg(z) + rho * (Max(z) - Avg(z)), rho learned in (0, 1) from 0.5 (or held at 0 or 1).

    The paper halves both sides; `stride` is that of the stage whose grid is wanted.
    """

    def __init__(self, mode: str, stride: tuple[int, int] = (2, 2)) -> None:
        super().__init__()
        self.mode, self.stride = mode, stride
        learned = mode == "mix" and stride != (1, 1)  # there is nothing to mix where nothing is pooled
        self.rho_logit = nn.Parameter(torch.zeros(())) if learned else None

    @property
    def rho(self) -> float | Tensor:
        """How much of the maximum is taken."""
        return float(self.mode == "max") if self.rho_logit is None else torch.sigmoid(self.rho_logit)

    def forward(self, z: Tensor, widths: Tensor, base: Tensor | None = None, gate: Tensor | None = None) -> Tensor:
        """z [T, B, C, H, W], widths [B] of the input -> [T, B, C, H/sh, W/sw]; with `base` and `gate` of that shape:
        base + sigmoid(gate) * that."""
        return ops.downmix(z, widths, self.rho, self.stride, base, gate)


class DualResolutionFusion(nn.Module):
    """Stage-2 detail added to stage 3 through a gate that reads stage 3 (Eq. 9); both readers are normed first."""

    def __init__(self, config: ModelConfig, half: int, quarter: int) -> None:
        super().__init__()
        groups = config.encoder.norm_groups
        self.norm_detail = MaskedGroupNorm(half, groups)
        self.proj = Conv2d(half, quarter, 1)
        self.down = DownMix(config.encoder.downsample, config.encoder.strides[2])
        self.norm_gate = MaskedGroupNorm(quarter, groups)
        self.gate = Conv2d(quarter, quarter, 1)

    def forward(self, f2: Tensor, f3: Tensor, widths2: Tensor, widths3: Tensor) -> Tensor:
        """f2 [T, B, c2, H/2, W/2], f3 [T, B, d, H/4, W/4] -> f3's shape."""
        steps = f2.shape[:2]
        detail = self.proj(self.norm_detail(f2, widths2).flatten(0, 1)).unflatten(0, steps)  # [T, B, d, H/2, W/2]
        gate = self.gate(self.norm_gate(f3, widths3).flatten(0, 1)).unflatten(0, steps)  # [T, B, d, H/4, W/4]
        return self.down(detail, widths2, f3, gate)


class HeightPool(nn.Module):
    """Collapse height by attention, nudged channel by channel towards the maximum (Eq. 10)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim // 4), nn.SiLU(), nn.Linear(dim // 4, 1, bias=False))
        self.nudge = nn.Linear(dim, dim)

    def forward(self, f: Tensor) -> Tensor:
        """[T, B, d, H', W'] -> [T, B, W', d]; each column by itself."""
        f = ops.pixels(f)  # channels last
        attended, largest = ops.height_pool(f, self.score(f))  # [T, B, W', d]
        r = torch.sigmoid(self.nudge(attended))
        return attended + r * (largest - attended)


class Stem(nn.Module):
    """S = SiLU(Norm(Conv3x3(X))), static: computed once, not once a timestep (Eq. 6).

    A stride of 4 comes with 7 rows or columns, so that neighbours overlap.
    """

    def __init__(self, config: ModelConfig, channels: int) -> None:
        super().__init__()
        stride = config.encoder.stem_stride
        high, wide = (max(3, 2 * side - 1) for side in stride)
        self.conv = Conv2d(config.in_channels, channels, (high, wide), stride, (high // 2, wide // 2), bias=False)
        self.norm = MaskedGroupNorm(channels, config.encoder.norm_groups)

    def forward(self, images: Tensor, widths: Tensor) -> Tensor:
        """images [B, C, H, W], widths [B] of the output -> [B, c1, H/sh, W/sw]"""
        x, norm = self.conv(images)[None], self.norm
        return ops.norm_neuron(x, widths, norm.weight, norm.bias, norm.numbers, SILU).squeeze(0)


class Encoder(nn.Module):
    """images [B, C, H, W] in [0, 1], widths [B] pixels -> tokens [T, B, L0, d], lengths [B].

    Padding is 0 and W a multiple of 4 (`SpikeHTR.prepare` sees to both). L0 = W / 4, and a line of w pixels has
    ceil(w / 4) tokens.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c, dim = config.encoder, config.dim
        c1, c2 = c.channels or (dim // 4, dim // 2)
        self.strides = [stride[1] for stride in (c.stem_stride, *c.strides)]  # along the line
        rates = ramp(c.drop_path, sum(c.depths))
        first, second = c.depths[0], c.depths[0] + c.depths[1]
        self.stem = Stem(config, c1)
        self.entry = Entry(config)
        self.stage1 = Stage(config, c1, c1, c.strides[0], rates[:first])
        self.stage2 = Stage(config, c1, c2, c.strides[1], rates[first:second])
        self.stage3 = Stage(config, c2, dim, c.strides[2], rates[second:])
        self.fusion = DualResolutionFusion(config, c2, dim) if c.dual_resolution else None
        self.pool = HeightPool(dim)

    def forward(self, images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor]:
        widths0 = shrink(widths, self.strides[0])
        widths1 = shrink(widths0, self.strides[1])
        widths2 = shrink(widths1, self.strides[2])
        widths3 = shrink(widths2, self.strides[3])
        s = self.stem(images, widths0)  # [B, c1, H, W]; sizes here are for the paper's strides
        x = self.entry(s, images, widths)  # [T, B, c1, H, W]
        f1 = self.stage1(x, widths1, widths0)  # [T, B, c1, H, W]
        f2 = self.stage2(f1, widths2, widths1)  # [T, B, c2, H/2, W/2]
        f3 = self.stage3(f2, widths3, widths2)  # [T, B, d, H/4, W/4]
        if self.fusion is not None:
            f3 = self.fusion(f2, f3, widths2, widths3)
        return self.pool(f3), widths3  # [T, B, L0, d], [B]
