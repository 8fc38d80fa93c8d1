"""Sums over the first dimension, for the sums that the programs of a backward pass leave: short, always in one order.

A program takes a few columns and goes down all rows, many at a time. torch's own sum takes two to three times as long
for some hundred rows.
"""
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.kernels.layout import on_device

_ROWS, _COLUMNS, _WARPS = 128, 32, 4  # of a tile


@triton.jit(do_not_specialize=["rows"])
def column_sums(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    """x [rows, columns] -> out [columns], in fp32"""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(0, rows, BR):
        r = start + tl.arange(0, BR)
        mask = (r < rows)[:, None] & (c < columns)[None, :]
        total += tl.load(x + r.to(tl.int64)[:, None] * columns + c[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + c, tl.sum(total, axis=0), mask=c < columns)


def add_rows(x: Tensor) -> Tensor:
    """x [N, ...] -> its sum over N, [...], in fp32."""
    x = x.contiguous()
    out = torch.empty(x.shape[1:], device=x.device, dtype=torch.float32)
    tile = {"BR": _ROWS, "BC": _COLUMNS, "num_warps": _WARPS}
    with on_device(x):
        column_sums[(triton.cdiv(out.numel(), _COLUMNS),)](x, out, len(x), out.numel(), **tile)
    return out
