"""What keeps padding out of a line's result: masks, norms that see valid positions only; and dropout."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.ops.masks import column_mask, shrink, valid_mask


class MaskedGroupNorm(nn.Module):
    """GroupNorm over a line's own columns (`ops.group_norm`): x [T, B, C, H, W], widths [B] -> same shape; values at
    padded columns are finite and mean nothing."""

    def __init__(self, channels: int, groups: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.groups = next(g for g in range(min(groups, channels), 0, -1) if channels % g == 0)
        self.eps = eps
        self.numbers = ops.Norm(self.groups, eps)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, widths: Tensor) -> Tensor:
        return ops.group_norm(x, widths, self.weight, self.bias, self.numbers)


class TokenNorm(nn.LayerNorm):
    """LayerNorm over channels, in fp32 whatever autocast says. Each token by itself, so padding cannot leak."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.numbers = ops.Norm(eps=self.eps)

    def forward(self, x: Tensor) -> Tensor:
        return ops.token_norm(x, self.weight, self.bias, self.numbers)


class SharedDropout(nn.Module):
    """Dropout on [T, B, ...] whose mask is one for all timesteps: a unit is silent for the whole line or not at all.

    `per` says what is dropped: units, a line's channels ([T, B, C, ...]), or whole lines' branches (stochastic depth).
    """

    def __init__(self, rate: float, per: Literal["unit", "channel", "line"] = "unit") -> None:
        super().__init__()
        self.rate, self.per = rate, per

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gain(x)
        return x if gain is None else x * gain.view(*gain.shape, *([1] * (x.dim() - 1 - gain.dim()))).to(x.dtype)

    @property
    def active_rate(self) -> float:
        """0 outside training."""
        return self.rate if self.training else 0.0

    def gain(self, x: Tensor) -> Tensor | None:
        """What `forward` multiplies x [T, B, ...] with: [B], [B, C] or x.shape[1:]; None if 1."""
        if self.active_rate == 0:
            return None
        axes = {"unit": x.dim(), "channel": 3, "line": 2}[self.per]
        keep = 1.0 - self.rate
        return (torch.rand(x.shape[1:axes], device=x.device) < keep).float() / keep


def ramp(last: float, count: int) -> list[float]:
    """`count` rates rising linearly from 0 to `last`: stochastic depth grows with the depth of the block."""
    return [last * i / max(count - 1, 1) for i in range(count)]


__all__ = ["MaskedGroupNorm", "SharedDropout", "TokenNorm", "column_mask", "ramp", "shrink", "valid_mask"]
