"""The mixer's two ways of weighing tokens as device code: linear attention's matched mean, and QK's gate.

Both read q, k (and v) where the projection left them, side by side in [T*B*L, n, heads, d/h], and write the gradient
to the same places, so that nothing is permuted in memory. PRECISION of products is three tf32 parts (fp32, but for a
digit), or one where q, k, v are half precision: those are tf32 as they are, counts of spikes too, and results are
rounded to half precision at once, which has no more digits.
"""
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from spikehtr.ops.triton.neuron import surrogate


@triton.jit
def _tokens(x, place, start, L, D, part, stride, heads, BL: tl.constexpr, BD: tl.constexpr):
    """Pointers and mask of tokens start.. of one line, step and head: [BL, BD]; `part` is 0, 1, 2 for q, k, v."""
    n = place // heads  # t * B + b
    l = start + tl.arange(0, BL)  # noqa: E741 - a token's place, as in the paper
    d = tl.arange(0, BD)
    row = x + (n.to(tl.int64) * L + l)[:, None] * stride + (part * heads + place % heads) * D
    return row + d[None, :], (l < L)[:, None] & (d < D)[None, :]


@triton.jit
def _context(qkv, mask, place, B, L, D, heads, PRECISION: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr):
    """sum_j k_j v_j^T [BD, BD] and sum_j k_j [BD] over the valid tokens of a line."""
    context = tl.zeros([BD, BD], tl.float32)
    total = tl.zeros([BD], tl.float32)
    b = (place // heads) % B
    for start in range(0, L, BL):
        at, inside = _tokens(qkv, place, start, L, D, 1, 3 * heads * D, heads, BL, BD)
        j = start + tl.arange(0, BL)
        valid = inside & (tl.load(mask + b * L + j, mask=j < L, other=0) != 0)[:, None]
        k = tl.load(at, mask=valid, other=0.0).to(tl.float32)
        v = tl.load(at + heads * D, mask=inside, other=0.0).to(tl.float32)
        context += tl.dot(tl.trans(k), v, input_precision=PRECISION)
        total += tl.sum(k, axis=0)
    return context, total


@triton.jit(do_not_specialize=["B", "L"])
def matched_mean(qkv, mask, y, B, L, D, heads, PRECISION: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr):
    """y_i = q_i (sum_j k_j v_j^T) / (1 + |q_i . sum_j k_j|); a program is one head of one line at one step."""
    place = tl.program_id(0)
    context, total = _context(qkv, mask, place, B, L, D, heads, PRECISION, BL, BD)
    for start in range(0, L, BL):
        at, inside = _tokens(qkv, place, start, L, D, 0, 3 * heads * D, heads, BL, BD)
        q = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        matched = tl.dot(q, context, input_precision=PRECISION)
        share = 1.0 + tl.abs(tl.sum(q * total[None, :], axis=1))
        out, inside = _tokens(y, place, start, L, D, 0, heads * D, heads, BL, BD)
        tl.store(out, (matched / share[:, None]).to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["B", "L"])
def matched_mean_back(
    qkv, mask, grad, dqkv, B, L, D, heads, PRECISION: tl.constexpr, BL: tl.constexpr, BD: tl.constexpr
):
    place = tl.program_id(0)
    context, total = _context(qkv, mask, place, B, L, D, heads, PRECISION, BL, BD)
    dcontext = tl.zeros([BD, BD], tl.float32)
    dtotal = tl.zeros([BD], tl.float32)
    for start in range(0, L, BL):
        at, inside = _tokens(qkv, place, start, L, D, 0, 3 * heads * D, heads, BL, BD)
        q = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        up, _ = _tokens(grad, place, start, L, D, 0, heads * D, heads, BL, BD)
        g = tl.load(up, mask=inside, other=0.0).to(tl.float32)
        shared = tl.sum(q * total[None, :], axis=1)
        share = 1.0 + tl.abs(shared)
        dmatched = g / share[:, None]
        matched = tl.dot(q, context, input_precision=PRECISION)
        dshare = -tl.sum(dmatched * matched, axis=1) / share
        dshared = tl.where(shared > 0, dshare, tl.where(shared < 0, -dshare, 0.0))
        dq = tl.dot(dmatched, tl.trans(context), input_precision=PRECISION) + dshared[:, None] * total[None, :]
        out, inside = _tokens(dqkv, place, start, L, D, 0, 3 * heads * D, heads, BL, BD)
        tl.store(out, dq.to(dqkv.dtype.element_ty), mask=inside)
        dcontext += tl.dot(tl.trans(q), dmatched, input_precision=PRECISION)
        dtotal += tl.sum(dshared[:, None] * q, axis=0)
    b = (place // heads) % B
    for start in range(0, L, BL):
        at, inside = _tokens(qkv, place, start, L, D, 1, 3 * heads * D, heads, BL, BD)
        j = start + tl.arange(0, BL)
        valid = inside & (tl.load(mask + b * L + j, mask=j < L, other=0) != 0)[:, None]
        k = tl.load(at, mask=valid, other=0.0).to(tl.float32)
        v = tl.load(at + heads * D, mask=inside, other=0.0).to(tl.float32)
        dk = tl.dot(v, tl.trans(dcontext), input_precision=PRECISION) + dtotal[None, :]
        dv = tl.dot(k, dcontext, input_precision=PRECISION)
        out, inside = _tokens(dqkv, place, start, L, D, 1, 3 * heads * D, heads, BL, BD)
        tl.store(out, tl.where(valid, dk, 0.0).to(dqkv.dtype.element_ty), mask=inside)
        tl.store(out + heads * D, dv.to(dqkv.dtype.element_ty), mask=inside)


@triton.jit
def _pair(qk, N, D, heads, ROWS: tl.constexpr, BD: tl.constexpr):
    """Places of q (k is heads * D further) and of y, for ROWS pairs of token and head."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, BD)
    inside = (r < N * heads)[:, None] & (d < D)[None, :]
    token = (r // heads).to(tl.int64)
    at = (token * 2 * heads + r % heads)[:, None] * D + d[None, :]
    return at, r.to(tl.int64)[:, None] * D + d[None, :], inside


@triton.jit(do_not_specialize=["N"])
def gate(qk, y, N, D, heads, SPIKING: tl.constexpr, ROWS: tl.constexpr, BD: tl.constexpr):
    """y = a * k, a = [sum(q) >= 0.5] head by head, or its sigmoid where there are no spikes."""
    at, out, inside = _pair(qk, N, D, heads, ROWS, BD)
    excess = tl.sum(tl.load(qk + at, mask=inside, other=0.0).to(tl.float32), axis=1) - 0.5
    a = (excess >= 0).to(tl.float32) if SPIKING else tl.sigmoid(excess)
    k = tl.load(qk + at + heads * D, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + out, (a[:, None] * k).to(y.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N"])
def gate_back(
    qk, grad, dqk, N, D, heads, sharpness, SPIKING: tl.constexpr, ATAN: tl.constexpr, ROWS: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    at, out, inside = _pair(qk, N, D, heads, ROWS, BD)
    excess = tl.sum(tl.load(qk + at, mask=inside, other=0.0).to(tl.float32), axis=1) - 0.5
    k = tl.load(qk + at + heads * D, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(grad + out, mask=inside, other=0.0).to(tl.float32)
    soft = tl.sigmoid(excess)
    a = (excess >= 0).to(tl.float32) if SPIKING else soft
    slope = surrogate(excess, sharpness, ATAN) if SPIKING else soft * (1.0 - soft)
    dq = (tl.sum(g * k, axis=1) * slope)[:, None] + g * 0.0
    tl.store(dqk + at, dq.to(dqk.dtype.element_ty), mask=inside)
    tl.store(dqk + at + heads * D, (a[:, None] * g).to(dqk.dtype.element_ty), mask=inside)
