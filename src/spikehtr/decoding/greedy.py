"""Greedy CTC decoding: the likeliest label of each frame, repeats collapsed, blanks dropped (the paper's)."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spikehtr.decoding.beam import Choices
from spikehtr.decoding.records import records
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.results.line import Alternative
from spikehtr.text import BLANK, CharacterSpan, Charset


class Decoded(NamedTuple):
    """A line as decoded from its frames."""

    text: str  # a character of the charset each
    starts: list[int]  # of each character, the first of the frames that spelled it
    ends: list[int]  # and the frame after the last
    confidences: list[float]  # of each character: the highest probability among its frames
    confidence: float  # of the line: the mean of its characters', spaces too; 0 where nothing was read
    # Only a search with a language model knows these:
    alternatives: tuple[tuple[Alternative, ...], ...] = ()  # of each character; "": it should not be there
    texts: tuple[Alternative, ...] = ()  # other texts for the line, with their shares of what was found
    choices: Choices | None = None  # what confidences at any temperature follow from

    @property
    def spans(self) -> list[CharacterSpan]:
        return records(CharacterSpan, self.text, self.starts, self.ends)


class Frames(NamedTuple):
    """The likeliest label of each frame and its log-probability, on their way to the host; both [B, L]."""

    log_probs: HostCopy
    labels: HostCopy
    lengths: HostCopy  # [B]


@torch.no_grad()
def best_frames(logits: Tensor, lengths: Tensor) -> Frames:
    """logits [B, L, V], lengths [B] -> Frames. A GPU is asked for them without waiting."""
    best = logits.float().log_softmax(-1).max(-1)
    return Frames(HostCopy(best.values), HostCopy(best.indices), HostCopy(lengths))


def decode_frames(frames: Frames, charset: Charset) -> list[Decoded]:
    """Wait for the frames; a Decoded for each line.

    As `Charset.decode_spans` does it, for all lines at once: a GPU reads them faster than one could look at each.
    """
    log_probs, labels, lengths = (copy.wait().numpy() for copy in frames)
    count, size = labels.shape
    ended = np.full((count, size + 1), BLANK, np.int64)  # a blank after each line ends its last run
    np.copyto(ended[:, :-1], labels, where=np.arange(size) < lengths[:, None])
    begins = np.ones_like(ended, dtype=bool)
    begins[:, 1:] = ended[:, 1:] != ended[:, :-1]
    first = np.flatnonzero(begins)
    last = np.append(first[1:], begins.size)
    best = np.maximum.reduceat(np.pad(log_probs, ((0, 0), (0, 1))).ravel(), first) if first.size else log_probs.ravel()
    chosen = ended.ravel()[first]
    said = chosen != BLANK
    row, first, last, best, chosen = first[said] // (size + 1), first[said], last[said], best[said], chosen[said]
    if chosen.size and not 0 < chosen.min() <= chosen.max() < len(charset):
        raise SpikeHTRError(f"label {chosen.max()} is outside a charset of {len(charset)} labels")
    text, offsets = charset.text_of(chosen), row * (size + 1)
    starts, ends = (first - offsets).tolist(), (last - offsets).tolist()
    sure = list(map(math.exp, best.tolist()))
    bounds = np.searchsorted(row, np.arange(count + 1)).tolist()
    return [
        Decoded(text[a:b], starts[a:b], ends[a:b], own := sure[a:b], math.fsum(own) / max(1, b - a))
        for a, b in pairwise(bounds)
    ]


def decode_greedy(logits: Tensor, lengths: Tensor, charset: Charset) -> list[Decoded]:
    """logits [B, L, V], lengths [B] -> a Decoded for each line."""
    return decode_frames(best_frames(logits, lengths), charset)
