"""CTC cost and gradient with every length left on the device: `torch`'s own reads them back and so stops the host.

A program takes one line and walks its frames, from the first on or from the last one back: the backward recursion is
the forward one of the line turned round, so both are one kernel and run side by side. A frame's states are two tiles,
the blanks and the labels behind them: blank i follows blank i and label i - 1, label i follows itself, blank i and,
unless they are alike, label i - 1. Both walks together give each state's share of a frame, which one small matrix
product gathers by label. No atomics, so gradients repeat. `ops.plain.ctc` is the specification: costs of lines
that cannot be spelled are 0.
"""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device, power_of_two

_NEVER = tl.constexpr(-1e30)  # log of no chance at all, finite so that differences stay numbers
_IMPOSSIBLE = 1e29
_STATES = 128  # blanks, and labels, of a warp: alone it need not wait for others, and a frame is all waiting
_ROWS = 8  # frames of a program that takes shares


@triton.jit
def _either(a, b):
    """log(exp a + exp b)"""
    most = tl.maximum(a, b)
    return most + tl.log(1.0 + tl.exp(tl.minimum(a, b) - most))


@triton.jit
def _any(a, b, c):
    """log(exp a + exp b + exp c)"""
    most = tl.maximum(tl.maximum(a, b), c)
    return most + tl.log(tl.exp(a - most) + tl.exp(b - most) + tl.exp(c - most))


@triton.jit
def ctc_walk(log_probs, lengths, targets, target_lengths, states, cost, L, V, U, HALF: tl.constexpr):
    """log_probs [B, L, V] -> states [ways, B, L, 2, HALF], blanks and labels, and cost [B].

    The first way gives alpha, the second beta without its own frame's probability. The largest of each frame is taken
    off and summed apart: as plain logarithms a long line's would be in the hundreds, where fp32 has few digits left.
    """
    b, back = tl.program_id(0), tl.program_id(1)
    n = tl.load(lengths + b).to(tl.int32)
    u = tl.load(target_lengths + b).to(tl.int32)
    i = tl.arange(0, HALF)
    is_blank, is_label = i <= u, i < u
    mine = tl.where(back == 1, u - 1 - i, i)  # the i-th label on this way
    label = tl.load(targets + b * U + mine, mask=is_label, other=0).to(tl.int32)
    before = tl.load(targets + b * U + mine - 1 + 2 * back, mask=is_label & (i > 0), other=0).to(tl.int32)
    leaps = is_label & (i > 0) & (label != before)
    frames = log_probs + b.to(tl.int64) * L * V
    out = states + (back * tl.num_programs(0) + b).to(tl.int64) * L * 2 * HALF
    blank_place, label_place = tl.where(back == 1, u - i, i), HALF + mine

    at = tl.where(back == 1, tl.maximum(n - 1, 0), 0)
    ahead_blank = tl.load(frames + at * V + i * 0)
    ahead_label = tl.load(frames + at * V + label)
    to_blank = tl.where(i == 0, 0.0, _NEVER)  # how likely a state is come to, before its frame is seen
    to_label = tl.where(is_label & (i == 0), 0.0, _NEVER)
    most = tl.max(to_blank, axis=0)
    last = to_blank
    scale = tl.zeros([1], tl.float64)
    for _ in range(n):
        row = out + at.to(tl.int64) * 2 * HALF
        blank = tl.where(is_blank, to_blank + ahead_blank, _NEVER)
        own = tl.where(is_label, to_label + ahead_label, _NEVER)
        at = tl.where(back == 1, tl.maximum(at - 1, 0), tl.minimum(at + 1, n - 1))
        ahead_blank = tl.load(frames + at * V + i * 0)  # on its way while this frame is worked on
        ahead_label = tl.load(frames + at * V + label)
        behind = tl.where(i > 0, tl.gather(own, tl.maximum(i - 1, 0), 0), _NEVER)
        most = tl.max(tl.maximum(blank, own), axis=0)
        tl.store(row + blank_place, tl.where(back == 1, to_blank, blank - most), mask=is_blank)
        tl.store(row + label_place, tl.where(back == 1, to_label, own - most), mask=is_label)
        # A line ends in its last blank or its last label, which lie in different places.
        last = tl.maximum(tl.where(i == u, blank, _NEVER), tl.where(i == u - 1, own, _NEVER)) - most
        to_blank = _either(blank, behind) - most
        to_label = _any(own, blank, tl.where(leaps, behind, _NEVER)) - most
        scale += most
    most = tl.max(last, axis=0)
    ends = most + tl.log(tl.sum(tl.exp(last - most), axis=0))
    if back == 0:
        tl.store(cost + b + tl.arange(0, 1), (-(scale + ends)).to(tl.float32))


@triton.jit
def ctc_shares(
    states, lengths, target_lengths, cost, grad, shares, B, L, limit, ROWS: tl.constexpr, HALF: tl.constexpr
):
    """shares [B, L, 2 * HALF]: how likely each state is at each frame, given the target, times minus the cost's
    gradient; 0 past a line's end."""
    b = tl.program_id(0)
    n = tl.load(lengths + b).to(tl.int32)
    u = tl.load(target_lengths + b).to(tl.int32)
    t = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    s = tl.arange(0, 2 * HALF)
    inside = (s <= u) | ((s >= HALF) & (s < HALF + u))
    valid = (t < n)[:, None] & inside[None, :]
    at = (b * L + t).to(tl.int64)[:, None] * (2 * HALF) + s[None, :]
    way = tl.cast(B, tl.int64) * L * (2 * HALF)
    both = tl.load(states + at, mask=valid, other=_NEVER) + tl.load(states + way + at, mask=valid, other=_NEVER)
    share = tl.exp(both - tl.max(both, axis=1)[:, None])
    factor = tl.where(tl.load(cost + b) < limit, -tl.load(grad + b), 0.0)
    share = tl.where(valid, share / tl.sum(share, axis=1)[:, None] * factor, 0.0)
    tl.store(shares + at, share, mask=(t < L)[:, None])


class _CTC(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, lengths: Tensor, target_lengths: Tensor) -> Tensor:
        batch, frames, labels = log_probs.shape
        half = power_of_two(targets.shape[1] + 1)
        ways = 2 if ctx.needs_input_grad[0] else 1
        states, cost = log_probs.new_empty(ways, batch, frames, 2, half), log_probs.new_empty(batch)
        with on_device(log_probs):
            launch(ctc_walk, (batch, ways),
                log_probs, lengths, targets, target_lengths, states, cost,
                frames, labels, targets.shape[1], HALF=half, num_warps=_warps(half),
            )  # fmt: skip
        ctx.save_for_backward(states, targets, lengths, target_lengths, cost)
        ctx.labels = labels
        return torch.where(cost < _IMPOSSIBLE, cost, 0.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        states, targets, lengths, target_lengths, cost = ctx.saved_tensors
        _, batch, frames, _, half = states.shape
        shares = states.new_empty(batch, frames, 2 * half)
        with on_device(states):
            launch(ctc_shares, (batch, triton.cdiv(frames, _ROWS)),
                states, lengths, target_lengths, cost, grad.contiguous(), shares, batch, frames, _IMPOSSIBLE,
                ROWS=_ROWS, HALF=half,
            )  # fmt: skip
        own = targets.new_zeros(batch, 2 * half)  # the label of each state; those past the end have no share
        own[:, half : half + targets.shape[1]] = targets
        which = (own[:, :, None] == torch.arange(ctx.labels, device=own.device)).to(shares.dtype)  # [B, S, V]
        return torch.bmm(shares, which), None, None, None


def _warps(half: int) -> int:
    return max(1, min(8, half // _STATES))


def ctc_costs(log_probs: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """log_probs [B, L, V] in fp32, lengths [B], targets [B, U] of labels, target_lengths [B] -> -log p(target) [B].

    Label 0 is the blank. A line too short to spell its target costs 0 and gives no gradient.
    """
    costs: Tensor = _CTC.apply(
        log_probs.contiguous(), targets.contiguous(), lengths.contiguous(), target_lengths.contiguous()
    )
    return costs
