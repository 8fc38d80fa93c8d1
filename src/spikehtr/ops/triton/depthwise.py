"""Depthwise convolution of maps [N, H, W, C], stride 1, zeros past the edges: forward, both gradients, as device code.

A thread owns S neighbouring columns of a few channels and walks down the rows, so an input value is loaded once for
each thread that needs it and serves KH x KW products from registers. The sums of the KH output rows that an input row
belongs to are carried along; the next row is on its way meanwhile. The gradient for the input is the same
walk with the kernel turned round.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _place(W, C, S: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr):
    """This program's map, number, first column of each of its BS strips, and channels."""
    blocks = tl.cdiv(C, BC)
    across = tl.cdiv(W, BS * S)
    pid = tl.program_id(0)
    place = pid // blocks
    # Two channels a thread: the kernel's taps are held in registers, once for each channel of a thread.
    c = tl.max_contiguous(tl.multiple_of((pid % blocks) * BC + tl.arange(0, BC), 2), 2)
    return place // across, place, ((place % across) * BS + tl.arange(0, BS)) * S, c


@triton.jit
def _within(h, c, H):
    """Whether row h exists, as a vector: the interpreter cannot join a scalar to a mask."""
    row = h + c * 0
    return (row >= 0) & (row < H)


@triton.jit
def _load_row(x, n, h, w, c, H, W, C, limit, LEFT: tl.constexpr, COUNT: tl.constexpr):
    """COUNT columns of row h from w - LEFT on, each a tile [BS, BC]; zeros past the edges and from `limit` on."""
    row = x + (tl.cast(n, tl.int64) * H + h) * W * C
    inside = (_within(h, c, H) & (c < C))[None, :]
    tiles = ()
    for j in tl.static_range(COUNT):
        v = w + (j - LEFT)
        mask = ((v >= 0) & (v < limit))[:, None] & inside
        tiles = tiles + (tl.load(row + v[:, None] * C + c[None, :], mask=mask, other=0.0),)
    return tiles


@triton.jit
def _join(
    tiles, rows, weights, zero, R: tl.constexpr, HIGH: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """An input row joined to the output rows it belongs to; all of these then stand one place further on.

    Where the height of maps is known (HIGH), so is the step R, and products with rows outside are left out.
    """
    values = ()
    for j in tl.static_range(S + KW - 1):
        values = values + (tiles[j].to(tl.float32),)
    moved = ()
    for _ in tl.static_range(S):
        moved = moved + (zero,)
    for i in tl.static_range(KH):
        for s in tl.static_range(S):
            total = rows[i * S + s]
            if HIGH == 0 or ((R - KH // 2 < HIGH) and ((i <= R) and (i > R - HIGH))):
                for j in tl.static_range(KW):
                    total += values[s + j] * weights[i * KW + j]
            moved = moved + (total,)
    return moved


@triton.jit
def _put_row(
    y, moved, more, one, two, n, h, w, c, H, W, C, limit, FIRST: tl.constexpr, FLIP: tl.constexpr,
    THROUGH: tl.constexpr, SUMS: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Store row h, which lies in `moved` from FIRST on, and add to its sums."""
    there = (_within(h, c, H) & (c < C))[None, :]
    row = (n.to(tl.int64) * H + h) * W * C
    for s in tl.static_range(S):
        at = row + ((w + s)[:, None] * C + c[None, :])
        mask = (w + s < W)[:, None] & there
        value = moved[FIRST + s]
        if FLIP:  # a gradient: what is taken as 0 has none
            value = tl.where((w + s < limit)[:, None], value, 0.0)
        if THROUGH:
            value += more[s].to(tl.float32)
        out = value.to(y.dtype.element_ty)
        tl.store(y + at, out, mask=mask)
        if SUMS:
            seen = tl.where((w + s < limit)[:, None] & there, out.to(tl.float32), 0.0)
            one += seen
            two += seen * seen
    return one, two


@triton.jit(do_not_specialize=["B", "H", "W"])
def walk(
    x, taps, widths, through, y, partial, B, H, W, C, HIGH: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    FLIP: tl.constexpr, THROUGH: tl.constexpr, SUMS: tl.constexpr, S: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = x * taps (+ through); taps [KH*KW, C]. With SUMS also each program's sums, for a norm that follows.

    x is taken as 0 from a line's width on. HIGH is H where the walk is to be written out row by row, without the
    products of rows outside (of a low map they would be most), else 0.
    """
    n, place, w, c = _place(W, C, S, BS, BC)
    limit = tl.load(widths + n % B).to(tl.int32)
    weights = ()
    for k in tl.static_range(KH * KW):
        weights = weights + (
            tl.load(taps + ((KH * KW - 1 - k) if FLIP else k) * C + c, mask=c < C, other=0.0)[None, :],
        )
    zero = tl.zeros([BS, BC], tl.float32)
    rows = ()  # rows[i * S + s] gathers column s of output row r - i: tap row i joins it to the input row of step r
    for _ in tl.static_range(KH * S):
        rows = rows + (zero,)
    one = zero
    two = zero
    more = ()
    if HIGH == 0:
        tiles = _load_row(x, n, -(KH // 2), w, c, H, W, C, limit, KW // 2, S + KW - 1)
        for r in range(H + KH - 1):  # input row r - KH // 2; output row r - (KH - 1) is complete after it
            ahead = _load_row(x, n, r + 1 - KH // 2, w, c, H, W, C, limit, KW // 2, S + KW - 1)
            added = _load_row(through, n, r - (KH - 1), w, c, H, W, C, W, 0, S) if THROUGH else ()
            moved = _join(tiles, rows, weights, zero, 0, 0, KH, KW, S)
            one, two = _put_row(
                y, moved, added, one, two, n, r - (KH - 1), w, c, H, W, C, limit, KH * S, FLIP, THROUGH, SUMS, S
            )  # fmt: skip
            rows = moved[: KH * S]
            tiles = ahead
    else:
        tiles = _load_row(x, n, 0, w, c, H, W, C, limit, KW // 2, S + KW - 1)
        for r in tl.static_range(KH // 2, HIGH + KH - 1):
            ahead = tiles
            if r + 1 - KH // 2 < HIGH:
                ahead = _load_row(x, n, r + 1 - KH // 2, w, c, H, W, C, limit, KW // 2, S + KW - 1)
            if THROUGH and r >= KH - 1:
                more = _load_row(through, n, r - (KH - 1), w, c, H, W, C, W, 0, S)
            moved = _join(tiles, rows, weights, zero, r, HIGH, KH, KW, S)
            if r >= KH - 1:
                one, two = _put_row(
                    y, moved, more, one, two, n, r - (KH - 1), w, c, H, W, C, limit, KH * S, FLIP, THROUGH, SUMS, S
                )  # fmt: skip
            rows = moved[: KH * S]
            tiles = ahead
    if SUMS:
        at = partial + place.to(tl.int64) * 2 * C + c
        tl.store(at, tl.sum(one, axis=0), mask=c < C)
        tl.store(at + C, tl.sum(two, axis=0), mask=c < C)


@triton.jit(do_not_specialize=["N", "B", "H", "W"])
def tap_sums(
    x, grad, widths, partial, N, B, H, W, C, MAPS: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr,
    BS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of grad * shifted x over MAPS maps -> partial [programs, KH*KW, C]: the taps' gradient, not yet added up."""
    group, place, w, c = _place(W, C, S, BS, BC)
    zero = tl.zeros([BS, BC], tl.float32)
    totals = ()
    for _ in tl.static_range(KH * KW):
        totals = totals + (zero,)
    top = KH // 2
    for n in range(group * MAPS, tl.minimum(group * MAPS + MAPS, N)):
        limit = tl.load(widths + n % B).to(tl.int32)
        grads = ()  # grads[i * S + s]: column s of row h + top - i, which tap row i joins to the input's row h
        for i in tl.static_range(KH):
            grads = grads + _load_row(grad, n, top - i, w, c, H, W, C, limit, 0, S)
        tiles = _load_row(x, n, 0, w, c, H, W, C, limit, KW // 2, S + KW - 1)
        for h in range(H):
            ahead = _load_row(x, n, h + 1, w, c, H, W, C, limit, KW // 2, S + KW - 1)
            below = _load_row(grad, n, h + 1 + top, w, c, H, W, C, limit, 0, S)
            values = ()
            for j in tl.static_range(S + KW - 1):
                values = values + (tiles[j].to(tl.float32),)
            added = ()
            for i in tl.static_range(KH):
                for j in tl.static_range(KW):
                    total = totals[i * KW + j]
                    for s in tl.static_range(S):
                        total += values[s + j] * grads[i * S + s].to(tl.float32)
                    added = added + (total,)
            totals = added
            grads = below + grads[: (KH - 1) * S]
            tiles = ahead
    for k in tl.static_range(KH * KW):
        at = partial + (place.to(tl.int64) * (KH * KW) + k) * C + c
        tl.store(at, tl.sum(totals[k], axis=0), mask=c < C)
