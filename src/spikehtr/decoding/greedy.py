"""Greedy CTC decoding: the likeliest label of each frame, repeats collapsed, blanks dropped (the paper's)."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.decoding.beam import Choices
from spikehtr.ops.host_copy import HostCopy
from spikehtr.text import CharacterSpan, Charset


class Decoded(NamedTuple):
    """A line as decoded from its frames."""

    spans: list[CharacterSpan]  # characters and the frames [start, end) that spelled them
    confidences: list[float]  # of each character: the highest probability among its frames
    confidence: float  # of the line: the mean of its characters', spaces too; 0 where nothing was read
    # Only a search with a language model knows these:
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()  # of each character; "": it should not be there
    texts: tuple[tuple[str, float], ...] = ()  # other texts for the line, with their shares of what was found
    choices: Choices | None = None  # what confidences at any temperature follow from

    @property
    def text(self) -> str:
        return "".join(span.character for span in self.spans)


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
    """Wait for the frames; a Decoded for each line."""
    log_probs, labels, lengths = (copy.wait().tolist() for copy in frames)  # lists: a line has hundreds of lookups
    lines = []
    for row, chosen, n in zip(log_probs, labels, lengths, strict=True):
        spans = charset.decode_spans(chosen[:n])
        confidences = [math.exp(max(row[span.start : span.end])) for span in spans]
        lines.append(Decoded(spans, confidences, math.fsum(confidences) / max(1, len(confidences))))
    return lines


def decode_greedy(logits: Tensor, lengths: Tensor, charset: Charset) -> list[Decoded]:
    """logits [B, L, V], lengths [B] -> a Decoded for each line."""
    return decode_frames(best_frames(logits, lengths), charset)
