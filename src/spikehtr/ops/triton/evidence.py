"""InkCoder's evidence in seven short passes over single-channel maps, instead of some 150 (Appendix A).

    grey -> smooth -> (coarse edges) -> edges -> ink and supported edges -> coherent edges -> evidence of every step

A program takes BW columns and walks down BH rows: what it has read of the rows above stays in registers, so that a box
of SIDE x SIDE pixels costs SIDE loads a pixel. Every operator clamps its neighbours to the line's own columns, which
is what `extend` and replicated borders come to. `ops.plain.ink` is the specification.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.settings import Ink
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device
from spikehtr.ops.triton.quantile import quantiles_of_two

_ROWS, _COLUMNS, _WARPS = 16, 256, 4  # of a program
_PIXELS = 1024  # of a program that looks at no neighbours
_EPS = 1e-6
_NO_CONTRAST = 1e-3


@triton.jit
def _place(widths, H, W, BH: tl.constexpr, BW: tl.constexpr):
    """This program's line, first row and the row past its last, columns, the line's width and first pixel."""
    across = tl.cdiv(W, BW)
    b = tl.program_id(0)
    top = (tl.program_id(1) // across) * BH
    x = (tl.program_id(1) % across) * BW + tl.arange(0, BW)
    return b, top, tl.minimum(top + BH, H), x, tl.load(widths + b).to(tl.int32), b.to(tl.int64) * H * W


@triton.jit
def _at(a, y, x, W, H, width):
    """Pixels of a line at row y and columns x, those outside it the nearest inside."""
    y = tl.minimum(tl.maximum(y, 0), H - 1)
    x = tl.minimum(tl.maximum(x, 0), width - 1)
    return tl.load(a + y * W + x)


@triton.jit
def _soft(a, kappa, tau):
    return 1.0 / (1.0 + tl.exp(-kappa * (a - tau)))


@triton.jit
def _across(a, y, x, W, H, width, SIDE: tl.constexpr):
    """Sum over SIDE columns around x."""
    total = _at(a, y, x - SIDE // 2, W, H, width)
    for i in tl.static_range(1, SIDE):
        total += _at(a, y, x - SIDE // 2 + i, W, H, width)
    return total


@triton.jit
def _total(rows, SIDE: tl.constexpr):
    total = rows[0]
    for i in tl.static_range(1, SIDE):
        total += rows[i]
    return total


@triton.jit
def box(
    a, widths, out, H, W, kappa, tau, COHERENT: tl.constexpr, SIDE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr
):  # fmt: skip
    """Mean over a SIDE x SIDE box; or I_edge (Eq. 28): supported edges, where many are near."""
    _, top, end, x, width, first = _place(widths, H, W, BH, BW)
    a += first
    rows = ()
    for i in tl.static_range(SIDE - 1):
        rows = rows + (_across(a, top - SIDE // 2 + i, x, W, H, width, SIDE),)
    for y in range(top, end):
        box_rows = rows + (_across(a, y + SIDE // 2, x, W, H, width, SIDE),)
        value = _total(box_rows, SIDE) / (SIDE * SIDE)
        if COHERENT:
            value = _at(a, y, x, W, H, width) * _soft(value, kappa, tau)
        tl.store(out + first + y * W + x, value, mask=x < W)
        rows = box_rows[1:]


@triton.jit
def _sobel(up, mid, down, eps):
    """Magnitude of the gradient, of three rows of three pixels each."""
    gx = ((up[2] - up[0]) / 2 + 2 * ((mid[2] - mid[0]) / 2) + (down[2] - down[0]) / 2) / 4
    gy = ((down[0] - up[0]) / 2 + 2 * ((down[1] - up[1]) / 2) + (down[2] - up[2]) / 2) / 4
    return tl.sqrt(gx * gx + gy * gy + eps * eps)


@triton.jit
def _mean(a, i, j, H, W, width, S: tl.constexpr):
    """Pixels of the S-times smaller line."""
    total = _at(a, S * i, S * j, W, H, width)
    for k in tl.static_range(1, S * S):
        total += _at(a, S * i + k // S, S * j + k % S, W, H, width)
    return total / (S * S)


@triton.jit
def _coarse_three(a, i, j, H, W, h, width, S: tl.constexpr):
    """The smaller line's row i at columns left of j, j and right of j."""
    narrow = (width + S - 1) // S
    i = tl.minimum(tl.maximum(i, 0), h - 1)
    left, right = tl.minimum(tl.maximum(j - 1, 0), narrow - 1), tl.minimum(j + 1, narrow - 1)
    mid = tl.minimum(j, narrow - 1)
    return (
        _mean(a, i, left, H, W, width, S),
        _mean(a, i, mid, H, W, width, S),
        _mean(a, i, right, H, W, width, S),
    )


@triton.jit
def coarse_edges(a, widths, out, H, W, h, w, eps, S: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """Sobel magnitude of the S-times smaller line, [B, h, w]."""
    b, top, end, j, width, first = _place(widths, h, w, BH, BW)
    a += b.to(tl.int64) * H * W
    up = _coarse_three(a, top - 1, j, H, W, h, width, S)
    mid = _coarse_three(a, top, j, H, W, h, width, S)
    for i in range(top, end):
        down = _coarse_three(a, i + 1, j, H, W, h, width, S)
        tl.store(out + first + i * w + j, _sobel(up, mid, down, eps), mask=j < w)
        up = mid
        mid = down


@triton.jit
def _three(a, y, x, W, H, width):
    return _at(a, y, x - 1, W, H, width), _at(a, y, x, W, H, width), _at(a, y, x + 1, W, H, width)


@triton.jit
def fine_edges(a, small, widths, out, H, W, h, w, eps, S: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr):
    """The larger of the Sobel magnitude and the coarse one, enlarged bilinearly."""
    b, top, end, x, width, first = _place(widths, H, W, BH, BW)
    a += first
    small += b.to(tl.int64) * h * w
    narrow = (width + S - 1) // S
    u = tl.maximum((x + 0.5) / S - 0.5, 0.0)
    j = u.to(tl.int32)
    u -= j
    up = _three(a, top - 1, x, W, H, width)
    mid = _three(a, top, x, W, H, width)
    for y in range(top, end):
        down = _three(a, y + 1, x, W, H, width)
        v = tl.maximum((x * 0 + y + 0.5) / S - 0.5, 0.0)  # a vector, though it has one value: so it reads alike
        i = v.to(tl.int32)
        v -= i
        above = _at(small, i, j, w, h, narrow) * (1 - u) + _at(small, i, j + 1, w, h, narrow) * u
        below = _at(small, i + 1, j, w, h, narrow) * (1 - u) + _at(small, i + 1, j + 1, w, h, narrow) * u
        edges = tl.maximum(_sobel(up, mid, down, eps), above * (1 - v) + below * v)
        tl.store(out + first + y * W + x, edges, mask=x < W)
        up = mid
        mid = down


@triton.jit
def proxies(smooth, edges, low, high, most, intensity, supported, size, eps, least, kappa, tau, BLOCK: tl.constexpr):
    """I_int (Eq. 25), and the edges that ink supports (Eqs. 26, 27), pixel by pixel; `size` pixels a line."""
    b = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = b.to(tl.int64) * size + i
    lowest, highest, largest = tl.load(low + b), tl.load(high + b), tl.load(most + b)
    a = tl.load(smooth + at, mask=i < size, other=0.0)
    bold = tl.minimum(tl.load(edges + at, mask=i < size, other=0.0) / (largest + eps), 1.0)
    share = tl.minimum(tl.maximum((a - lowest) / (highest - lowest + eps), 0.0), 1.0)
    ink = tl.where(highest - lowest > least, 1.0 - share, 0.0)  # Q of Eq. 22
    tl.store(intensity + at, ink, mask=i < size)
    tl.store(supported + at, bold * _soft(ink, kappa, tau), mask=i < size)


@triton.jit
def _raw(intensity, edge, part, y, x, W, H, width):
    i = _at(intensity, y, x, W, H, width)
    e = _at(edge, y, x, W, H, width)
    return tl.minimum(tl.maximum((1 - part) * i + part * e, 0.0), 1.0)


@triton.jit
def _raw_across(intensity, edge, part, y, x, W, H, width, SIDE: tl.constexpr):
    total = _raw(intensity, edge, part, y, x - SIDE // 2, W, H, width)
    for i in tl.static_range(1, SIDE):
        total += _raw(intensity, edge, part, y, x - SIDE // 2 + i, W, H, width)
    return total


@triton.jit
def fuse(
    intensity, edge, weight, widths, out, H, W, size, kappa, tau, gamma,
    SIDE: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr,
):  # fmt: skip
    """D_t (Eqs. 3, 30) of the step in the grid's third axis."""
    _, top, end, x, width, first = _place(widths, H, W, BH, BW)
    t = tl.program_id(2)
    part = tl.load(weight + t)
    intensity += first
    edge += first
    out += t * tl.cast(size, tl.int64) + first
    rows = ()
    for i in tl.static_range(SIDE - 1):
        rows = rows + (_raw_across(intensity, edge, part, top - SIDE // 2 + i, x, W, H, width, SIDE),)
    for y in range(top, end):
        box_rows = rows + (_raw_across(intensity, edge, part, y + SIDE // 2, x, W, H, width, SIDE),)
        keep = tl.exp(gamma * tl.log(_soft(_total(box_rows, SIDE) / (SIDE * SIDE), kappa, tau)))
        tl.store(out + y * W + x, _raw(intensity, edge, part, y, x, W, H, width) * keep, mask=x < W)
        rows = box_rows[1:]


def _tiles(height: int, width: int) -> int:
    return triton.cdiv(height, _ROWS) * triton.cdiv(width, _COLUMNS)


@torch.no_grad()
def evidence(gray: Tensor, widths: Tensor, weight: Tensor, c: Ink) -> Tensor:
    """gray [B, 1, H, W] in fp32, widths [B], weight w_t [T] -> D_t [T, B, 1, H, W]; its padding means nothing."""
    gray, widths = gray.contiguous(), widths.contiguous()
    batch, _, H, W = gray.shape
    s = c.edge_scale
    h, w = -(-H // s), -(-W // s)
    grid, small_grid = (batch, _tiles(H, W)), (batch, _tiles(h, w))
    tile = {"BH": _ROWS, "BW": _COLUMNS, "num_warps": _WARPS}
    maps = gray.new_empty(2, *gray.shape)
    smooth, edges = maps.unbind(0)
    intensity, supported, edge = (torch.empty_like(gray) for _ in range(3))
    small = gray.new_empty(batch, h, w)
    out = gray.new_empty(len(weight), *gray.shape)
    with on_device(gray):
        launch(box, grid, gray, widths, smooth, H, W, 0.0, 0.0, COHERENT=False, SIDE=c.blur, **tile)
        launch(coarse_edges, small_grid, smooth, widths, small, H, W, h, w, _EPS, S=s, **tile)
        launch(fine_edges, grid, smooth, small, widths, edges, H, W, h, w, _EPS, S=s, **tile)
        low, high, most = quantiles_of_two(maps, widths, (c.q_low, c.q_high), (c.q_edge,))
        launch(proxies, (batch, triton.cdiv(H * W, _PIXELS)),
            smooth, edges, low.contiguous(), high.contiguous(), most.contiguous(), intensity, supported, H * W, _EPS,
            _NO_CONTRAST, c.kappa_int, c.tau_int, BLOCK=_PIXELS,
        )  # fmt: skip
        launch(
            box, grid, supported, widths, edge, H, W, c.kappa_edge, c.tau_edge, COHERENT=True, SIDE=c.density, **tile
        )
        launch(fuse, (*grid, len(weight)),
            intensity, edge, weight.contiguous(), widths, out, H, W, gray.numel(),
            c.kappa_density, c.tau_density, c.gamma_density, SIDE=c.density, **tile,
        )  # fmt: skip
    return out
