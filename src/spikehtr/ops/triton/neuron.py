"""The nonlinearities as device functions: drives of all T steps in, outputs (or gradients of the drives) out.

Steps are a tuple of T tiles in fp32, so the membrane (Eq. 1) lives in registers and is never written. The backward
pass takes the same drives again and rebuilds the membrane from them. `ops/plain/neuron.py` is the specification.
"""
# mypy: ignore-errors
# ruff: noqa: RUF005 - the kernel language joins tuples with a plus only

from __future__ import annotations

import triton
import triton.language as tl

from spikehtr.ops import settings

LIF = tl.constexpr(settings.LIF)
GELU = tl.constexpr(settings.GELU)
SILU = tl.constexpr(settings.SILU)


@triton.jit
def _membranes(hs, decay, threshold, T: tl.constexpr):
    us = (hs[0],)
    for t in tl.static_range(1, T):
        us = us + (tl.where(us[t - 1] >= threshold, 0.0, decay * us[t - 1]) + hs[t],)
    return us


@triton.jit
def _plain(h, KIND: tl.constexpr):
    """The nonlinearities without memory."""
    if KIND == GELU:
        return 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
    elif KIND == SILU:
        return h * tl.sigmoid(h)
    else:
        return h


@triton.jit
def _plain_slope(h, KIND: tl.constexpr):
    if KIND == GELU:
        return 0.5 * (1.0 + tl.erf(h * 0.7071067811865476)) + h * 0.3989422804014327 * tl.exp(-0.5 * h * h)
    elif KIND == SILU:
        soft = tl.sigmoid(h)
        return soft * (1.0 + h * (1.0 - soft))
    else:
        return h * 0.0 + 1.0


@triton.jit
def _spikes(excess, burst_step, BURST: tl.constexpr):
    spikes = (excess >= 0.0).to(tl.float32)
    for number in tl.static_range(1, BURST):
        spikes += (excess - number * burst_step >= 0.0).to(tl.float32)
    return spikes


@triton.jit
def respond(hs, decay, threshold, T: tl.constexpr, KIND: tl.constexpr, burst_step, BURST: tl.constexpr):
    """Outputs of all steps."""
    if KIND == LIF:
        us = _membranes(hs, decay, threshold, T)
        ys = (_spikes(us[0] - threshold, burst_step, BURST),)
        for t in tl.static_range(1, T):
            ys = ys + (_spikes(us[t] - threshold, burst_step, BURST),)
        return ys
    else:
        ys = (_plain(hs[0], KIND),)
        for t in tl.static_range(1, T):
            ys = ys + (_plain(hs[t], KIND),)
        return ys


@triton.jit
def surrogate(excess, sharpness, ATAN: tl.constexpr):
    if ATAN:
        z = 1.5707963267948966 * sharpness * excess
        return 0.5 * sharpness / (1.0 + z * z)
    else:
        soft = tl.sigmoid(sharpness * excess)
        return sharpness * soft * (1.0 - soft)


@triton.jit
def _slope(excess, sharpness, ATAN: tl.constexpr, burst_step, BURST: tl.constexpr):
    slope = surrogate(excess, sharpness, ATAN)
    for number in tl.static_range(1, BURST):
        slope += surrogate(excess - number * burst_step, sharpness, ATAN)
    return slope


@triton.jit
def respond_back(
    hs, gs, decay, threshold, sharpness, T: tl.constexpr, KIND: tl.constexpr, ATAN: tl.constexpr,
    burst_step, BURST: tl.constexpr,
):  # fmt: skip
    """Gradients of the drives, given the outputs': the reset passes none."""
    if KIND == LIF:
        us = _membranes(hs, decay, threshold, T)
        after = gs[T - 1] * _slope(us[T - 1] - threshold, sharpness, ATAN, burst_step, BURST)
        ds = (after,)
        for i in tl.static_range(1, T):
            leak = tl.where(us[T - 1 - i] >= threshold, 0.0, decay)
            slope = _slope(us[T - 1 - i] - threshold, sharpness, ATAN, burst_step, BURST)
            after = gs[T - 1 - i] * slope + after * leak
            ds = (after,) + ds
        return ds
    else:
        ds = (gs[0] * _plain_slope(hs[0], KIND),)
        for t in tl.static_range(1, T):
            ds = ds + (gs[t] * _plain_slope(hs[t], KIND),)
        return ds
