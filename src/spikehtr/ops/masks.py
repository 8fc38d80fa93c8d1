"""What keeps padding out of a line's result, and the precision that sums are taken in."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_fp32(x: Tensor) -> Tensor:
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
