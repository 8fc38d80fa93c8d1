"""The leaky scan as device code: a program goes along one line, at one step, with some channels of one direction.

The tokens' values and leaks are read once and membranes stay in registers; the backward pass goes the other way and
reads the membranes that the forward pass wrote.
"""
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _channels(half, D, BC: tl.constexpr):
    """This program's channels and where its direction's end: the first half goes ahead, the rest behind."""
    behind = tl.program_id(2)
    c = behind * half + tl.program_id(1) * BC + tl.arange(0, BC)
    return behind, c, tl.where(behind == 1, D, half)


@triton.jit(do_not_specialize=["B", "L"])
def scan(driven, lengths, out, B, L, D, half, BC: tl.constexpr):
    """u_i = f_i u_{i-1} + (1 - f_i) v_i; 0 at padding."""
    n = tl.program_id(0).to(tl.int64)
    behind, c, end = _channels(half, D, BC)
    length = tl.load(lengths + n % B)
    u = tl.zeros([BC], tl.float32)
    for i in range(L):
        l = tl.where(behind == 1, L - 1 - i, i)  # noqa: E741 - a token's place, as in the paper
        at = n * L + l
        own = c < tl.where(l < length, end, 0)
        v = tl.load(driven + at * 2 * D + c, mask=own, other=0.0).to(tl.float32)
        f = tl.sigmoid(tl.load(driven + at * 2 * D + D + c, mask=own, other=0.0).to(tl.float32))
        u = tl.where(own, f * u + (1.0 - f) * v, 0.0)
        tl.store(out + at * D + c, u.to(out.dtype.element_ty), mask=c < end)


@triton.jit(do_not_specialize=["B", "L"])
def scan_back(driven, lengths, out, grad, ddriven, B, L, D, half, BC: tl.constexpr):
    """From the gradient of u to that of values and leaks; 0 at padding."""
    n = tl.program_id(0).to(tl.int64)
    behind, c, end = _channels(half, D, BC)
    length = tl.load(lengths + n % B)
    later = tl.zeros([BC], tl.float32)  # what the tokens after this one make of its membrane
    for i in range(L):
        l = tl.where(behind == 1, i, L - 1 - i)  # noqa: E741 - a token's place, as in the paper
        before = tl.where(behind == 1, l + 1, l - 1)
        at = n * L + l
        own = c < tl.where(l < length, end, 0)
        v = tl.load(driven + at * 2 * D + c, mask=own, other=0.0).to(tl.float32)
        f = tl.sigmoid(tl.load(driven + at * 2 * D + D + c, mask=own, other=0.0).to(tl.float32))
        reached = c < tl.where((before >= 0) & (before < length), end, 0)
        earlier = tl.load(out + (n * L + before) * D + c, mask=reached, other=0.0).to(tl.float32)
        du = tl.load(grad + at * D + c, mask=own, other=0.0).to(tl.float32) + tl.where(own, later, 0.0)
        dleak = du * (earlier - v) * f * (1.0 - f)
        tl.store(ddriven + at * 2 * D + c, ((1.0 - f) * du).to(ddriven.dtype.element_ty), mask=c < end)
        tl.store(ddriven + at * 2 * D + D + c, dleak.to(ddriven.dtype.element_ty), mask=c < end)
        later = f * du
