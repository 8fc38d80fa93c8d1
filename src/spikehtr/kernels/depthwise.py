"""Depthwise convolution of maps [N, H, W, C], stride 1, zeros past the edges: forward, both gradients, as device code.

A program owns BP columns and BC channels and walks down the rows. Each input row is loaded once (shifted KW times, from
cache) and added to the KH output rows it belongs to, whose sums are carried along in registers; the next row is on its
way meanwhile. The gradient for the input is the same walk with the kernel turned round.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(W, C, BP: tl.constexpr, BC: tl.constexpr):
    """This program's map, tile number, columns and channels."""
    blocks = tl.cdiv(C, BC)
    across = tl.cdiv(W, BP)
    pid = tl.program_id(0)
    place = pid // blocks
    # Two channels a thread: the kernel's taps are held in registers, once for each channel of a thread.
    c = tl.max_contiguous(tl.multiple_of((pid % blocks) * BC + tl.arange(0, BC), 2), 2)
    return place // across, place, (place % across) * BP + tl.arange(0, BP), c


@triton.jit
def _within(h, c, H):
    """Whether row h exists, as a vector: the interpreter cannot join a scalar to a mask."""
    row = h + c * 0
    return (row >= 0) & (row < H)


@triton.jit
def _load_row(x, n, h, w, c, H, W, C, KW: tl.constexpr):
    """Row h, shifted by -(KW // 2) .. KW // 2; zeros outside."""
    row = x + (n.to(tl.int64) * H + h) * W * C
    inside = (_within(h, c, H) & (c < C))[None, :]
    tiles = ()
    for j in tl.static_range(KW):
        v = w + (j - KW // 2)
        mask = ((v >= 0) & (v < W))[:, None] & inside
        tiles = tiles + (tl.load(row + v[:, None] * C + c[None, :], mask=mask, other=0.0),)
    return tiles


@triton.jit
def walk(
    x, taps, widths, through, y, partial, B, H, W, C, KH: tl.constexpr, KW: tl.constexpr, FLIP: tl.constexpr,
    THROUGH: tl.constexpr, SUMS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = x * taps (+ through); taps [KH*KW, C]. With SUMS also each tile's sums, for a norm that follows."""
    n, place, w, c = _place(W, C, BP, BC)
    weights = ()
    for k in tl.static_range(KH * KW):
        weights = weights + (tl.load(taps + ((KH * KW - 1 - k) if FLIP else k) * C + c, mask=c < C, other=0.0),)
    start = tl.zeros([BP, BC], tl.float32)
    rows = ()  # rows[i] gathers output row r - i: tap row i joins it to the input row of step r
    for _ in tl.static_range(KH):
        rows = rows + (start,)
    one = tl.zeros([BP, BC], tl.float32)
    two = tl.zeros([BP, BC], tl.float32)
    here = (w < W)[:, None] & (c < C)[None, :]
    valid = here
    if SUMS:
        valid = here & (w < tl.load(widths + n % B))[:, None]
    top = KH // 2
    tiles = _load_row(x, n, -top, w, c, H, W, C, KW)
    for r in range(H + KH - 1):  # input row r - top; output row r - (KH - 1) is complete after it
        ahead = _load_row(x, n, r + 1 - top, w, c, H, W, C, KW)
        moved = (start,)
        for i in tl.static_range(KH):
            total = rows[i]
            for j in tl.static_range(KW):
                total += tiles[j].to(tl.float32) * weights[i * KW + j][None, :]
            moved = moved + (total,)
        h = r - (KH - 1)
        there = here & _within(h, c, H)[None, :]
        at = (n.to(tl.int64) * H + h) * W * C + (w[:, None] * C + c[None, :])
        value = moved[KH]
        if THROUGH:
            value += tl.load(through + at, mask=there, other=0.0).to(tl.float32)
        out = value.to(y.dtype.element_ty)
        tl.store(y + at, out, mask=there)
        if SUMS:
            seen = tl.where(valid & there, out.to(tl.float32), 0.0)
            one += seen
            two += seen * seen
        rows = moved[:KH]
        tiles = ahead
    if SUMS:
        at = partial + place.to(tl.int64) * 2 * C + c
        tl.store(at, tl.sum(one, axis=0), mask=c < C)
        tl.store(at + C, tl.sum(two, axis=0), mask=c < C)


@triton.jit
def tap_sums(x, grad, partial, H, W, C, KH: tl.constexpr, KW: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """Each tile's sums of grad * shifted x -> partial [tiles, KH*KW, C]: the taps' gradient, not yet added up."""
    n, place, w, c = _place(W, C, BP, BC)
    zero = tl.zeros([BP, BC], tl.float32)
    totals = ()
    for _ in tl.static_range(KH * KW):
        totals = totals + (zero,)
    top = KH // 2
    grads = ()  # grads[i]: row h + top - i of the gradient, which tap row i joins to the input's row h
    for i in tl.static_range(KH):
        grads = grads + (_load_row(grad, n, top - i, w, c, H, W, C, 1)[0],)
    tiles = _load_row(x, n, 0, w, c, H, W, C, KW)
    for h in range(H):
        ahead = _load_row(x, n, h + 1, w, c, H, W, C, KW)
        moved = (_load_row(grad, n, h + 1 + top, w, c, H, W, C, 1)[0],)
        added = ()
        for i in tl.static_range(KH):
            row = grads[i].to(tl.float32)
            for j in tl.static_range(KW):
                added = added + (totals[i * KW + j] + tiles[j].to(tl.float32) * row,)
            moved = moved + (grads[i],)
        totals = added
        grads = moved[:KH]
        tiles = ahead
    for k in tl.static_range(KH * KW):
        at = partial + (place.to(tl.int64) * (KH * KW) + k) * C + c
        tl.store(at, tl.sum(totals[k], axis=0), mask=c < C)
