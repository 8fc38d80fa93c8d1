"""What keeps padding out of a line's result: masks, norms that see valid positions only; and random masks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from spikehtr import kernels


def wide(x: Tensor) -> Tensor:
    """x in fp32, or as it is if it is wider: what norms, membranes, sums over time and losses are computed in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def valid_mask(lengths: Tensor, size: int) -> Tensor:
    """[B] lengths -> [B, size], True at positions before each length."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def column_mask(widths: Tensor, size: int) -> Tensor:
    """[B] widths -> [B, 1, 1, size], to multiply or select the columns of maps [..., B, C, H, size]."""
    return valid_mask(widths, size)[:, None, None, :]


def shrink(widths: Tensor, stride: int) -> Tensor:
    """Valid width after a strided step; a column that is left over counts."""
    return (widths + stride - 1) // stride


class MaskedGroupNorm(nn.Module):
    """GroupNorm whose mean and variance are taken over a line's own columns.

    x [T, B, C, H, W], widths [B] -> same shape, in fp32; each (t, b, group) is normalised by itself. Values at padded
    columns are finite and mean nothing. The two sums run in float64: their result then does not hang on the order of
    the terms, which changes with the padded width. In fp32 that last digit would decide spikes at the threshold.
    """

    def __init__(self, channels: int, groups: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.groups = next(g for g in range(min(groups, channels), 0, -1) if channels % g == 0)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, widths: Tensor) -> Tensor:
        if kernels.fast(x):
            from spikehtr.kernels.network import group_norm

            return group_norm(self, x, widths)
        x = wide(x)
        grouped = (x * column_mask(widths, x.shape[-1])).unflatten(2, (self.groups, -1))  # [T, B, G, C/G, H, W]
        count = widths[:, None] * (grouped.shape[3] * grouped.shape[4])  # [B, 1]
        mean = grouped.sum((3, 4, 5), dtype=torch.float64) / count  # [T, B, G]
        variance = grouped.square().sum((3, 4, 5), dtype=torch.float64) / count - mean.square()
        rstd = torch.rsqrt(variance.clamp(min=0) + self.eps)
        spread = grouped.shape[3]  # channels a group
        scale = rstd.repeat_interleave(spread, dim=2) * self.weight  # [T, B, C]
        shift = self.bias - mean.repeat_interleave(spread, dim=2) * scale
        return x * scale.to(x.dtype)[..., None, None] + shift.to(x.dtype)[..., None, None]


class TokenNorm(nn.LayerNorm):
    """LayerNorm over channels, in fp32 whatever autocast says. Each token by itself, so padding cannot leak."""

    def forward(self, x: Tensor) -> Tensor:
        if kernels.fast(x):
            from spikehtr.kernels.network import token_norm

            return token_norm(self, x)
        return super().forward(wide(x))


class SharedDropout(nn.Module):
    """Dropout on [T, B, ...] whose mask is one for all timesteps: a unit is silent for the whole line or not at all.

    `per` says what is dropped: units, a line's channels ([T, B, C, ...]), or whole lines' branches (stochastic depth).
    """

    def __init__(self, rate: float, per: Literal["unit", "channel", "line"] = "unit") -> None:
        super().__init__()
        self.rate, self.per = rate, per

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return x
        gain = self._draw(x)
        return x * gain.view(*gain.shape, *([1] * (x.dim() - 1 - gain.dim()))).to(x.dtype)

    @property
    def active(self) -> bool:
        return self.training and self.rate > 0.0

    def gain(self, x: Tensor) -> Tensor | None:
        """What `forward` would multiply x [T, B, ...] with, the same draw: [B], [B, C] or x.shape[1:]; None if 1."""
        return self._draw(x) if self.active else None

    def _draw(self, x: Tensor) -> Tensor:
        axes = {"unit": x.dim(), "channel": 3, "line": 2}[self.per]
        keep = 1.0 - self.rate
        return (torch.rand(x.shape[1:axes], device=x.device) < keep).float() / keep

    def extra_repr(self) -> str:
        return f"rate={self.rate:g}, per={self.per}"


def ramp(last: float, count: int) -> list[float]:
    """`count` rates rising linearly from 0 to `last`: stochastic depth grows with the depth of the block."""
    return [last * i / max(count - 1, 1) for i in range(count)]


def span_mask(lengths: Tensor, size: int, ratio: float, span: int) -> Tensor:
    """Which tokens training hides, [B] -> [B, size]: floor(ratio L / span) spans a line, which may overlap."""
    most = max(1, int(size * ratio) // span)
    spans = (lengths * ratio).long() // span  # [B], of each line
    room = (lengths - span).clamp(min=0) + 1  # [B], places a span can begin at
    starts = (torch.rand(len(lengths), most, device=lengths.device) * room[:, None]).long()  # [B, most]
    starts = torch.where(valid_mask(spans, most), starts, size)  # no more than the line's own number
    place = torch.arange(size, device=lengths.device)[:, None]  # [size, 1]
    hidden = (place >= starts[:, None]) & (place < starts[:, None] + span)  # [B, size, most]
    return hidden.any(-1) & valid_mask(lengths, size)


def hide_spans(tokens: Tensor, lengths: Tensor, token: Tensor, ratio: float, span: int) -> Tensor:
    """Spans of tokens [..., B, L, d], the same at every step, replaced by a learned one [d]."""
    hidden = span_mask(lengths, tokens.shape[-2], ratio, span)[..., None]
    return torch.where(hidden, token.to(tokens.dtype), tokens)
