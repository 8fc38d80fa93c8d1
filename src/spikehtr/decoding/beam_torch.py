"""The search of `beam` for a batch of lines at a time in PyTorch, where the candidates are on a GPU.

A prefix is known by a 64-bit hash of its labels, so that a text that left the beam and comes back is the same again.
All shapes are fixed and the host never waits, so that a GPU runs ahead. Texts and their scores come from here; spans
and choices of the best one need a walk over a few candidates and are worked out on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.decoding.beam import (
    NEVER,
    BeamOptions,
    Candidates,
    Hypothesis,
    Scorer,
    SearchedLine,
    frames_of,
    searched,
)
from spikehtr.decoding.ngrams import END
from spikehtr.text import BLANK

_FACTOR = 6364136223846793005  # of the hash, modulo 2^64


class DeviceScorer:
    """A language model's arrays on a device."""

    def __init__(self, scorer: Scorer, device: torch.device) -> None:
        self.start, self.model = scorer.start, scorer.model
        self.tokens = torch.from_numpy(scorer.tokens).long().to(device)
        if scorer.model is None:
            return
        a = scorer.model.arrays

        def on_device(name: str) -> Tensor:
            return torch.from_numpy(a[name].copy()).to(device)

        self.size = len(scorer.model.vocabulary)
        self.keys = torch.from_numpy(scorer.model.keys).to(device)
        self.log_prob, self.backoff = on_device("log_prob").double(), on_device("backoff").double()
        self.to, self.backoff_state = on_device("to").long(), on_device("backoff_state").long()

    def step(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability of each token in its state, and the state after it; any shape, the same for both."""
        total = torch.zeros(states.shape, dtype=torch.float64, device=states.device)
        if self.model is None:
            return total, states
        result = total
        to = torch.zeros_like(states)
        found = torch.zeros(states.shape, dtype=torch.bool, device=states.device)
        for _ in range(self.model.order):  # the empty context, which has every token, comes last
            wanted = states * self.size + tokens
            place = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
            hit = (self.keys[place] == wanted) & ~found
            result = torch.where(hit, total + self.log_prob[place], result)
            to = torch.where(hit, self.to[place], to)
            found = found | hit
            total = total + self.backoff[states]
            states = self.backoff_state[states]
        return result, to


class SearchedBatch(NamedTuple):
    """Texts of each line, best first; a score of -inf where there is no such text."""

    texts: Tensor  # [B, N, L] labels, 0 past the end
    lengths: Tensor  # [B, N]
    scores: Tensor  # [B, N] fp64, what they are ranked by
    log_probs: Tensor  # [B, N] fp64, of the text given the image


def search_on_device(
    candidates: Candidates, on_device: DeviceScorer, scorer: Scorer, options: BeamOptions
) -> list[SearchedLine]:
    """As `search_reference`: the search where the candidates are, the best text's spans and choices on the host."""
    found = SearchedBatch(*(part.cpu() for part in search_torch(candidates, on_device, options)))
    out = []
    for row, frames in enumerate(frames_of(candidates)):
        hypotheses = [
            Hypothesis(text[:length], score, log_prob)
            for text, length, score, log_prob in zip(*(part[row].tolist() for part in found), strict=True)
            if score > NEVER
        ]
        out.append(searched(hypotheses, frames, scorer, options))
    return out


class _Beams(NamedTuple):
    """The prefixes of each line, best first; [B, W]."""

    blank: Tensor
    last: Tensor
    lm: Tensor
    length: Tensor
    state: Tensor
    label: Tensor  # the last one, -1 where there is none
    hash: Tensor


@torch.no_grad()
def search_torch(candidates: Candidates, scorer: DeviceScorer, options: BeamOptions) -> SearchedBatch:
    log_probs, labels = candidates.log_probs.double(), candidates.labels.long()  # [B, L, K]
    lines, frames, _ = log_probs.shape
    device, width = log_probs.device, options.beam
    none = torch.full((lines, width), NEVER, dtype=torch.float64, device=device)
    zero = torch.zeros(lines, width, dtype=torch.int64, device=device)
    blank = none.clone()
    blank[:, 0] = 0.0
    beams = _Beams(blank, none, torch.zeros_like(none), zero, zero + scorer.start, zero - 1, zero)
    parents, added = [], []
    for frame in range(frames):
        running = (frame < candidates.lengths.to(device))[:, None]
        fresh, parent, label = _advance(beams, log_probs[:, frame], labels[:, frame], scorer, options)
        own = torch.arange(width, device=device).expand(lines, width)
        beams = _Beams(*(torch.where(running, new, old) for new, old in zip(fresh, beams, strict=True)))
        parents.append(torch.where(running, parent, own))
        added.append(torch.where(running, label, -1))
    cost, _ = scorer.step(beams.state, torch.full_like(beams.state, END))
    sums = _log_add(beams.blank, beams.last, options.sums)
    scores = sums + options.weight * (beams.lm + cost) + options.bonus * beams.length
    count = min(options.best, width)
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    scores, order = scores[:, :count], order[:, :count]
    return SearchedBatch(
        _walk_back(order, parents, added, frames), beams.length.gather(1, order), scores, sums.gather(1, order)
    )


def _advance(
    beams: _Beams, log_probs: Tensor, labels: Tensor, scorer: DeviceScorer, options: BeamOptions
) -> tuple[_Beams, Tensor, Tensor]:
    """One more frame: the beams, which old prefix each is or continues, and the label it got (-1: none)."""
    width = beams.blank.shape[1]
    count = labels.shape[1]
    both = _log_add(beams.blank, beams.last, options.sums)  # [B, W]
    of_blank = log_probs.masked_fill(labels != BLANK, NEVER).amax(1, keepdim=True)  # [B, 1]
    same = labels[:, None, :] == beams.label[:, :, None]  # [B, W, K]
    of_last = log_probs[:, None, :].masked_fill(~same, NEVER).amax(2)  # [B, W]
    stays_blank, stays_last = both + of_blank, beams.last + of_last
    # Prefixes that are one label longer.
    longer = torch.where(same, beams.blank[:, :, None], both[:, :, None]) + log_probs[:, None, :]
    longer = longer.masked_fill(labels[:, None, :] == BLANK, NEVER)  # [B, W, K]
    hashes = (beams.hash[:, :, None] + 1) * _FACTOR + labels[:, None, :]
    # Those that are in the beam already: what is added to them is no new prefix.
    there = (hashes[..., None] == beams.hash[:, None, None, :]) & (beams.length > 0)[:, None, None, :]
    there = there & (longer > NEVER)[..., None] & (both > NEVER)[:, None, None, :]  # [B, W, K, W]
    joins = longer[..., None].masked_fill(~there, NEVER).flatten(1, 2).amax(1)  # a prefix has one parent
    stays_last = _log_add(stays_last, joins, options.sums)
    longer = longer.masked_fill(there.any(3), NEVER)
    cost, states = scorer.step(
        beams.state[:, :, None].expand(-1, -1, count), scorer.tokens[labels][:, None, :].expand(-1, width, -1)
    )
    every = _Beams(
        torch.cat([stays_blank, torch.full_like(longer, NEVER).flatten(1)], 1),
        torch.cat([stays_last, longer.flatten(1)], 1),
        torch.cat([beams.lm, (beams.lm[:, :, None] + cost).flatten(1)], 1),
        torch.cat([beams.length, (beams.length[:, :, None] + 1).expand(-1, -1, count).flatten(1)], 1),
        torch.cat([beams.state, states.flatten(1)], 1),
        torch.cat([beams.label, labels[:, None, :].expand(-1, width, -1).flatten(1)], 1),
        torch.cat([beams.hash, hashes.flatten(1)], 1),
    )
    ranks = _log_add(every.blank, every.last, options.sums) + options.weight * every.lm + options.bonus * every.length
    order = ranks.sort(dim=1, descending=True, stable=True).indices[:, :width]
    kept = _Beams(*(values.gather(1, order) for values in every))
    new = order >= width
    parent = torch.where(new, (order - width) // count, order)
    return kept, parent, torch.where(new, kept.label, -1)


def _log_add(a: Tensor, b: Tensor, sums: bool) -> Tensor:
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    if not sums:
        return high
    return torch.where(low == NEVER, high, high + (low - high).exp().log1p())


def _walk_back(order: Tensor, parents: list[Tensor], added: list[Tensor], frames: int) -> Tensor:
    """Texts [B, N, L] of the beams in `order` [B, N]."""
    if not frames:
        return order.new_zeros(*order.shape, 0)
    reversed_labels = []
    place = order
    for parent, label in zip(reversed(parents), reversed(added), strict=True):
        reversed_labels.append(label.gather(1, place))
        place = parent.gather(1, place)
    spelt = torch.stack(reversed_labels[::-1], 2)  # [B, N, L], -1 where nothing was added
    kept = (spelt < 0).to(torch.int8).sort(dim=2, stable=True).indices  # labels first, in order
    return spelt.gather(2, kept).clamp(min=0)
