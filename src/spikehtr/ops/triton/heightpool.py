"""Height pooling in one read of the map: softmax of the scores, weighted sum and maximum over a column (Eq. 10).

The map lies in memory as [T, B, H, W, C]; a program takes BW columns and walks down their rows, so that no lane waits
for another. The backward pass walks twice: to count the rows that share the maximum, then, from the cache, for the
gradients. `ops.plain.maps.height_pool` is the specification.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import channel_block, on_device, power_of_two

_COLUMNS = 8  # of a tile


@triton.jit
def _softmax(scores, n, w, H, W):
    """Of each column's scores: the largest, and the sum of exp(score - largest)."""
    top = tl.load(scores + n * H * W + w, mask=w < W, other=0.0).to(tl.float32)
    for h in range(1, H):
        top = tl.maximum(top, tl.load(scores + (n * H + h) * W + w, mask=w < W, other=0.0).to(tl.float32))
    total = tl.zeros_like(top)
    for h in range(H):
        total += tl.exp(tl.load(scores + (n * H + h) * W + w, mask=w < W, other=0.0).to(tl.float32) - top)
    return top, total


@triton.jit
def heightpool_forward(f, scores, attended, largest, H, W, C, BW: tl.constexpr, BC: tl.constexpr):
    across = tl.cdiv(W, BW)
    n = tl.program_id(0) // across
    w, c = (tl.program_id(0) % across) * BW + tl.arange(0, BW), tl.program_id(1) * BC + tl.arange(0, BC)
    here = (w < W)[:, None] & (c < C)[None, :]
    top, total = _softmax(scores, n, w, H, W)
    f += n.to(tl.int64) * H * W * C
    mean = tl.zeros([BW, BC], tl.float32)
    most = tl.full([BW, BC], -float("inf"), tl.float32)
    for h in range(H):
        x = tl.load(f + (h * W + w)[:, None] * C + c[None, :], mask=here, other=0.0).to(tl.float32)
        score = tl.load(scores + (n * H + h) * W + w, mask=w < W, other=0.0).to(tl.float32)
        mean += (tl.exp(score - top) / total)[:, None] * x
        most = tl.maximum(most, x)
    put = (n * W + w).to(tl.int64)[:, None] * C + c[None, :]
    tl.store(attended + put, mean, mask=here)
    tl.store(largest + put, most, mask=here)


@triton.jit
def heightpool_backward(
    f, scores, largest, da, dl, df, dscores, H, W, C, BH: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr
):
    across = tl.cdiv(W, BW)
    n = tl.program_id(0) // across
    w = (tl.program_id(0) % across) * BW + tl.arange(0, BW)
    row = tl.arange(0, BH)[:, None]
    top, total = _softmax(scores, n, w, H, W)
    start = n.to(tl.int64) * H * W * C
    dshare = tl.zeros([BH, BW], tl.float32)
    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC)
        here = (w < W)[:, None] & (c < C)[None, :]
        put = (n * W + w).to(tl.int64)[:, None] * C + c[None, :]
        ga, gl = tl.load(da + put, mask=here, other=0.0), tl.load(dl + put, mask=here, other=0.0)
        most = tl.load(largest + put, mask=here, other=0.0)
        ties = tl.zeros([BW, BC], tl.float32)
        for h in range(H):
            x = tl.load(f + start + (h * W + w)[:, None] * C + c[None, :], mask=here, other=0.0).to(tl.float32)
            ties += (x == most).to(tl.float32)
        gl = gl / tl.maximum(ties, 1.0)  # equals share, as in torch.amax
        for h in range(H):
            at = start + (h * W + w)[:, None] * C + c[None, :]
            x = tl.load(f + at, mask=here, other=0.0).to(tl.float32)
            score = tl.load(scores + (n * H + h) * W + w, mask=w < W, other=0.0).to(tl.float32)
            share = tl.exp(score - top) / total
            dx = share[:, None] * ga + tl.where(x == most, gl, 0.0)
            tl.store(df + at, dx.to(df.dtype.element_ty), mask=here)
            dshare += tl.where(row == h, tl.sum(x * ga, axis=1)[None, :], 0.0)
    inside = (row < H) & (w < W)[None, :]
    at = (n * H + row) * W + w[None, :]
    score = tl.load(scores + at, mask=inside, other=0.0).to(tl.float32)
    share = tl.where(inside, tl.exp(score - top[None, :]) / total[None, :], 0.0)
    ds = share * (dshare - tl.sum(share * dshare, axis=0)[None, :])
    tl.store(dscores + at, ds.to(dscores.dtype.element_ty), mask=inside)


class _HeightPool(torch.autograd.Function):
    """f [T, B, H, W, C], scores [T, B, H, W] -> weighted sum and maximum over H, each [T, B, W, C] in fp32."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        steps, batch, height, width, channels = f.shape
        attended, largest = (torch.empty(steps, batch, width, channels, device=f.device) for _ in range(2))
        block = channel_block(channels)
        grid = (steps * batch * -(-width // _COLUMNS), -(-channels // block))
        tile = {"BW": _COLUMNS, "BC": block, "num_warps": 2}
        with on_device(f):
            launch(heightpool_forward, grid, f, scores, attended, largest, height, width, channels, **tile)
        ctx.save_for_backward(f, scores, largest)
        return attended, largest

    @staticmethod
    def backward(ctx: Any, da: Tensor, dl: Tensor) -> tuple[Tensor, Tensor]:
        f, scores, largest = ctx.saved_tensors
        da, dl = da.contiguous(), dl.contiguous()
        df, dscores = torch.empty_like(f), torch.empty_like(scores)
        steps, batch, height, width, channels = f.shape
        grid = (steps * batch * -(-width // _COLUMNS),)
        tile = {"BH": power_of_two(height), "BW": _COLUMNS, "BC": channel_block(channels), "num_warps": 2}
        with on_device(f):
            launch(heightpool_backward, grid, f, scores, largest, da, dl, df, dscores, height, width, channels, **tile)
        return df, dscores


def height_pool(f: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """f [T, B, H, W, C], scores [T, B, H, W, 1] -> attended and largest, each [T, B, W, C] in fp32."""
    attended, largest = _HeightPool.apply(f.contiguous(), scores.squeeze(-1).contiguous())
    return attended, largest
