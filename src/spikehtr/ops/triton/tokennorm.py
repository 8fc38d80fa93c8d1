"""LayerNorm over channels, neuron, dropout, residual sum of tokens, and the neuron alone, as device code.

Tokens lie in memory as [T, N, C]. A tile is ROWS tokens at all T steps and all channels, so one pass is enough:
statistics are rebuilt from x in the backward pass too. `tokennorm_op.py` has the host's side.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import triton
import triton.language as tl

from spikehtr.ops.triton.neuron import respond, respond_back


@triton.jit
def _load_raw(x, at, mask, step, T: tl.constexpr):
    """A tile of all steps as it lies in memory."""
    tiles = ()
    for t in tl.static_range(T):
        base = x + t * tl.cast(step, tl.int64)
        tiles = tiles + (tl.load(base + at, mask=mask, other=0.0),)
    return tiles


@triton.jit
def _widen(tiles, T: tl.constexpr):
    wide = ()
    for t in tl.static_range(T):
        wide = wide + (tiles[t].to(tl.float32),)
    return wide


@triton.jit
def _load_steps(x, at, mask, step, T: tl.constexpr):
    return _widen(_load_raw(x, at, mask, step, T), T)


@triton.jit
def _normalise(x, C, eps, inside):
    """xhat (0 outside) and rstd [ROWS, 1]."""
    centred = tl.where(inside, x - (tl.sum(x, axis=1) / C)[:, None], 0.0)
    rstd = 1.0 / tl.sqrt_rn(tl.sum(centred * centred, axis=1) / C + eps)
    return centred * rstd[:, None], rstd[:, None]


@triton.jit
def _drives(xs, weight, bias, C, eps, inside, T: tl.constexpr):
    """xhat, rstd and H = Norm(x) of all steps."""
    hats = ()
    spreads = ()
    hs = ()
    for t in tl.static_range(T):
        xhat, rstd = _normalise(xs[t], C, eps, inside)
        hats = hats + (xhat,)
        spreads = spreads + (rstd,)
        hs = hs + (xhat * weight + bias,)
    return hats, spreads, hs


@triton.jit
def _affine(weight, bias, c, C):
    w = tl.load(weight + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    return w, tl.load(bias + c, mask=c < C, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _mix(h):
    """32 bits in, 32 bits out, every one of them changed by any of those: a hash of few instructions."""
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _kept(seed, number, keep):
    """Whether a draw in [0, 1), a function of the seed and a number, is below `keep`. It is taken for every unit, and
    the usual generator's ten rounds cost more than all the rest of the kernel."""
    first = _mix(seed.to(tl.uint32))
    second = _mix(first + 0x9E3779B9)
    h = _mix(_mix(number.to(tl.uint32) + first) ^ second)
    return (h >> 8).to(tl.float32) * 5.9604644775390625e-08 < keep


@triton.jit
def _gain(n, c, L, C, seed, keep, path_keep):
    """Dropout of units and of whole lines' branches (L tokens a line), the same at every step: drawn from the seed and
    the unit's number (below 0 for lines), so that the backward pass can draw it again."""
    seed = tl.load(seed)
    unit = tl.where(_kept(seed, n[:, None] * C + c[None, :], keep), 1.0 / keep, 0.0)
    return unit * tl.where(_kept(seed, -1 - n // L, path_keep), 1.0 / path_keep, 0.0)[:, None]


@triton.jit
def _tile(tile, c, N, C, ROWS: tl.constexpr):
    """A tile's tokens, offsets in a step, and where it is inside."""
    n = tile * ROWS + tl.arange(0, ROWS)
    return n, n.to(tl.int64)[:, None] * C + c[None, :], (n < N)[:, None] & (c < C)[None, :]


@triton.jit(do_not_specialize=["N", "L"])
def token_apply(
    x, weight, bias, residual, y, N, C, L, seed, keep, path_keep, eps, decay, threshold, burst_step,
    T: tl.constexpr, KIND: tl.constexpr, BURST: tl.constexpr, RESIDUAL: tl.constexpr,
    DROP: tl.constexpr, ROWS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = residual + dropout(neuron(Norm(x)))"""
    c = tl.arange(0, BC)
    n, at, inside = _tile(tl.program_id(0), c, N, C, ROWS)
    step = tl.cast(N, tl.int64) * C
    xs = _load_steps(x, at, inside, step, T)
    if RESIDUAL:  # on its way while the statistics are taken
        added = _load_steps(residual, at, inside, step, T)
    w, b = _affine(weight, bias, c, C)
    _, _, hs = _drives(xs, w, b, C, eps, inside, T)
    ys = respond(hs, decay, threshold, T, KIND, burst_step, BURST)
    if DROP:
        factor = _gain(n, c, L, C, seed, keep, path_keep)
    for t in tl.static_range(T):
        value = ys[t]
        if DROP:
            value *= factor
        if RESIDUAL:
            value += added[t]
        tl.store(y + t * step + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N", "L"])
def token_grad(
    x, weight, bias, grad, dx, partial, N, C, L, seed, keep, path_keep, eps, decay, threshold, sharpness, burst_step,
    T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr, BURST: tl.constexpr, DROP: tl.constexpr,
    ROWS: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx, and each program's sums of dL/dH and dL/dH * xhat -> partial [programs, 2, C].

    A program takes every so many-th tile; the next is on its way while one is worked on.
    """
    programs, tiles = tl.num_programs(0), tl.cdiv(N, ROWS)
    step = tl.cast(N, tl.int64) * C
    c = tl.arange(0, BC)
    _, first, there = _tile(tl.program_id(0), c, N, C, ROWS)
    w, b = _affine(weight, bias, c, C)
    one = tl.zeros([ROWS, BC], tl.float32)
    two = tl.zeros([ROWS, BC], tl.float32)
    next_x = _load_raw(x, first, there, step, T)
    next_g = _load_raw(grad, first, there, step, T)
    for tile in range(tl.program_id(0), tiles, programs):
        n, at, inside = _tile(tile, c, N, C, ROWS)
        xs = _widen(next_x, T)
        gs = _widen(next_g, T)
        _, after, within = _tile(tile + programs, c, N, C, ROWS)
        next_x = _load_raw(x, after, within, step, T)
        next_g = _load_raw(grad, after, within, step, T)
        hats, spreads, hs = _drives(xs, w, b, C, eps, inside, T)
        if DROP:
            factor = _gain(n, c, L, C, seed, keep, path_keep)
            scaled = ()
            for t in tl.static_range(T):
                scaled = scaled + (gs[t] * factor,)
            gs = scaled
        ds = respond_back(hs, gs, decay, threshold, sharpness, T, KIND, ATAN, burst_step, BURST)
        for t in tl.static_range(T):
            one += ds[t]
            two += ds[t] * hats[t]
            full = w * ds[t]
            mean = (tl.sum(full, axis=1) / C)[:, None]
            along = (tl.sum(full * hats[t], axis=1) / C)[:, None]
            value = spreads[t] * (full - mean - hats[t] * along)
            tl.store(dx + t * step + at, value.to(dx.dtype.element_ty), mask=inside)
    sums = partial + tl.program_id(0).to(tl.int64) * 2 * C + c
    tl.store(sums, tl.sum(one, axis=0), mask=c < C)
    tl.store(sums + C, tl.sum(two, axis=0), mask=c < C)


@triton.jit
def fire(
    x, y, N, decay, threshold, burst_step, T: tl.constexpr, KIND: tl.constexpr, BURST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The neuron alone: x [T, N] -> y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    hs = _load_steps(x, at, inside, N, T)
    ys = respond(hs, decay, threshold, T, KIND, burst_step, BURST)
    for t in tl.static_range(T):
        tl.store(y + t * tl.cast(N, tl.int64) + at, ys[t].to(y.dtype.element_ty), mask=inside)


@triton.jit
def fire_back(
    x, grad, dx, N, decay, threshold, sharpness, burst_step, T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr,
    BURST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    hs = _load_steps(x, at, inside, N, T)
    gs = _load_steps(grad, at, inside, N, T)
    ds = respond_back(hs, gs, decay, threshold, sharpness, T, KIND, ATAN, burst_step, BURST)
    for t in tl.static_range(T):
        tl.store(dx + t * tl.cast(N, tl.int64) + at, ds[t].to(dx.dtype.element_ty), mask=inside)
