"""The search of `beam` in C (`readers/cpu/native/beam.c`): a line a task, on as many threads as PyTorch has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.decoding.beam import BeamOptions, Candidates, Choices, Hypothesis, Scorer, SearchedLine


def search_native(candidates: Candidates, scorer: Scorer, options: BeamOptions) -> list[SearchedLine]:
    """As `search_reference`, for candidates on the host."""
    return begin_native(candidates, scorer, options)()


def begin_native(candidates: Candidates, scorer: Scorer, options: BeamOptions) -> Callable[[], list[SearchedLine]]:
    """Search; the function that makes lines of what was found, which takes the interpreter's time."""
    from spikehtr.readers.cpu.library import library

    lines, frames, count = candidates.log_probs.shape
    log_probs, labels = candidates.log_probs.numpy(), candidates.labels.numpy()
    lengths = candidates.lengths.int().numpy()
    texts = np.zeros((lines, options.best, frames), np.int32)
    text_lengths = np.zeros((lines, options.best), np.int32)
    scores = np.zeros((lines, options.best, 2))
    spans = np.zeros((lines, frames, 3), np.int32)
    log_weights = np.zeros((lines, frames, count))
    settings = np.array([options.weight, options.bonus])
    given = {"log_probs": log_probs, "labels": labels, "lengths": lengths, "settings": settings}
    given |= {"texts": texts, "text_lengths": text_lengths, "scores": scores, "spans": spans}
    given |= {"log_weights": log_weights} | _automaton(scorer)
    found = library()
    found.use_threads(torch.get_num_threads())
    found.call(
        "beam",
        **{name: values.ctypes.data for name, values in given.items()},
        lines=lines,
        frames=frames,
        candidates=count,
        beam=options.beam,
        best=options.best,
        sums=options.sums,
        start=scorer.start,
        reach=scorer.model.order - 1 if scorer.model else 0,
    )

    def lines_found() -> list[SearchedLine]:
        sizes = text_lengths[:, 0]
        choices = _choices(candidates, sizes, texts[:, 0], spans, log_weights).split(sizes.tolist())
        hypotheses = _hypotheses(texts, text_lengths, scores)
        return [SearchedLine(*line) for line in zip(hypotheses, choices, strict=True)]

    return lines_found


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


def _hypotheses(
    texts: NDArray[np.int32], lengths: NDArray[np.int32], scores: NDArray[np.float64]
) -> list[list[Hypothesis]]:
    """Of each line; texts [B, N, L], lengths [B, N] (-1 where there is no such text), scores [B, N, 2]."""
    labels = texts[np.arange(texts.shape[2]) < lengths[..., None]].tolist()
    ends = np.cumsum(np.maximum(lengths, 0)).reshape(lengths.shape).tolist()
    return [
        [Hypothesis(labels[end - size : end], *score) for size, end, score in zip(*line, strict=True) if size >= 0]
        for line in zip(lengths.tolist(), ends, scores.tolist(), strict=True)
    ]


def _choices(
    candidates: Candidates,
    sizes: NDArray[np.int32],  # [B]
    texts: NDArray[np.int32],  # [B, L]
    spans: NDArray[np.int32],  # [B, L, 3]
    log_weights: NDArray[np.float64],  # [B, L, K]
) -> Choices:
    """Of all characters of all lines, one line after the other."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    own = spans[rows, places]
    labels, log_probs = (part.numpy()[rows, own[:, 2]] for part in (candidates.labels, candidates.log_probs))
    chosen = (labels == texts[rows, places, None]).argmax(1)
    return Choices(own[:, :2], labels, log_probs, log_weights[rows, places], chosen)
