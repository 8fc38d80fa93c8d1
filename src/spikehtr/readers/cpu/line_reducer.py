"""Keep-and-merge of one line, without a batch: what `model/reducer.py` computes, by the same rules."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spikehtr.config import ReducerConfig
from spikehtr.model.reducer import as_fraction
from spikehtr.readers.cpu.layers import Floats
from spikehtr.text import BLANK

_DELTA = np.float32(1e-6)


def reduce_line(tokens: Floats, preview: Floats, c: ReducerConfig) -> tuple[Floats, NDArray[np.int64]]:
    """tokens [T, L0, d], preview logits [L0, V] -> reduced tokens [T, l, d], spans [l, 2]."""
    size = len(preview)
    if c.mode == "none":
        first = np.arange(size)
        return tokens, np.stack([first, first + 1], axis=1)
    shifted = preview - preview.max(1, keepdims=True)
    posterior = np.exp(shifted)
    total = posterior.sum(1, keepdims=True)
    posterior /= total
    ink = posterior[:, BLANK + 1 :].sum(1, dtype=np.float64).astype(np.float32)  # 1 - the blank's, with all its digits
    kept = posterior[:, BLANK] < c.tau
    if c.mode != "merge-only":
        entropy = -(posterior * (shifted - np.log(total))).sum(1)
        kept |= entropy > c.eta
        least = max(int(kept.sum()), math.ceil(as_fraction(c.gamma) * size))
        kept = np.argsort(np.argsort(np.where(kept, -2.0, -ink), kind="stable"), kind="stable") < least
    if c.mode == "prune-only":
        first = np.flatnonzero(kept) if kept.any() else np.zeros(1, np.int64)
        return tokens[:, first], np.stack([first, first + 1], axis=1)
    place = np.arange(size)
    last_kept = np.maximum.accumulate(np.where(kept, place, -1))
    first = np.flatnonzero(kept | ((place - last_kept - 1) % c.k == 0))
    end = np.append(first[1:], size)
    ink += _DELTA
    share = ink / np.add.reduceat(ink, first).repeat(end - first)
    pooled = np.add.reduceat(tokens * share[:, None], first, axis=1, dtype=np.float32)
    return pooled, np.stack([first, end], axis=1)
