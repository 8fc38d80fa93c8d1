"""Sums over the first dimension, always in one order: of what the programs of a backward pass leave, and of gradients
for a bias.

A program takes a few columns and goes down a stretch of rows, many at a time; of tall tensors, the stretches' sums are
added up in turn.
"""
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device

_ROWS, _COLUMNS, _WARPS = 128, 32, 4  # of a tile
_TALL, _STRETCH = 2048, 512  # rows that a program goes down at most, and of something taller


@triton.jit(do_not_specialize=["rows", "stretch"])
def column_sums(x, out, rows, columns, stretch, BR: tl.constexpr, BC: tl.constexpr):
    """x [rows, columns] -> out [stretches, columns], in fp32"""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    first = tl.program_id(1) * stretch
    end = tl.minimum(first + stretch, rows)
    total = tl.zeros([BR, BC], tl.float32)
    for start in range(first, end, BR):
        r = start + tl.arange(0, BR)
        mask = (r < end)[:, None] & (c < columns)[None, :]
        total += tl.load(x + r.to(tl.int64)[:, None] * columns + c[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + tl.program_id(1) * columns + c, tl.sum(total, axis=0), mask=c < columns)


def add_rows(x: Tensor) -> Tensor:
    """x [N, ...] -> its sum over N, [...], in fp32."""
    x, rows = x.contiguous(), len(x)
    stretch = rows if rows <= _TALL else _STRETCH
    out = torch.empty((triton.cdiv(rows, stretch), *x.shape[1:]), device=x.device, dtype=torch.float32)
    columns = out[0].numel()
    with on_device(x):
        launch(
            column_sums,
            (triton.cdiv(columns, _COLUMNS), len(out)),
            x,
            out,
            rows,
            columns,
            stretch,
            BR=_ROWS,
            BC=_COLUMNS,
            num_warps=_WARPS,
        )
    return out[0] if len(out) == 1 else add_rows(out)
