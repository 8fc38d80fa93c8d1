"""InkCoder's evidence in six short passes over single-channel maps, instead of some 150 (Appendix A).

    grey -> smooth -> (coarse edges) -> edges -> intensity and edge proxies -> evidence of every step

A program takes a tile of BH rows and BW columns. Every operator clamps its neighbours to the line's own columns, which
is what `extend` and replicated borders come to. `model.inkcoder` is the specification.
"""
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.config import InkCoderConfig
from spikehtr.kernels.layout import on_device
from spikehtr.kernels.quantile import quantiles

_ROWS, _COLUMNS = 16, 32  # of a tile
_EPS = 1e-6
_NO_CONTRAST = 1e-3


@triton.jit
def _place(widths, H, W, BH: tl.constexpr, BW: tl.constexpr):
    """This program's line, its rows and columns, where they are inside the map, the line's width and first pixel."""
    across = tl.cdiv(W, BW)
    b = tl.program_id(0)
    y = (tl.program_id(1) // across) * BH + tl.arange(0, BH)[:, None]
    x = (tl.program_id(1) % across) * BW + tl.arange(0, BW)[None, :]
    return b, y, x, (y < H) & (x < W), tl.load(widths + b).to(tl.int32), b.to(tl.int64) * H * W


@triton.jit
def _at(a, y, x, W, H, width):
    """Pixels of a line at (y, x), those outside it the nearest inside."""
    y = tl.minimum(tl.maximum(y, 0), H - 1)
    x = tl.minimum(tl.maximum(x, 0), width - 1)
    return tl.load(a + y * W + x)


@triton.jit
def _soft(a, kappa, tau):
    return 1.0 / (1.0 + tl.exp(-kappa * (a - tau)))


@triton.jit
def box(a, widths, out, H, W, SIDE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """Mean over a SIDE x SIDE box."""
    _, y, x, here, width, first = _place(widths, H, W, BH, BW)
    total = tl.zeros([BH, BW], tl.float32)
    for dy in range(-(SIDE // 2), SIDE // 2 + 1):
        for dx in range(-(SIDE // 2), SIDE // 2 + 1):
            total += _at(a + first, y + dy, x + dx, W, H, width)
    tl.store(out + first + y * W + x, total / (SIDE * SIDE), mask=here)


@triton.jit
def _mean(a, i, j, H, W, width, S: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """A pixel of the S-times smaller line."""
    total = tl.zeros([BH, BW], tl.float32)
    for dy in range(S):
        for dx in range(S):
            total += _at(a, S * i + dy, S * j + dx, W, H, width)
    return total / (S * S)


@triton.jit
def coarse_edges(a, widths, out, H, W, h, w, eps, S: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """Sobel magnitude of the S-times smaller line, [B, h, w]."""
    b, i, j, here, width, _ = _place(widths, h, w, BH, BW)
    a += b.to(tl.int64) * H * W
    narrow = (width + S - 1) // S
    up, down = tl.maximum(i - 1, 0), tl.minimum(i + 1, h - 1)
    left, mid = tl.minimum(tl.maximum(j - 1, 0), narrow - 1), tl.minimum(j, narrow - 1)
    right = tl.minimum(j + 1, narrow - 1)
    nw, ne = _mean(a, up, left, H, W, width, S, BH, BW), _mean(a, up, right, H, W, width, S, BH, BW)
    sw, se = _mean(a, down, left, H, W, width, S, BH, BW), _mean(a, down, right, H, W, width, S, BH, BW)
    n, s = _mean(a, up, mid, H, W, width, S, BH, BW), _mean(a, down, mid, H, W, width, S, BH, BW)
    west, east = _mean(a, i, left, H, W, width, S, BH, BW), _mean(a, i, right, H, W, width, S, BH, BW)
    gx = ((ne - nw) / 2 + 2 * ((east - west) / 2) + (se - sw) / 2) / 4
    gy = ((sw - nw) / 2 + 2 * ((s - n) / 2) + (se - ne) / 2) / 4
    tl.store(out + b.to(tl.int64) * h * w + i * w + j, tl.sqrt(gx * gx + gy * gy + eps * eps), mask=here)


@triton.jit
def fine_edges(a, small, widths, out, H, W, h, w, eps, S: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """The larger of the Sobel magnitude and the coarse one, enlarged bilinearly."""
    b, y, x, here, width, first = _place(widths, H, W, BH, BW)
    a += first
    nw, ne = _at(a, y - 1, x - 1, W, H, width), _at(a, y - 1, x + 1, W, H, width)
    sw, se = _at(a, y + 1, x - 1, W, H, width), _at(a, y + 1, x + 1, W, H, width)
    n, s = _at(a, y - 1, x, W, H, width), _at(a, y + 1, x, W, H, width)
    west, east = _at(a, y, x - 1, W, H, width), _at(a, y, x + 1, W, H, width)
    gx = ((ne - nw) / 2 + 2 * ((east - west) / 2) + (se - sw) / 2) / 4
    gy = ((sw - nw) / 2 + 2 * ((s - n) / 2) + (se - ne) / 2) / 4
    fine = tl.sqrt(gx * gx + gy * gy + eps * eps)
    narrow = (width + S - 1) // S
    small += b.to(tl.int64) * h * w
    v, u = tl.maximum((y + 0.5) / S - 0.5, 0.0), tl.maximum((x + 0.5) / S - 0.5, 0.0)
    i, j = v.to(tl.int32), u.to(tl.int32)
    v, u = v - i, u - j
    top = _at(small, i, j, w, h, narrow) * (1 - u) + _at(small, i, j + 1, w, h, narrow) * u
    bottom = _at(small, i + 1, j, w, h, narrow) * (1 - u) + _at(small, i + 1, j + 1, w, h, narrow) * u
    tl.store(out + first + y * W + x, tl.maximum(fine, top * (1 - v) + bottom * v), mask=here)


@triton.jit
def _ink(a, low, high, eps, least):
    """Q of Eq. 22."""
    share = tl.minimum(tl.maximum((a - low) / (high - low + eps), 0.0), 1.0)
    return tl.where(high - low > least, 1.0 - share, 0.0)


@triton.jit
def proxies(
    smooth, edges, low, high, most, widths, intensity, edge, H, W, eps, least,
    kappa_int, tau_int, kappa_edge, tau_edge, SIDE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """I_int (Eq. 25) and I_edge (Eqs. 26-28)."""
    b, y, x, here, width, first = _place(widths, H, W, BH, BW)
    lowest, highest, largest = tl.load(low + b), tl.load(high + b), tl.load(most + b)
    total = tl.zeros([BH, BW], tl.float32)
    for dy in range(-(SIDE // 2), SIDE // 2 + 1):
        for dx in range(-(SIDE // 2), SIDE // 2 + 1):
            ink = _ink(_at(smooth + first, y + dy, x + dx, W, H, width), lowest, highest, eps, least)
            bold = tl.minimum(_at(edges + first, y + dy, x + dx, W, H, width) / (largest + eps), 1.0)
            total += bold * _soft(ink, kappa_int, tau_int)
    ink = _ink(_at(smooth + first, y, x, W, H, width), lowest, highest, eps, least)
    bold = tl.minimum(_at(edges + first, y, x, W, H, width) / (largest + eps), 1.0)
    supported = bold * _soft(ink, kappa_int, tau_int)
    tl.store(intensity + first + y * W + x, ink, mask=here)
    coherent = _soft(total / (SIDE * SIDE), kappa_edge, tau_edge)
    tl.store(edge + first + y * W + x, supported * coherent, mask=here)


@triton.jit
def fuse(
    intensity, edge, weight, widths, out, H, W, size, kappa, tau, gamma,
    SIDE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """D_t (Eqs. 3, 30) of the step in the grid's third axis."""
    _, y, x, here, width, first = _place(widths, H, W, BH, BW)
    t = tl.program_id(2)
    part = tl.load(weight + t)
    total = tl.zeros([BH, BW], tl.float32)
    for dy in range(-(SIDE // 2), SIDE // 2 + 1):
        for dx in range(-(SIDE // 2), SIDE // 2 + 1):
            i = _at(intensity + first, y + dy, x + dx, W, H, width)
            e = _at(edge + first, y + dy, x + dx, W, H, width)
            total += tl.minimum(tl.maximum((1 - part) * i + part * e, 0.0), 1.0)
    i = _at(intensity + first, y, x, W, H, width)
    e = _at(edge + first, y, x, W, H, width)
    raw = tl.minimum(tl.maximum((1 - part) * i + part * e, 0.0), 1.0)
    keep = tl.exp(gamma * tl.log(_soft(total / (SIDE * SIDE), kappa, tau)))
    tl.store(out + t * tl.cast(size, tl.int64) + first + y * W + x, raw * keep, mask=here)


def _tiles(height: int, width: int) -> int:
    return triton.cdiv(height, _ROWS) * triton.cdiv(width, _COLUMNS)


@torch.no_grad()
def evidence(gray: Tensor, widths: Tensor, weight: Tensor, c: InkCoderConfig) -> Tensor:
    """gray [B, 1, H, W] in fp32, widths [B], weight w_t [T] -> D_t [T, B, 1, H, W]; its padding means nothing."""
    gray, widths = gray.contiguous(), widths.contiguous()
    batch, _, H, W = gray.shape
    s = c.edge_scale
    h, w = -(-H // s), -(-W // s)
    grid, small_grid = (batch, _tiles(H, W)), (batch, _tiles(h, w))
    tile = {"BH": _ROWS, "BW": _COLUMNS, "num_warps": 4}
    smooth, edges, intensity, edge = (torch.empty_like(gray) for _ in range(4))
    small = gray.new_empty(batch, h, w)
    out = gray.new_empty(len(weight), *gray.shape)
    with on_device(gray):
        box[grid](gray, widths, smooth, H, W, SIDE=c.blur, **tile)
        coarse_edges[small_grid](smooth, widths, small, H, W, h, w, _EPS, S=s, **tile)
        fine_edges[grid](smooth, small, widths, edges, H, W, h, w, _EPS, S=s, **tile)
        low, high = quantiles(smooth, widths, c.q_low, c.q_high)
        (most,) = quantiles(edges, widths, c.q_edge)
        proxies[grid](
            smooth, edges, low.contiguous(), high.contiguous(), most, widths, intensity, edge, H, W, _EPS, _NO_CONTRAST,
            c.kappa_int, c.tau_int, c.kappa_edge, c.tau_edge, SIDE=c.density, **tile,
        )  # fmt: skip
        fuse[(*grid, len(weight))](
            intensity, edge, weight.contiguous(), widths, out, H, W, gray.numel(),
            c.kappa_density, c.tau_density, c.gamma_density, SIDE=c.density, **tile,
        )  # fmt: skip
    return out
