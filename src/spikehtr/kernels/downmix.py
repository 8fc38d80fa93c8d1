"""DownMix in one pass, and with it the gated sum of the dual-resolution fusion (Eq. 9) where that follows at once.

    pooled = Avg(z) + rho * (Max(z) - Avg(z)), over the valid columns of each 2 x 2 pool
    y = base + sigmoid(gate) * pooled

Maps lie in memory as [T, B, H, W, C]; a program takes BP pools of one row and BC channels. The backward pass reads z
again instead of keeping which value was largest: of equal ones the first, as in `F.max_pool2d`.
`model.encoder.DownMix` and `DualResolutionFusion` are the specification.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.kernels.layout import channel_block, channels_last, channels_second, on_device

_POOLS = 16  # of a tile


@triton.jit
def _place(widths, B, H, W, C, BP: tl.constexpr, BC: tl.constexpr):
    """Where this program's pools are: offsets into output and input, and which of them hold valid columns."""
    blocks, across = tl.cdiv(C, BC), tl.cdiv(W // 2, BP)
    pid = tl.program_id(0)
    row = pid // blocks // across  # n * (H // 2) + y
    n, y = row // (H // 2), row % (H // 2)
    x = (pid // blocks % across) * BP + tl.arange(0, BP)
    c = (pid % blocks) * BC + tl.arange(0, BC)
    here = (x < W // 2)[:, None] & (c < C)[None, :]
    width = tl.load(widths + n % B)
    left, right = here & (2 * x < width)[:, None], here & (2 * x + 1 < width)[:, None]
    out = row.to(tl.int64) * (W // 2) * C + x[:, None] * C + c[None, :]
    source = (n.to(tl.int64) * H + 2 * y) * W * C + 2 * x[:, None] * C + c[None, :]
    return out, source, here, left, right


@triton.jit
def _pool(z, source, left, right, W, C):
    """The four values of each pool (very low where they are padding), their mean and maximum, and how many count."""
    low = -float("inf")
    a = tl.load(z + source, mask=left, other=low).to(tl.float32)
    b = tl.load(z + source + C, mask=right, other=low).to(tl.float32)
    c = tl.load(z + source + W * C, mask=left, other=low).to(tl.float32)
    d = tl.load(z + source + W * C + C, mask=right, other=low).to(tl.float32)
    count = 2.0 * left.to(tl.float32) + 2.0 * right.to(tl.float32)
    whole = tl.where(left, a + c, 0.0) + tl.where(right, b + d, 0.0)
    average = whole / tl.maximum(count, 1.0)
    largest = tl.where(left, tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), 0.0)
    return a, b, c, d, average, largest, count


@triton.jit
def downmix_forward(
    z, widths, rho, base, gate, out, B, H, W, C, GATED: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    at, source, here, left, right = _place(widths, B, H, W, C, BP, BC)
    _, _, _, _, average, largest, _ = _pool(z, source, left, right, W, C)
    y = average + tl.load(rho) * (largest - average)
    if GATED:
        opened = 1.0 / (1.0 + tl.exp(-tl.load(gate + at, mask=here, other=0.0).to(tl.float32)))
        y = tl.load(base + at, mask=here, other=0.0).to(tl.float32) + opened * y
    tl.store(out + at, y.to(out.dtype.element_ty), mask=here)


@triton.jit
def downmix_backward(
    g, z, widths, rho, gate, dz, dgate, drho, B, H, W, C, GATED: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    at, source, here, left, right = _place(widths, B, H, W, C, BP, BC)
    a, b, c, d, average, largest, count = _pool(z, source, left, right, W, C)
    mix = tl.load(rho)
    grad = tl.load(g + at, mask=here, other=0.0).to(tl.float32)
    if GATED:
        opened = 1.0 / (1.0 + tl.exp(-tl.load(gate + at, mask=here, other=0.0).to(tl.float32)))
        pooled = average + mix * (largest - average)
        tl.store(dgate + at, (grad * pooled * opened * (1.0 - opened)).to(dgate.dtype.element_ty), mask=here)
        grad = grad * opened
    tl.store(drho + tl.program_id(0), tl.sum(grad * (largest - average)))
    every = grad * (1.0 - mix) / tl.maximum(count, 1.0)
    most = grad * mix
    is_a = left & (a == largest)
    is_b = right & (b == largest) & ~is_a
    is_c = left & (c == largest) & ~is_a & ~is_b
    is_d = right & (d == largest) & ~is_a & ~is_b & ~is_c
    kind = dz.dtype.element_ty
    da = tl.where(left, every, 0.0) + tl.where(is_a, most, 0.0)
    db = tl.where(right, every, 0.0) + tl.where(is_b, most, 0.0)
    dc = tl.where(left, every, 0.0) + tl.where(is_c, most, 0.0)
    dd = tl.where(right, every, 0.0) + tl.where(is_d, most, 0.0)
    tl.store(dz + source, da.to(kind), mask=here)
    tl.store(dz + source + C, db.to(kind), mask=here)
    tl.store(dz + source + W * C, dc.to(kind), mask=here)
    tl.store(dz + source + W * C + C, dd.to(kind), mask=here)


class _DownMix(torch.autograd.Function):
    """z [T, B, H, W, C] -> [T, B, H/2, W/2, C]; contiguous maps."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, widths: Tensor, rho: Tensor, base: Tensor | None, gate: Tensor | None) -> Tensor:
        steps, batch, height, width, channels = z.shape
        out = z.new_empty(
            (steps, batch, height // 2, width // 2, channels), dtype=z.dtype if base is None else base.dtype
        )
        with on_device(z):
            downmix_forward[_grid(z)](
                z, widths, rho, z if base is None else base, z if gate is None else gate, out,
                batch, height, width, channels, GATED=gate is not None, **_tile(channels),
            )  # fmt: skip
        ctx.save_for_backward(z, widths, rho, gate)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, widths, rho, gate = ctx.saved_tensors
        g = g.contiguous()
        _, batch, height, width, channels = z.shape
        # An odd last row or column belongs to no pool.
        dz = torch.zeros_like(z) if height % 2 or width % 2 else torch.empty_like(z)
        dgate = None if gate is None else torch.empty_like(gate)
        drho = torch.empty(_grid(z), device=z.device)
        with on_device(z):
            downmix_backward[_grid(z)](
                g, z, widths, rho, z if gate is None else gate, dz, dz if dgate is None else dgate, drho,
                batch, height, width, channels, GATED=gate is not None, **_tile(channels),
            )  # fmt: skip
        whole = drho.sum(dtype=torch.float64).to(rho.dtype) if ctx.needs_input_grad[2] else None
        return dz, None, whole, g if ctx.needs_input_grad[3] else None, dgate


def _tile(channels: int) -> dict[str, int]:
    return {"BP": _POOLS, "BC": channel_block(channels), "num_warps": 4}


def _grid(z: Tensor) -> tuple[int]:
    steps, batch, height, width, channels = z.shape
    across, blocks = -(-(width // 2) // _POOLS), -(-channels // channel_block(channels))
    return (steps * batch * (height // 2) * across * blocks,)


def downmix(
    z: Tensor, widths: Tensor, rho: float | Tensor, base: Tensor | None = None, gate: Tensor | None = None
) -> Tensor:
    """z [T, B, C, H, W], widths [B] of z -> [T, B, C, H/2, W/2]; with `base` and `gate` of that shape, the gated sum.

    In z's dtype, or in base's.
    """
    part = rho.float() if isinstance(rho, Tensor) else torch.full((), rho, device=z.device)
    maps = [None if x is None else channels_last(x) for x in (z, base, gate)]
    return channels_second(_DownMix.apply(maps[0], widths.contiguous(), part, maps[1], maps[2]))
