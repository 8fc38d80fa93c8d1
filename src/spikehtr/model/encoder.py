"""The spiking 2D encoder (Section 3.3): line image -> T x W/4 tokens.

stem -> gated injection -> stage 1 (full size) -> stage 2 (1/2) -> stage 3 (1/4) -> dual-resolution fusion -> height
pooling. Maps are [T, B, C, H, W]; a convolution always reads zeros at padded columns, as it would past the image's
own edge, so every module that ends a chain of pointwise operations multiplies by the column mask.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr import kernels
from spikehtr.config import ModelConfig
from spikehtr.model.entry import Entry
from spikehtr.model.lif import make_neuron
from spikehtr.model.masking import MaskedGroupNorm, SharedDropout, column_mask, ramp, shrink, wide


class Conv2d(nn.Conv2d):
    """nn.Conv2d; pointwise ones, and those of an image's few channels, as a matrix product.

    Same weights, same result but for rounding. A library's convolution may sum in another order at another width,
    and the last digit decides spikes at the threshold; a matrix product on the CPU does not.
    """

    def forward(self, x: Tensor) -> Tensor:
        if kernels.fast(x):
            from spikehtr.kernels.network import conv2d

            return conv2d(self, x)
        pointwise = self.kernel_size == (1, 1)
        if self.groups > 1 or not ((pointwise and self.stride == (1, 1)) or self.in_channels <= 3):
            return super().forward(x)
        (high, wide), (down, right) = self.kernel_size, self.stride
        around = (high // 2, wide // 2)
        columns = (
            x.flatten(2) if pointwise else F.unfold(x, (high, wide), 1, around, (down, right))
        )  # [N, cin*k*k, H*W]
        y = torch.matmul(self.weight.flatten(1), columns).unflatten(2, (-(-x.shape[2] // down), -1))
        return y if self.bias is None else y + self.bias[:, None, None].to(y.dtype)


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
        self.conv = Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = MaskedGroupNorm(cout, groups_of_norm)
        drive = (self.drive or after) if self.first else self.norm
        fires = not bypass or self.first or config.encoder.neurons == "all"
        self.neuron = make_neuron(config, drive, burst, start_bias) if fires else nn.Identity()
        wanted = bypass and config.encoder.shortcuts
        self.alpha = nn.Parameter(torch.tensor(config.encoder.bypass_init)) if wanted else None

    def forward(self, x: Tensor, widths: Tensor, read: Tensor | None = None) -> Tensor:
        """x [T, B, cin, H, W], widths [B] of the output, `read` [B] of x where it is wider -> [T, B, cout, H', W']."""
        if not self.first and kernels.fast(x) and kernels.unwatched(self.norm, self.neuron):
            from spikehtr.kernels.network import spiking_conv

            return spiking_conv(self, x, widths)
        if self.first:
            fired = self._fire(x, widths if read is None else read)
            h = self.conv(fired.flatten(0, 1)).unflatten(0, x.shape[:2])  # [T, B, cout, H', W']
            return self.norm(h, widths) * column_mask(widths, h.shape[-1])
        h = self.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2])  # [T, B, cout, H', W']
        h = self.norm(h, widths)
        y = self.neuron(h)
        if self.alpha is not None:
            y = y + self.alpha * h
        return y * column_mask(widths, y.shape[-1])

    def _fire(self, x: Tensor, widths: Tensor) -> Tensor:
        """What `spikes_first` has before the convolution: same shape, 0 at padded columns (but for PW2's, which reads
        each column by itself)."""
        if self.drive is None:
            return self.neuron(x)
        if kernels.fast(x) and kernels.unwatched(self.drive, self.neuron):
            from spikehtr.kernels.network import group_norm

            return group_norm(self.drive, x, widths, self.neuron)
        return self.neuron(self.drive(x, widths)) * column_mask(widths, x.shape[-1])


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
        if self.norm is not None and kernels.fast(x) and kernels.unwatched(self):
            from spikehtr.kernels.network import conv_mix

            return conv_mix(self, x, widths)
        x = x + self.drop_path(self.dw(x, widths))
        y = self.pw1(x if self.norm is None else self.norm(x, widths), widths)
        return x + self.drop_path(self.pw2(self.dropout(y), widths))


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

    def forward(self, z: Tensor, widths: Tensor) -> Tensor:
        """z [T, B, C, H, W], widths [B] of the input -> [T, B, C, H/sh, W/sw]; a pool counts valid columns only."""
        if self.stride == (1, 1):
            return z
        if kernels.fast(z):
            from spikehtr.kernels import downmix

            return downmix.downmix(z, widths, self.rho, stride=self.stride)
        inside = column_mask(widths, z.shape[-1]).expand(z.shape[1], 1, *z.shape[-2:])  # [B, 1, H, W]
        flat = z.flatten(0, 1)
        total = F.avg_pool2d((z * inside).flatten(0, 1), self.stride)
        share = F.avg_pool2d(inside.to(z.dtype), self.stride)  # [B, 1, H/sh, W/sw]: part of the pool that is valid
        average = total.unflatten(0, z.shape[:2]) / share.clamp(min=1 / self.stride[1])
        if self.mode == "avg":
            return average
        lowest = torch.finfo(z.dtype).min
        masked = flat.masked_fill(~inside.repeat(z.shape[0], 1, 1, 1), lowest)
        largest = F.max_pool2d(masked, self.stride).unflatten(0, z.shape[:2])
        largest = largest.masked_fill(share == 0, 0.0)
        if self.rho_logit is None:
            return largest
        return average + self.rho * (largest - average)


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
        if kernels.fast(detail) and kernels.unwatched(self.down):
            from spikehtr.kernels import downmix

            # The lines below, in the same pass.
            return downmix.downmix(detail, widths2, self.down.rho, f3, gate, self.down.stride)
        detail = self.down(detail, widths2)  # [T, B, d, H/4, W/4]
        return f3 + torch.sigmoid(gate) * detail * column_mask(widths3, f3.shape[-1])


class HeightPool(nn.Module):
    """Collapse height by attention, nudged channel by channel towards the maximum (Eq. 10)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim // 4), nn.SiLU(), nn.Linear(dim // 4, 1, bias=False))
        self.nudge = nn.Linear(dim, dim)

    def forward(self, f: Tensor) -> Tensor:
        """[T, B, d, H', W'] -> [T, B, W', d]; each column by itself."""
        if kernels.fast(f):
            from spikehtr.kernels import heightpool

            attended, largest = heightpool.height_pool(f, self.score(f.movedim(2, 4)).squeeze(-1))
        else:
            f = f.permute(0, 1, 4, 3, 2)  # [T, B, W', H', d]
            omega = wide(self.score(f)).softmax(dim=3)  # [T, B, W', H', 1]
            attended, largest = (omega * f).sum(dim=3), f.amax(dim=3)  # [T, B, W', d]
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
        x = self.conv(images)
        if kernels.fast(x):
            from spikehtr.kernels.network import group_norm

            return group_norm(self.norm, x[None], widths, nn.SiLU()).squeeze(0)
        return F.silu(self.norm(x[None], widths)[0]) * column_mask(widths, x.shape[-1])


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
