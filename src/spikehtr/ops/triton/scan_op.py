"""The leaky scan as a differentiable function; see `scan.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikehtr.ops.triton import scan as device
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device

_CHANNELS = 32  # of a program: few, so that there are many programs


def _grid(steps: int, batch: int, dim: int) -> tuple[int, int, int]:
    return steps * batch, -(-(dim - dim // 2) // _CHANNELS), 2


class _LeakyScan(torch.autograd.Function):
    """driven [T, B, L, 2 d], lengths [B] -> [T, B, L, d]"""

    @staticmethod
    def forward(ctx: Any, driven: Tensor, lengths: Tensor, dtype: torch.dtype) -> Tensor:
        steps, batch, length, both = driven.shape
        dim = both // 2
        u = driven.new_empty((steps, batch, length, dim), dtype=dtype)
        sizes = batch, length, dim, dim // 2
        with on_device(driven):
            launch(device.scan, _grid(steps, batch, dim), driven, lengths, u, *sizes, BC=_CHANNELS, num_warps=1)
        ctx.save_for_backward(driven, lengths, u)
        return u

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        driven, lengths, u = ctx.saved_tensors
        steps, batch, length, dim = u.shape
        ddriven = torch.empty_like(driven)
        tensors = driven, lengths, u, grad.contiguous(), ddriven
        sizes = batch, length, dim, dim // 2
        with on_device(driven):
            launch(device.scan_back, _grid(steps, batch, dim), *tensors, *sizes, BC=_CHANNELS, num_warps=1)
        return ddriven, None, None


def leaky_scan(driven: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Values and leaks side by side [T, B, L, 2 d], mask [B, L] -> membranes [T, B, L, d]."""
    u: Tensor = _LeakyScan.apply(driven.contiguous(), mask.sum(1), dtype)  # type: ignore[no-untyped-call]
    return u
