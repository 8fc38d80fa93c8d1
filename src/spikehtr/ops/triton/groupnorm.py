"""Masked GroupNorm, neuron, membrane shortcut, column mask and residual sum of 2D maps, as device code.

Maps lie in memory as [T, B, H, W, C]; a tile is BP columns of one row and BC channels. Sums over a map go in two
stages: a program adds up its rows' tiles from left to right in registers, and a second kernel adds up the programs'
sums in float64. Nothing is added atomically, so results repeat; and padding comes last in every row and adds nothing,
so a line's sums do not depend on it. `groupnorm_op.py` has the host's side.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import triton
import triton.language as tl

from spikehtr.ops.triton.neuron import respond, respond_back

# They change from batch to batch, and alignment does not hang on them: a kernel need not be compiled again.
_SIZES = ["B", "H", "W", "tiles"]


@triton.jit
def _step(B, H, W, C):
    """Elements from one step's maps to the next's."""
    return tl.cast(B, tl.int64) * H * W * C


@triton.jit
def _tile(widths, H, W, C, BP: tl.constexpr, BC: tl.constexpr):
    """This program's line, first element, offsets, channels, and where the map and the line reach."""
    blocks = tl.cdiv(C, BC)
    across = tl.cdiv(W, BP)
    pid = tl.program_id(0)
    place = pid // blocks
    row = place // across  # b * H + h
    b = row // H
    c = (pid % blocks) * BC + tl.arange(0, BC)
    w = (place % across) * BP + tl.arange(0, BP)
    here = (w < W)[:, None] & (c < C)[None, :]
    valid = here & (w < tl.load(widths + b))[:, None]
    first = row.to(tl.int64) * W * C
    return b, first, w[:, None] * C + c[None, :], c, here, valid


@triton.jit
def _rows(H, C, R: tl.constexpr, BC: tl.constexpr):
    """This program's map, number, first row, row past its last, and channels, where a program takes R rows of a map."""
    blocks = tl.cdiv(C, BC)
    place = tl.program_id(0) // blocks
    chunks = tl.cdiv(H, R)
    first = (place % chunks) * R
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    return place // chunks, place, first, tl.minimum(first + R, H), c


@triton.jit
def _put_sums(partial, one, two, row, c, C):
    """Sums over a tile's columns of two quantities -> partial [..., 2, C]."""
    at = partial + row.to(tl.int64) * 2 * C + c
    tl.store(at, tl.sum(one, axis=0), mask=c < C)
    tl.store(at + C, tl.sum(two, axis=0), mask=c < C)


@triton.jit(do_not_specialize=_SIZES)
def sums(x, widths, partial, B, H, W, C, R: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    """x -> partial [T*B, chunks, 2, C]: sum and sum of squares over the valid columns of R rows."""
    n, place, first, end, c = _rows(H, C, R, BC)
    width = tl.load(widths + n % B)
    one = tl.zeros([BP, BC], tl.float32)
    two = tl.zeros([BP, BC], tl.float32)
    for h in range(first, end):
        row = x + (n.to(tl.int64) * H + h) * W * C
        for start in range(0, width, BP):
            w = start + tl.arange(0, BP)
            valid = (w < width)[:, None] & (c < C)[None, :]
            value = tl.load(row + w[:, None] * C + c[None, :], mask=valid, other=0.0).to(tl.float32)
            one += value
            two += value * value
    _put_sums(partial, one, two, place, c, C)


@triton.jit
def _add_up(partial, tb, tiles, c, inside, C, BR: tl.constexpr, BG: tl.constexpr):
    """Per channel, in float64: both sums over all tiles of a map."""
    one = tl.zeros([BR, BG], tl.float64)
    two = tl.zeros([BR, BG], tl.float64)
    for start in range(0, tiles, BR):
        r = start + tl.arange(0, BR)
        at = partial + (tb.to(tl.int64) * tiles + r[:, None]) * 2 * C + c[None, :]
        mask = (r < tiles)[:, None] & inside[None, :]
        one += tl.load(at, mask=mask, other=0.0).to(tl.float64)
        two += tl.load(at + C, mask=mask, other=0.0).to(tl.float64)
    return tl.sum(one, axis=0), tl.sum(two, axis=0)


@triton.jit(do_not_specialize=_SIZES)
def moments(
    partial, widths, weight, bias, scale, shift, mean, rstd, B, H, C, G, tiles, eps, BR: tl.constexpr, BG: tl.constexpr
):
    """Sums -> mean, rstd [T*B, G], and scale, shift [T*B, C] such that Norm(x) = x * scale + shift."""
    tb, g = tl.program_id(0), tl.program_id(1)
    spread = C // G
    inside = tl.arange(0, BG) < spread
    c = g * spread + tl.arange(0, BG)
    one, two = _add_up(partial, tb, tiles, c, inside, C, BR, BG)
    count = tl.load(widths + tb % B).to(tl.float64) * H * spread
    m = tl.sum(one, axis=0) / count
    variance = tl.maximum(tl.sum(two, axis=0) / count - m * m, 0.0)
    r = 1.0 / tl.sqrt_rn((variance + eps).to(tl.float32))
    tl.store(mean + tb * G + g, m.to(tl.float32))
    tl.store(rstd + tb * G + g, r)
    factor = r.to(tl.float64) * tl.load(weight + c, mask=inside, other=0.0).to(tl.float64)
    offset = tl.load(bias + c, mask=inside, other=0.0).to(tl.float64) - m * factor
    tl.store(scale + tb * C + c, factor.to(tl.float32), mask=inside)
    tl.store(shift + tb * C + c, offset.to(tl.float32), mask=inside)


@triton.jit
def _drives(x, scale, shift, first, step, at, b, c, valid, B, C, T: tl.constexpr):
    """x and H = Norm(x) of all steps, 0 and anything outside."""
    xs = (tl.load(x + first + at, mask=valid, other=0.0).to(tl.float32),)
    row = b * C + c
    factor = tl.load(scale + row, mask=c < C, other=0.0)[None, :]
    hs = (xs[0] * factor + tl.load(shift + row, mask=c < C, other=0.0)[None, :],)
    for t in tl.static_range(1, T):
        value = tl.load(x + (first + t * step) + at, mask=valid, other=0.0).to(tl.float32)
        row = (t * B + b) * C + c
        factor = tl.load(scale + row, mask=c < C, other=0.0)[None, :]
        hs = hs + (value * factor + tl.load(shift + row, mask=c < C, other=0.0)[None, :],)
        xs = xs + (value,)
    return xs, hs


@triton.jit(do_not_specialize=_SIZES)
def apply(
    x, scale, shift, widths, alpha, residual, gain, y, B, H, W, C, decay, threshold, burst_step,
    T: tl.constexpr, KIND: tl.constexpr, BURST: tl.constexpr, SHORTCUT: tl.constexpr,
    RESIDUAL: tl.constexpr, GAIN: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = residual + gain_b * mask * (neuron(H) + alpha * H)"""
    b, first, at, c, here, valid = _tile(widths, H, W, C, BP, BC)
    step = _step(B, H, W, C)
    _, hs = _drives(x, scale, shift, first, step, at, b, c, valid, B, C, T)
    ys = respond(hs, decay, threshold, T, KIND, burst_step, BURST)
    for t in tl.static_range(T):
        value = ys[t]
        if SHORTCUT:
            value += tl.load(alpha).to(tl.float32) * hs[t]
        value = tl.where(valid, value, 0.0)
        if GAIN:
            value *= tl.load(gain + b)
        base = first + t * step
        if RESIDUAL:
            value += tl.load(residual + base + at, mask=here, other=0.0).to(tl.float32)
        tl.store(y + base + at, value.to(y.dtype.element_ty), mask=here)


@triton.jit
def _drive_grads(
    x, scale, shift, grad, alpha, gain, first, step, at, b, c, valid, B, C, decay, threshold, sharpness,
    burst_step, T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr, BURST: tl.constexpr, SHORTCUT: tl.constexpr,
    GAIN: tl.constexpr,
):  # fmt: skip
    """x and dL/dH of all steps (0 outside), and the sum over steps of dL/dY * H, which is dL/dalpha."""
    xs, hs = _drives(x, scale, shift, first, step, at, b, c, valid, B, C, T)
    factor = 1.0
    if GAIN:
        factor = tl.load(gain + b)
    gs = (tl.load(grad + first + at, mask=valid, other=0.0).to(tl.float32) * factor,)
    for t in tl.static_range(1, T):
        base = first + t * step
        gs = gs + (tl.load(grad + base + at, mask=valid, other=0.0).to(tl.float32) * factor,)
    ds = respond_back(hs, gs, decay, threshold, sharpness, T, KIND, ATAN, burst_step, BURST)
    slope = gs[0] * 0.0
    if SHORTCUT:
        share = tl.load(alpha).to(tl.float32)
        slope = gs[0] * hs[0]
        full = (ds[0] + share * gs[0],)
        for t in tl.static_range(1, T):
            slope += gs[t] * hs[t]
            full = full + (ds[t] + share * gs[t],)
        return xs, full, slope
    else:
        return xs, ds, slope


@triton.jit(do_not_specialize=_SIZES)
def grad_sums(
    x, scale, shift, widths, grad, alpha, gain, partial, slopes, B, H, W, C,
    decay, threshold, sharpness, burst_step, T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr,
    BURST: tl.constexpr, SHORTCUT: tl.constexpr, GAIN: tl.constexpr, R: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Sums over R rows of dL/dH and of dL/dH * x -> partial [T*B, chunks, 2, C], and of dL/dalpha -> slopes."""
    b, place, first, end, c = _rows(H, C, R, BC)
    step = _step(B, H, W, C)
    width = tl.load(widths + b)
    zero = tl.zeros([BP, BC], tl.float32)
    slope = zero
    ones = ()
    twos = ()
    for _ in tl.static_range(T):
        ones = ones + (zero,)
        twos = twos + (zero,)
    for h in range(first, end):
        row = (b.to(tl.int64) * H + h) * W * C
        for start in range(0, width, BP):
            w = start + tl.arange(0, BP)
            valid = (w < width)[:, None] & (c < C)[None, :]
            at = w[:, None] * C + c[None, :]
            xs, ds, more = _drive_grads(
                x, scale, shift, grad, alpha, gain, row, step, at, b, c, valid, B, C, decay, threshold, sharpness,
                burst_step, T, KIND, ATAN, BURST, SHORTCUT, GAIN,
            )  # fmt: skip
            if SHORTCUT:
                slope += more
            added = ()
            products = ()
            for t in tl.static_range(T):
                added = added + (ones[t] + ds[t],)
                products = products + (twos[t] + ds[t] * xs[t],)
            ones = added
            twos = products
    chunks = tl.cdiv(H, R)
    for t in tl.static_range(T):
        _put_sums(partial, ones[t], twos[t], t * B * chunks + place, c, C)
    if SHORTCUT:
        tl.store(slopes + tl.program_id(0), tl.sum(tl.sum(slope, axis=1), axis=0))


@triton.jit(do_not_specialize=_SIZES)
def grad_moments(
    partial, widths, weight, mean, rstd, by_channel, factors, B, H, C, G, tiles, BR: tl.constexpr, BG: tl.constexpr
):
    """Sums -> by_channel [T*B, 2, C], the gradients of bias and weight; factors [T*B, 2, C], p and q of `grad_input`.

    dx = rstd * (weight * dH - mean(weight * dH) - xhat * mean(weight * dH * xhat)) = scale * dH + p * x + q
    """
    tb, g = tl.program_id(0), tl.program_id(1)
    spread = C // G
    inside = tl.arange(0, BG) < spread
    c = g * spread + tl.arange(0, BG)
    one, two = _add_up(partial, tb, tiles, c, inside, C, BR, BG)
    m = tl.load(mean + tb * G + g).to(tl.float64)
    r = tl.load(rstd + tb * G + g).to(tl.float64)
    two = (two - m * one) * r  # sum of dH * xhat
    at = by_channel + tb * 2 * C + c
    tl.store(at, one.to(tl.float32), mask=inside)
    tl.store(at + C, two.to(tl.float32), mask=inside)
    w = tl.load(weight + c, mask=inside, other=0.0).to(tl.float64)
    count = tl.load(widths + tb % B).to(tl.float64) * H * spread
    first = tl.sum(w * one, axis=0) / count
    second = tl.sum(w * two, axis=0) / count
    p = -r * r * second
    q = -r * first - p * m
    at = factors + tb * 2 * C + c
    zero = tl.zeros([BG], tl.float32)
    tl.store(at, zero + p.to(tl.float32), mask=inside)
    tl.store(at + C, zero + q.to(tl.float32), mask=inside)


@triton.jit(do_not_specialize=_SIZES)
def grad_input(
    x, scale, shift, factors, widths, grad, alpha, gain, through, dx, B, H, W, C,
    decay, threshold, sharpness, burst_step, T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr,
    BURST: tl.constexpr, SHORTCUT: tl.constexpr, GAIN: tl.constexpr, THROUGH: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """dx as above, plus the gradient that came `through`."""
    b, first, at, c, here, valid = _tile(widths, H, W, C, BP, BC)
    step = _step(B, H, W, C)
    xs, ds, _ = _drive_grads(
        x, scale, shift, grad, alpha, gain, first, step, at, b, c, valid, B, C, decay, threshold, sharpness,
        burst_step, T, KIND, ATAN, BURST, SHORTCUT, GAIN,
    )  # fmt: skip
    values = ()  # all of them before the first is stored: loads after a store would be made again
    for t in tl.static_range(T):
        row = t * B + b
        factor = tl.load(scale + row * C + c, mask=c < C, other=0.0)[None, :]
        p = tl.load(factors + row * 2 * C + c, mask=c < C, other=0.0)[None, :]
        q = tl.load(factors + row * 2 * C + C + c, mask=c < C, other=0.0)[None, :]
        value = tl.where(valid, factor * ds[t] + p * xs[t] + q, 0.0)
        if THROUGH:
            base = first + t * step
            value += tl.load(through + base + at, mask=here, other=0.0).to(tl.float32)
        values = values + (value,)
    for t in tl.static_range(T):
        base = first + t * step
        tl.store(dx + base + at, values[t].to(dx.dtype.element_ty), mask=here)
