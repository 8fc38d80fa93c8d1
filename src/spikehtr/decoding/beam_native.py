"""The search of `beam` in C (`readers/cpu/native/beam.c`): a line a task, on as many threads as PyTorch has."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.decoding.beam import BeamOptions, Candidates, CharacterChoice, Hypothesis, Scorer, SearchedLine


def search_native(candidates: Candidates, scorer: Scorer, options: BeamOptions) -> list[SearchedLine]:
    """As `search_reference`, for candidates on the host."""
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
    out = []
    for row in range(lines):
        sizes = text_lengths[row]
        hypotheses = [
            Hypothesis(texts[row, place, :size].tolist(), *scores[row, place].tolist())
            for place, size in enumerate(sizes.tolist())
            if size >= 0
        ]
        choices = [
            _choice(place, span, labels[row], log_probs[row], log_weights[row], texts[row, 0])
            for place, span in enumerate(spans[row, : sizes[0]].tolist())
        ]
        out.append(SearchedLine(hypotheses, choices))
    return out


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


def _choice(
    place: int,
    span: list[int],
    labels: NDArray[np.int32],
    log_probs: NDArray[np.float32],
    log_weights: NDArray[np.float64],
    text: NDArray[np.int32],
) -> CharacterChoice:
    """Of the character at a place of a line's text: what the search says of it, cut to the candidates there are."""
    start, end, clearest = span
    count = int((log_weights[place] > -np.inf).sum())  # the likeliest come first
    kept = labels[clearest, :count]
    chosen = int((kept == text[place]).argmax())
    frame = log_probs[clearest, :count].astype(np.float64)
    return CharacterChoice(start, end, kept, log_weights[place, :count], chosen, frame)
