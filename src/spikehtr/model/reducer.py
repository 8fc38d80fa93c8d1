"""CTC-aware keep-and-merge (Section 3.4): fewer tokens before the deep mixer, in order, without breaking CTC.

A preview (logits of any CTC head, one row a position) says which positions are likely characters or uncertain: those
are kept as they are. Runs of the rest, confident blanks, are merged into spans of at most k. Usable with any CTC
recogniser: it needs tokens, their lengths and preview logits, and holds no parameters.

Modes: `keep-and-merge` (the paper's); `none`; and its two ablations, which the paper names but does not define:
`prune-only` drops what is not kept instead of merging it; `merge-only` merges every confident blank, without the two
guards that retain further positions (uncertainty and the minimum ratio).
"""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor, nn

from spikehtr.config import ReducerConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.ops.masks import at_least_fp32, valid_mask
from spikehtr.text import BLANK

_DELTA = 1e-6


class Reduction(NamedTuple):
    """Reduced tokens and where they came from. Rows past a line's length are zero."""

    tokens: Tensor  # [T, B, L, d]
    lengths: Tensor  # [B], l_b
    spans: Tensor  # [B, L, 2], first and one-past-last input position of each token
    weights: Tensor  # [B, L, k], share of each of a span's positions; a valid row sums to 1
    kept: Tensor  # [B, L0], the keep set K


def ctc_min_length(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """Fewest frames that can spell each target: its length, and a blank between equal neighbours. [B, U], [B] -> [B]"""
    inside = valid_mask(target_lengths, targets.shape[1])  # [B, U]
    repeats = (targets[:, 1:] == targets[:, :-1]) & inside[:, 1:]
    return target_lengths + repeats.sum(1)


def as_fraction(gamma: float) -> Fraction:
    """The number that was meant: products of floats may lie a hair above a whole number, whose ceiling is then one too
    many. No denominator above a million, so that int64 holds a length times the numerator."""
    return Fraction(repr(gamma)).limit_denominator(10**6)


def _check(tokens: Tensor, lengths: Tensor, preview: Tensor) -> None:
    if torch.compiler.is_compiling():  # a traced graph cannot hold it
        return
    if preview.dim() != 3 or tokens.dim() not in (3, 4) or tokens.shape[-3:-1] != preview.shape[:2]:
        shapes = f"{list(tokens.shape)} and {list(preview.shape)}"
        raise SpikeHTRError(f"tokens must be [T, B, L, d] or [B, L, d] and preview logits [B, L, V], not {shapes}")
    batch, size = preview.shape[:2]
    if batch == 0 or lengths.shape != (batch,) or lengths.is_floating_point():
        raise SpikeHTRError(
            f"lengths must be [{max(batch, 1)}] whole numbers, not {list(lengths.shape)} {lengths.dtype}"
        )
    if lengths.device.type == "cpu" and (lengths.min() < 1 or lengths.max() > size):  # a GPU would make the host wait
        raise SpikeHTRError(f"lengths must lie in 1..{size}, found {int(lengths.min())}..{int(lengths.max())}")


class CTCLengthReducer(nn.Module):
    """tokens [T, B, L0, d] (or [B, L0, d]), lengths [B], preview logits [B, L0, V] -> Reduction.

    L is the longest reduced length, the one number the host must learn of a batch. A traced graph keeps L = L0, since
    that length is data; so does training on a GPU, where waiting for it costs more than the shorter rows save, and who
    asks for it (`full`).
    `min_lengths` [B] (training only, from `ctc_min_length`): a line whose reduced length would fall below it is left
    unreduced, so that its transcript stays spellable.
    """

    def __init__(self, config: ReducerConfig | None = None) -> None:
        super().__init__()
        self.config = config or ReducerConfig()

    def forward(
        self,
        tokens: Tensor,
        lengths: Tensor,
        preview: Tensor,
        min_lengths: Tensor | None = None,
        full: bool = False,
    ) -> Reduction:
        c = self.config
        _check(tokens, lengths, preview)
        with nullcontext() if c.preview_gradient else torch.no_grad():
            pi = at_least_fp32(preview).softmax(-1)  # [B, L0, V]
            # 1 - p_blank, as a sum: next to 1 a difference would keep hardly a digit of it. In fp64, or its last digit
            # would hang on the order of summation.
            p_ink = pi[..., BLANK + 1 :].sum(-1, dtype=torch.float64).to(pi.dtype)  # [B, L0]
            ink = p_ink + _DELTA  # a(w); delta on each term, so that weights sum to 1 exactly
        kept = self._keep_set(pi.detach(), p_ink.detach(), lengths)
        slot, reduced = self._assign(kept, lengths)
        if min_lengths is not None:
            kept = kept | (reduced < min_lengths)[:, None] & valid_mask(lengths, kept.shape[1])
            slot, reduced = self._assign(kept, lengths)
        # Training on a GPU, the host should never wait: it has the whole backward pass still to ask for.
        full = full or torch.compiler.is_compiling() or (tokens.is_cuda and torch.is_grad_enabled())
        copy = None if full else HostCopy(reduced)
        spans = self._spans(slot)
        tokens, weights = self._pool(tokens, ink, spans)  # at L0, so that a GPU has work while the host waits
        if copy is not None:
            longest = int(copy.wait().max())
            tokens, spans, weights = tokens[..., :longest, :].contiguous(), spans[:, :longest], weights[:, :longest]
        return Reduction(tokens, reduced, spans, weights, kept)

    def _keep_set(self, pi: Tensor, p_ink: Tensor, lengths: Tensor) -> Tensor:
        """K (Eq. 16) and its minimum size: [B, L0] bool."""
        c = self.config
        valid = valid_mask(lengths, p_ink.shape[1])
        if c.mode == "none":
            return valid
        kept = (pi[..., BLANK] < c.tau) & valid
        if c.mode == "merge-only":
            return kept
        entropy = torch.special.entr(pi).sum(-1)  # Eq. 15
        kept = kept | (entropy > c.eta) & valid
        # Top up to ceil(gamma * L0): rank positions, the kept ones first, then the least sure of blank, padding last.
        part, whole = as_fraction(c.gamma).as_integer_ratio()
        least = (lengths.long() * part + whole - 1) // whole
        order = (-p_ink).masked_fill(kept, -2.0).masked_fill(~valid, 1.0)
        rank = order.argsort(dim=1, stable=True).argsort(dim=1)
        return rank < torch.maximum(kept.sum(1), least)[:, None]

    def _assign(self, kept: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The output slot of every input position, L0 for those without one, and the reduced lengths; [B, L0], [B]."""
        size = kept.shape[1]
        valid = valid_mask(lengths, size)
        if self.config.mode == "prune-only":
            kept = kept | (~kept.any(1, keepdim=True) & valid_mask(torch.ones_like(lengths), size))  # never empty
            starts = member = kept
        else:
            place = torch.arange(size, device=kept.device)
            last_kept = torch.where(kept, place, -1).cummax(dim=1).values  # nearest kept position at or before w
            starts = (kept | ((place - last_kept - 1) % self.config.k == 0)) & valid
            member = valid
        slot = starts.long().cumsum(1) - 1
        return torch.where(member, slot, size), starts.sum(1)

    @staticmethod
    def _spans(slot: Tensor) -> Tensor:
        """[B, L0] slots -> [B, L0, 2] first and one-past-last position of each slot; empty slots are (0, 0)."""
        batch, size = slot.shape
        place = torch.arange(size, device=slot.device).expand(batch, size)
        empty = slot.new_zeros(batch, size + 1)
        first = empty.scatter_reduce(1, slot, place, "amin", include_self=False)
        end = empty.scatter_reduce(1, slot, place + 1, "amax", include_self=False)
        return torch.stack([first, end], dim=-1)[:, :size]

    def _pool(self, tokens: Tensor, ink: Tensor, spans: Tensor) -> tuple[Tensor, Tensor]:
        """Blank-aware weighted mean of each span (Eqs. 17, 18), the same for every timestep: tokens and weights."""
        size, cap = spans.shape[1], self.config.longest
        member = spans[..., :1] + torch.arange(cap, device=spans.device)  # [B, L, k] input positions
        inside = member < spans[..., 1:]
        member = torch.minimum(member, (spans[..., 1:] - 1).clamp(min=0)).flatten(1)  # [B, L*k]
        share = ink.gather(1, member).unflatten(1, (size, cap)) * inside
        weights = share / share.sum(-1, keepdim=True).clamp(min=_DELTA)  # [B, L, k]
        index = member[:, :, None].expand(*tokens.shape[:-2], -1, tokens.shape[-1])
        picked = tokens.gather(-2, index).unflatten(-2, (size, cap))  # [T, B, L, k, d]
        pooled = torch.where(inside[..., None], picked * weights[..., None], 0.0).sum(-2)  # [T, B, L, d]
        return pooled.to(tokens.dtype), weights
