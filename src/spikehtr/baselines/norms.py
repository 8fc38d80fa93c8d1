"""Normalisation over a line's own columns, so that neither padding nor other lines take part in it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.baselines.common import Columns


class ColumnNorm(nn.Module):
    """[B, C, H, W] -> same, 0 in the padding: each group of channels of a line has mean 0 and variance 1.

    `groups` as many as channels: instance normalisation. One: layer normalisation of the whole map.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, channels: int, groups: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.numbers = ops.Norm(groups, eps)
        for name, value in (("weight", torch.ones(channels)), ("bias", torch.zeros(channels))):
            if affine:
                self.register_parameter(name, nn.Parameter(value))
            else:  # what operators want, but nothing that is learnt or kept
                self.register_buffer(name, value, persistent=False)

    def forward(self, x: Tensor, own: Columns) -> Tensor:
        widths = own.widths_at(x.shape[-1])
        return own(ops.group_norm(x[None], widths, self.weight, self.bias, self.numbers)[0])


def instance_norm(channels: int, eps: float = 1e-5, affine: bool = False) -> ColumnNorm:
    return ColumnNorm(channels, channels, eps, affine)


def map_norm(channels: int, eps: float = 1e-5) -> ColumnNorm:
    """Layer normalisation over channels, rows and columns together, without parameters."""
    return ColumnNorm(channels, 1, eps)
