"""Height pooling in one read of the map: softmax of the scores, weighted sum and maximum over a column (Eq. 10).

The map lies in memory as [T, B, H, W, C]; a program takes BW columns at their full height, channels in blocks. The
backward pass reads the map once more. `model.encoder.HeightPool` is the specification.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.kernels.layout import channel_block, channels_last, on_device, power_of_two

_TILE = 2048  # numbers of a tile


@triton.jit
def _columns(scores, H, W, BH: tl.constexpr, BW: tl.constexpr):
    """This program's map, rows and columns, and the share [BH, BW] of each row in its column."""
    across = tl.cdiv(W, BW)
    n = tl.program_id(0) // across
    h, w = tl.arange(0, BH), (tl.program_id(0) % across) * BW + tl.arange(0, BW)
    inside = (h < H)[:, None] & (w < W)[None, :]
    score = tl.load(scores + n * H * W + h[:, None] * W + w[None, :], mask=inside, other=0.0).to(tl.float32)
    score = tl.where((h < H)[:, None], score, -float("inf"))
    share = tl.exp(score - tl.max(score, axis=0)[None, :])
    return n, h, w, inside, share / tl.sum(share, axis=0)[None, :]


@triton.jit
def heightpool_forward(f, scores, attended, largest, H, W, C, BH: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):
    n, h, w, inside, share = _columns(scores, H, W, BH, BW)
    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC)
        here = inside[:, :, None] & (c < C)[None, None, :]
        at = n.to(tl.int64) * H * W * C + (h[:, None] * W + w[None, :])[:, :, None] * C + c[None, None, :]
        x = tl.load(f + at, mask=here, other=0.0).to(tl.float32)
        put = (n * W + w).to(tl.int64)[:, None] * C + c[None, :]
        kept = (w < W)[:, None] & (c < C)[None, :]
        tl.store(attended + put, tl.sum(x * share[:, :, None], axis=0), mask=kept)
        tl.store(largest + put, tl.max(tl.where(here, x, -float("inf")), axis=0), mask=kept)


@triton.jit
def heightpool_backward(f, scores, da, dl, df, dscores, H, W, C, BH: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr):
    n, h, w, inside, share = _columns(scores, H, W, BH, BW)
    dshare = tl.zeros([BH, BW], tl.float32)
    for c0 in range(0, C, BC):
        c = c0 + tl.arange(0, BC)
        here = inside[:, :, None] & (c < C)[None, None, :]
        at = n.to(tl.int64) * H * W * C + (h[:, None] * W + w[None, :])[:, :, None] * C + c[None, None, :]
        x = tl.load(f + at, mask=here, other=0.0).to(tl.float32)
        put = (n * W + w).to(tl.int64)[:, None] * C + c[None, :]
        kept = (w < W)[:, None] & (c < C)[None, :]
        ga = tl.load(da + put, mask=kept, other=0.0)[None, :, :]
        gl = tl.load(dl + put, mask=kept, other=0.0)[None, :, :]
        most = (x == tl.max(tl.where(here, x, -float("inf")), axis=0)[None, :, :]) & here
        ties = tl.maximum(tl.sum(most.to(tl.float32), axis=0), 1.0)[None, :, :]  # equals share, as in torch.amax
        tl.store(df + at, (share[:, :, None] * ga + tl.where(most, gl / ties, 0.0)).to(df.dtype.element_ty), mask=here)
        dshare += tl.sum(x * ga, axis=2)
    ds = share * (dshare - tl.sum(share * dshare, axis=0)[None, :])
    tl.store(dscores + n * H * W + h[:, None] * W + w[None, :], ds.to(dscores.dtype.element_ty), mask=inside)


class _HeightPool(torch.autograd.Function):
    """f [T, B, H, W, C], scores [T, B, H, W] -> weighted sum and maximum over H, each [T, B, W, C] in fp32."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        steps, batch, height, width, channels = f.shape
        attended, largest = (torch.empty(steps, batch, width, channels, device=f.device) for _ in range(2))
        with on_device(f):
            heightpool_forward[_grid(f)](
                f, scores, attended, largest, height, width, channels, **_tile(height, channels)
            )
        ctx.save_for_backward(f, scores)
        return attended, largest

    @staticmethod
    def backward(ctx: Any, da: Tensor, dl: Tensor) -> tuple[Tensor, Tensor]:
        f, scores = ctx.saved_tensors
        da, dl = da.contiguous(), dl.contiguous()
        df, dscores = torch.empty_like(f), torch.empty_like(scores)
        _, _, height, width, channels = f.shape
        with on_device(f):
            heightpool_backward[_grid(f)](
                f, scores, da, dl, df, dscores, height, width, channels, **_tile(height, channels)
            )
        return df, dscores


def _tile(height: int, channels: int) -> dict[str, int]:
    rows, block = power_of_two(height), channel_block(channels)
    return {"BH": rows, "BW": max(1, _TILE // (rows * block)), "BC": block, "num_warps": 4}


def _grid(f: Tensor) -> tuple[int]:
    steps, batch, height, width, channels = f.shape
    return (steps * batch * -(-width // _tile(height, channels)["BW"]),)


def height_pool(f: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """f [T, B, C, H, W], scores [T, B, H, W] -> attended and largest, each [T, B, W, C] in fp32."""
    attended, largest = _HeightPool.apply(channels_last(f), scores.contiguous())
    return attended, largest
