"""DownMix in one pass, and with it the gated sum of the dual-resolution fusion (Eq. 9) where that follows at once.

    pooled = Avg(z) + rho * (Max(z) - Avg(z)), over the valid columns of each SH x SW pool
    y = base + sigmoid(gate) * pooled

Maps lie in memory as [T, B, H, W, C]; a program takes BP pools of one row and BC channels. The backward pass reads z
again instead of keeping which value was largest: of equal ones the first, as in `F.max_pool2d`.
`ops.plain.maps.downmix` is the specification.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import channel_block, channels_last, channels_second, on_device

_POOLS = 16  # of a tile


@triton.jit
def _place(widths, B, H, W, C, SH: tl.constexpr, SW: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """Where this program's pools are: offsets into output and input, and how many valid columns each pool has."""
    blocks, across = tl.cdiv(C, BC), tl.cdiv(W // SW, BP)
    pid = tl.program_id(0)
    row = pid // blocks // across  # n * (H // SH) + y
    n, y = row // (H // SH), row % (H // SH)
    x = (pid // blocks % across) * BP + tl.arange(0, BP)
    c = (pid % blocks) * BC + tl.arange(0, BC)
    here = (x < W // SW)[:, None] & (c < C)[None, :]
    columns = tl.minimum(tl.maximum(tl.load(widths + n % B) - SW * x, 0), SW)[:, None]
    out = row.to(tl.int64) * (W // SW) * C + x[:, None] * C + c[None, :]
    source = (n.to(tl.int64) * H + SH * y) * W * C + SW * x[:, None] * C + c[None, :]
    return out, source, here, columns


@triton.jit
def _pool(z, source, here, columns, W, C, SH: tl.constexpr, SW: tl.constexpr):
    """Mean and maximum of each pool, 0 where all of it is padding."""
    whole = tl.zeros(source.shape, tl.float32)
    largest = tl.full(source.shape, -float("inf"), tl.float32)
    for i in tl.static_range(SH * SW):
        inside = here & (i % SW < columns)
        value = tl.load(z + source + (i // SW) * W * C + (i % SW) * C, mask=inside, other=0.0).to(tl.float32)
        whole += value
        largest = tl.where(inside, tl.maximum(largest, value), largest)
    average = whole / tl.maximum(SH * columns, 1).to(tl.float32)
    return average, tl.where(columns > 0, tl.where(here, largest, 0.0), 0.0)


@triton.jit
def downmix_forward(
    z, widths, rho, base, gate, out, B, H, W, C,
    GATED: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    at, source, here, columns = _place(widths, B, H, W, C, SH, SW, BP, BC)
    average, largest = _pool(z, source, here, columns, W, C, SH, SW)
    y = average + tl.load(rho) * (largest - average)
    if GATED:
        opened = 1.0 / (1.0 + tl.exp(-tl.load(gate + at, mask=here, other=0.0).to(tl.float32)))
        y = tl.load(base + at, mask=here, other=0.0).to(tl.float32) + opened * y
    tl.store(out + at, y.to(out.dtype.element_ty), mask=here)


@triton.jit
def downmix_backward(
    g, z, widths, rho, gate, dz, dgate, drho, B, H, W, C,
    GATED: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    at, source, here, columns = _place(widths, B, H, W, C, SH, SW, BP, BC)
    average, largest = _pool(z, source, here, columns, W, C, SH, SW)
    mix = tl.load(rho)
    grad = tl.load(g + at, mask=here, other=0.0).to(tl.float32)
    if GATED:
        opened = 1.0 / (1.0 + tl.exp(-tl.load(gate + at, mask=here, other=0.0).to(tl.float32)))
        pooled = average + mix * (largest - average)
        tl.store(dgate + at, (grad * pooled * opened * (1.0 - opened)).to(dgate.dtype.element_ty), mask=here)
        grad = grad * opened
    tl.store(drho + tl.program_id(0), tl.sum(grad * (largest - average)))
    every = grad * (1.0 - mix) / tl.maximum(SH * columns, 1).to(tl.float32)
    most = grad * mix  # goes to the first value that is the largest
    for i in tl.static_range(SH * SW):
        inside = here & (i % SW < columns)
        place = source + (i // SW) * W * C + (i % SW) * C
        value = tl.load(z + place, mask=inside, other=0.0).to(tl.float32)
        is_largest = inside & (value == largest)
        dvalue = tl.where(inside, every, 0.0) + tl.where(is_largest, most, 0.0)
        most = tl.where(is_largest, 0.0, most)
        tl.store(dz + place, dvalue.to(dz.dtype.element_ty), mask=here)


class _DownMix(torch.autograd.Function):
    """z [T, B, H, W, C] -> [T, B, H/sh, W/sw, C]; contiguous maps."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        widths: Tensor,
        rho: Tensor,
        base: Tensor | None,
        gate: Tensor | None,
        stride: tuple[int, int],
    ) -> Tensor:
        steps, batch, height, width, channels = z.shape
        shape = (steps, batch, height // stride[0], width // stride[1], channels)
        out = z.new_empty(shape, dtype=z.dtype if base is None else base.dtype)
        with on_device(z):
            launch(downmix_forward, _grid(z, stride),
                z, widths, rho, z if base is None else base, z if gate is None else gate, out,
                batch, height, width, channels, GATED=gate is not None, **_tile(channels, stride),
            )  # fmt: skip
        ctx.save_for_backward(z, widths, rho, gate)
        ctx.stride = stride
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, widths, rho, gate = ctx.saved_tensors
        g, stride = g.contiguous(), ctx.stride
        _, batch, height, width, channels = z.shape
        # A last row or column that is left over belongs to no pool.
        dz = torch.zeros_like(z) if height % stride[0] or width % stride[1] else torch.empty_like(z)
        dgate = None if gate is None else torch.empty_like(gate)
        drho = torch.empty(_grid(z, stride), device=z.device)
        with on_device(z):
            launch(downmix_backward, _grid(z, stride),
                g, z, widths, rho, z if gate is None else gate, dz, dz if dgate is None else dgate, drho,
                batch, height, width, channels, GATED=gate is not None, **_tile(channels, stride),
            )  # fmt: skip
        whole = drho.sum(dtype=torch.float64).to(rho.dtype) if ctx.needs_input_grad[2] else None
        return dz, None, whole, g if ctx.needs_input_grad[3] else None, dgate, None


def _tile(channels: int, stride: tuple[int, int]) -> dict[str, int]:
    return {"SH": stride[0], "SW": stride[1], "BP": _POOLS, "BC": channel_block(channels), "num_warps": 4}


def _grid(z: Tensor, stride: tuple[int, int]) -> tuple[int]:
    steps, batch, height, width, channels = z.shape
    across, blocks = -(-(width // stride[1]) // _POOLS), -(-channels // channel_block(channels))
    return (steps * batch * (height // stride[0]) * across * blocks,)


def downmix(
    z: Tensor,
    widths: Tensor,
    rho: float | Tensor,
    base: Tensor | None = None,
    gate: Tensor | None = None,
    stride: tuple[int, int] = (2, 2),
) -> Tensor:
    """z [T, B, C, H, W], widths [B] of z -> [T, B, C, H/sh, W/sw]; with `base`, `gate` of that shape, the gated sum.

    In z's dtype, or in base's.
    """
    part = rho.float() if isinstance(rho, Tensor) else torch.full((), rho, device=z.device)
    maps = [None if x is None else channels_last(x) for x in (z, base, gate)]
    return channels_second(_DownMix.apply(maps[0], widths.contiguous(), part, maps[1], maps[2], stride))
