"""CTC cost and gradient with every length left on the device: `torch`'s own reads them back and so stops the host.

A program takes one line and walks its frames; the states (labels with blanks between) of one frame are one tile. The
forward pass keeps alpha; the backward pass walks back and turns alpha and beta into each state's share of the frame,
which one small matrix product gathers by label. No atomics, so gradients repeat. `model.losses.ctc` is the
specification: costs of lines that cannot be spelled are 0.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.kernels.layout import on_device, power_of_two

_NEVER = tl.constexpr(-1e30)  # log of no chance at all, finite so that differences stay numbers
_IMPOSSIBLE = 1e29


@triton.jit
def _states(targets, target_lengths, U, S: tl.constexpr):
    """Number of labels, states, their labels (blank is 0), which exist, and which may be reached past a blank."""
    b = tl.program_id(0)
    u = tl.load(target_lengths + b).to(tl.int32)
    s = tl.arange(0, S)
    inside = s < 2 * u + 1
    is_label = inside & (s % 2 == 1)
    label = tl.load(targets + b * U + s // 2, mask=is_label, other=0).to(tl.int32)
    before = tl.load(targets + b * U + s // 2 - 1, mask=is_label & (s > 1), other=0).to(tl.int32)
    return u, s, label, inside, is_label & (s > 1) & (label != before)


@triton.jit
def _either(a, b, c):
    """log(exp a + exp b + exp c)"""
    most = tl.maximum(tl.maximum(a, b), c)
    return most + tl.log(tl.exp(a - most) + tl.exp(b - most) + tl.exp(c - most))


@triton.jit
def ctc_alpha(log_probs, lengths, targets, target_lengths, alpha, cost, L, V, U, S: tl.constexpr):
    """log_probs [B, L, V] -> alpha [B, L, S], the largest of each frame taken off and summed apart, and cost [B].

    As plain logarithms a long line's would be in the hundreds, and fp32 has few digits left there.
    """
    b = tl.program_id(0)
    n = tl.load(lengths + b).to(tl.int32)
    u, s, label, inside, skips = _states(targets, target_lengths, U, S)
    frame = log_probs + b.to(tl.int64) * L * V
    out = alpha + b.to(tl.int64) * L * S + s
    a = tl.where(inside & (s < 2), tl.load(frame + label), _NEVER)
    tl.store(out, a)
    scale = tl.zeros([1], tl.float64)
    for t in range(1, n):
        one = tl.where(s > 0, tl.gather(a, tl.maximum(s - 1, 0), 0), _NEVER)
        two = tl.where(skips, tl.gather(a, tl.maximum(s - 2, 0), 0), _NEVER)
        a = tl.where(inside, _either(a, one, two) + tl.load(frame + t * V + label), _NEVER)
        most = tl.max(a, axis=0)
        a -= most
        scale += most
        tl.store(out + t * S, a)
    last = tl.where(inside & (s >= 2 * u - 1), a, _NEVER)
    most = tl.max(last, axis=0)
    ends = most + tl.log(tl.sum(tl.exp(last - most), axis=0))
    tl.store(cost + b + tl.arange(0, 1), (-(scale + ends)).to(tl.float32))


@triton.jit
def ctc_shares(log_probs, lengths, targets, target_lengths, alpha, cost, shares, L, V, U, limit, S: tl.constexpr):
    """shares [B, L, S]: how likely each state is at each frame, given the target. Rows past a line's end stay as is."""
    b = tl.program_id(0)
    n = tl.load(lengths + b).to(tl.int32)
    u, s, label, inside, _ = _states(targets, target_lengths, U, S)
    frame = log_probs + b.to(tl.int64) * L * V
    first = b.to(tl.int64) * L * S + s
    counts = tl.where(inside, tl.load(cost + b), limit) < limit
    leaps = inside & (s % 2 == 1) & (s + 2 < 2 * u)
    leaps = leaps & (label != tl.load(targets + b * U + s // 2 + 1, mask=leaps, other=0).to(tl.int32))
    beta = tl.where(inside & (s >= 2 * u - 1), 0.0, _NEVER)  # without its own frame's probability
    for i in range(n):
        t = n - 1 - i
        both = tl.where(inside, tl.load(alpha + first + t * S) + beta, _NEVER)
        share = tl.exp(both - tl.max(both, axis=0))
        tl.store(shares + first + t * S, tl.where(counts, share / tl.sum(share, axis=0), 0.0))
        after = tl.where(inside, beta + tl.load(frame + t * V + label), _NEVER)
        one = tl.where(s < 2 * u, tl.gather(after, tl.minimum(s + 1, S - 1), 0), _NEVER)
        two = tl.where(leaps, tl.gather(after, tl.minimum(s + 2, S - 1), 0), _NEVER)
        beta = tl.where(inside, _either(after, one, two), _NEVER)
        beta -= tl.max(beta, axis=0)


class _CTC(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, lengths: Tensor, target_lengths: Tensor) -> Tensor:
        batch, frames, labels = log_probs.shape
        states = power_of_two(2 * targets.shape[1] + 1)
        alpha, cost = log_probs.new_empty(batch, frames, states), log_probs.new_empty(batch)
        with on_device(log_probs):
            ctc_alpha[(batch,)](
                log_probs, lengths, targets, target_lengths, alpha, cost,
                frames, labels, targets.shape[1], S=states, num_warps=_warps(states),
            )  # fmt: skip
        ctx.save_for_backward(log_probs, targets, lengths, target_lengths, alpha, cost)
        return torch.where(cost < _IMPOSSIBLE, cost, 0.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        log_probs, targets, lengths, target_lengths, alpha, cost = ctx.saved_tensors
        batch, frames, labels = log_probs.shape
        states = alpha.shape[2]
        shares = torch.zeros_like(alpha)
        with on_device(log_probs):
            ctc_shares[(batch,)](
                log_probs, lengths, targets, target_lengths, alpha, cost, shares,
                frames, labels, targets.shape[1], _IMPOSSIBLE, S=states, num_warps=_warps(states),
            )  # fmt: skip
        own = targets.new_zeros(batch, states)  # the label of each state; those past the end have no share
        own[:, 1 : 2 * targets.shape[1] : 2] = targets
        which = (own[:, :, None] == torch.arange(labels, device=own.device)).to(shares.dtype)  # [B, S, V]
        return torch.bmm(shares * -grad[:, None, None], which), None, None, None


def _warps(states: int) -> int:
    return max(1, min(8, states // 64))


def ctc_costs(log_probs: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """log_probs [B, L, V] in fp32, lengths [B], targets [B, U] of labels, target_lengths [B] -> -log p(target) [B].

    Label 0 is the blank. A line too short to spell its target costs 0 and gives no gradient.
    """
    costs: Tensor = _CTC.apply(
        log_probs.contiguous(), targets.contiguous(), lengths.contiguous(), target_lengths.contiguous()
    )
    return costs
