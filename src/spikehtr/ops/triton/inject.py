"""The gated injection X_t = S * gain_t (Eq. 7) as device code: S [P, C] is read once, X [T, P, C] written once."""
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["P"])
def spread(s, gain, x, P, C, T: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.arange(0, BC)
    inside = (p < P)[:, None] & (c < C)[None, :]
    at = p.to(tl.int64)[:, None] * C + c[None, :]
    value = tl.load(s + at, mask=inside, other=0.0).to(tl.float32)
    for t in tl.static_range(T):
        g = tl.load(gain + t * P + p, mask=p < P, other=0.0).to(tl.float32)
        out = value * g[:, None]
        tl.store(x + t * tl.cast(P, tl.int64) * C + at, out.to(x.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["P"])
def gather(s, gain, grad, ds, dgain, P, C, T: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.arange(0, BC)
    inside = (p < P)[:, None] & (c < C)[None, :]
    at = p.to(tl.int64)[:, None] * C + c[None, :]
    value = tl.load(s + at, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([BP, BC], tl.float32)
    for t in tl.static_range(T):
        d = tl.load(grad + t * tl.cast(P, tl.int64) * C + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(gain + t * P + p, mask=p < P, other=0.0).to(tl.float32)
        total += d * g[:, None]
        tl.store(dgain + t * P + p, tl.sum(d * value, axis=1), mask=p < P)
    tl.store(ds + at, total.to(ds.dtype.element_ty), mask=inside)
