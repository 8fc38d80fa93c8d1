"""The search of `beam` in C (`readers/cpu/native/beam.c`): a line a task, on as many threads as PyTorch has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.decoding.beam import BeamOptions, Candidates, Choices, Scorer
from spikehtr.decoding.confidence import LEAST, Calibration, Judged


class NativeSearch(NamedTuple):
    """What was found in a batch, as C left it: past a line's own characters there is nothing."""

    texts: NDArray[np.int32]  # [B, N, L]
    text_lengths: NDArray[np.int32]  # [B, N], -1 where there is no such text
    scores: NDArray[np.float64]  # [B, N, 2]
    spans: NDArray[np.int32]  # [B, L, 3]
    log_weights: NDArray[np.float64]  # [B, L, K]
    frame_labels: NDArray[np.int32]  # [B, L, K]
    frame_log_probs: NDArray[np.float32]  # [B, L, K]
    chosen: NDArray[np.int64]  # [B, L]
    confidences: NDArray[np.float64]  # [B, L]
    other_counts: NDArray[np.int32]  # [B, L]
    other_labels: NDArray[np.int32]  # [B, L, K]
    other_shares: NDArray[np.float64]  # [B, L, K]

    @property
    def sizes(self) -> list[int]:
        """Characters of each line; none where no text was found, as of frames that are no numbers."""
        found: list[int] = np.maximum(self.text_lengths[:, 0], 0).tolist()
        return found

    def _own(self, values: NDArray[Any]) -> NDArray[Any]:
        """Those of the lines' own characters, one line after the other: [B, L, ...] -> [C, ...]."""
        places = np.flatnonzero(np.arange(self.spans.shape[1]) < self.text_lengths[:, :1])
        return values.reshape(-1, *values.shape[2:]).take(places, 0)

    def choices(self) -> Choices:
        """Of all characters of all lines."""
        frame = self._own(self.frame_labels), self._own(self.frame_log_probs), self._own(self.log_weights)
        return Choices(self._own(self.spans)[:, :2], *frame, self._own(self.chosen))

    def judged(self) -> Judged:
        counts = self._own(self.other_counts)
        kept = np.arange(self.other_labels.shape[2]) < counts[:, None]
        labels, shares = (self._own(values)[kept] for values in (self.other_labels, self.other_shares))
        return Judged(self._own(self.confidences), counts, labels, shares)

    @property
    def all_labels(self) -> NDArray[np.int32]:
        """Of all texts of all lines, one after the other."""
        return self.texts[np.arange(self.texts.shape[2]) < self.text_lengths[..., None]]


def search_native(
    candidates: Candidates, scorer: Scorer, options: BeamOptions, calibration: Calibration | None = None
) -> NativeSearch:
    """As `search_reference` and then `judge`, for candidates on the host."""
    return prepare_search(candidates, scorer, options, calibration)(torch.get_num_threads())


def prepare_search(
    candidates: Candidates, scorer: Scorer, options: BeamOptions, calibration: Calibration | None = None
) -> Callable[[int], NativeSearch]:
    """`search_native` as a function of the number of threads, which does nothing in Python but call into C: another
    thread that runs it takes next to nothing from Python."""
    from spikehtr.readers.cpu.library import library

    lines, frames, count = candidates.log_probs.shape
    every, best = (lines, frames, count), (lines, options.best)
    out = NativeSearch(
        np.empty((*best, frames), np.int32),
        np.zeros(best, np.int32),
        np.zeros((*best, 2)),
        np.empty((lines, frames, 3), np.int32),
        np.empty(every),
        np.empty(every, np.int32),
        np.empty(every, np.float32),
        np.empty((lines, frames), np.int64),
        np.empty((lines, frames)),
        np.empty((lines, frames), np.int32),
        np.empty(every, np.int32),
        np.empty(every),
    )
    log_probs, labels = candidates.log_probs.numpy(), candidates.labels.numpy()
    lengths = candidates.lengths.int().numpy()
    settings = np.array([options.weight, options.bonus, *(calibration or Calibration()), LEAST])
    given = {"log_probs": log_probs, "labels": labels, "lengths": lengths, "settings": settings}
    given |= out._asdict() | _automaton(scorer)
    found = library()
    call = found.prepare(
        "beam",
        given,
        lines=lines,
        frames=frames,
        candidates=count,
        beam=options.beam,
        best=options.best,
        sums=options.sums,
        start=scorer.start,
        reach=scorer.model.order - 1 if scorer.model else 0,
    )

    def run(threads: int) -> NativeSearch:
        found.use_threads(threads)
        call()
        return out

    return run


def _automaton(scorer: Scorer) -> dict[str, NDArray[np.generic]]:
    if scorer.model is None:
        return {}
    a = scorer.model.arrays
    names = ("first_arc", "backoff_state", "to", "backoff")
    return {name: a[name] for name in names} | {
        "arc_label": a["label"],
        "arc_log_prob": a["log_prob"],
        "tokens": scorer.tokens,
    }
