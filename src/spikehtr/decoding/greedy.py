"""Greedy CTC decoding: the likeliest label of each frame, repeats collapsed, blanks dropped (the paper's)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.text import CharacterSpan, Charset


class Decoded(NamedTuple):
    """A line as decoded from its frames."""

    spans: list[CharacterSpan]  # characters and the frames [start, end) that spelled them
    confidences: list[float]  # of each character: the highest probability among its frames
    confidence: float  # of the line: the geometric mean of the chosen labels' probabilities, blanks included

    @property
    def text(self) -> str:
        return "".join(span.character for span in self.spans)


@torch.no_grad()
def decode_greedy(logits: Tensor, lengths: Tensor, charset: Charset) -> list[Decoded]:
    """logits [B, L, V], lengths [B] -> a Decoded for each line."""
    best = logits.float().log_softmax(-1).max(-1)
    log_probs, labels = best.values.cpu(), best.indices.cpu()  # [B, L]
    lines = []
    for row, frames, n in zip(log_probs, labels, lengths.tolist(), strict=True):
        spans = charset.decode_spans(frames[:n].tolist())
        confidences = [float(row[span.start : span.end].max().exp()) for span in spans]
        lines.append(Decoded(spans, confidences, float(row[:n].mean().exp())))
    return lines
