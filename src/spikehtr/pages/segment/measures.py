"""How well the lines of a page were found, beyond recall and precision: split, merged, missed, false; reading order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.scoring import WHOLE, Points, covered, resample, score, tolerances_of

PART = 0.1  # share of a true line that a piece must cover to count as a part of it
TOUCHED = 0.3  # share covered from which a line is not missed, or not false


class PageScore(NamedTuple):
    """Shares of the true lines but for `precision`, `f` and `false` (shares of the found ones)."""

    recall: float
    precision: float
    f: float
    whole: float
    split: float  # two found lines or more lie on it
    merged: float  # it is covered by a found line that covers another as well
    missed: float
    false: float  # found lines that lie on no true one
    disorder: float  # share of pairs of lines found whole that are read in the other order
    jumps: float  # share of lines found whole after which another one is read than in the file
    lines: int


def page_score(true: Sequence[Any], found: Sequence[Any]) -> PageScore:
    """Baselines of one page, both in reading order."""
    base = score(true, found)
    split, merged, missed, false = _faults(true, found)
    disorder, jumps = order_errors([other for _, other in sorted(base.matches)])
    f = base.f_value
    return PageScore(
        base.recall, base.precision, f, base.whole, split, merged, missed, false, disorder, jumps, len(true)
    )


def _faults(true: Sequence[Any], found: Sequence[Any]) -> tuple[float, float, float, float]:
    if not true or not found:
        return 0.0, 0.0, float(bool(true)), float(bool(found))
    lines, others = [resample(line) for line in true], [resample(line) for line in found]
    forth, back = cover_tables(lines, others)
    on_one = (back >= WHOLE) & (forth >= PART)
    split = (on_one.sum(1) > 1).mean()
    over = forth >= WHOLE
    merged = (over & (over.sum(0) > 1)).any(1).mean()
    return float(split), float(merged), float((forth.max(1) < TOUCHED).mean()), float((back.max(0) < TOUCHED).mean())


def cover_tables(lines: Sequence[Points], others: Sequence[Points]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much of each true line each found one covers, and how much of each found one each true one does."""
    forth, back = np.zeros((len(lines), len(others))), np.zeros((len(lines), len(others)))
    low, high = (np.array([reduce(o, 0) for o in others]) for reduce in (np.min, np.max))
    for i, (line, tolerance) in enumerate(zip(lines, tolerances_of(lines), strict=True)):
        near = (line.min(0) - 3 * tolerance <= high).all(1) & (low <= line.max(0) + 3 * tolerance).all(1)
        for j in np.flatnonzero(near):
            forth[i, j] = covered(line, others[j], tolerance)
            back[i, j] = covered(others[j], line, tolerance)
    return forth, back


def order_errors(found: Sequence[int]) -> tuple[float, float]:
    """Of places in the found order, listed in the true order: share of pairs in the other order, and of jumps."""
    places = np.argsort(np.argsort(np.array(found)))  # the lines found whole, alone
    number = len(places)
    if number < 2:
        return 0.0, 0.0
    inversions = np.triu(places[:, None] > places[None], 1).sum()
    return float(inversions / (number * (number - 1) / 2)), float((np.diff(places) != 1).mean())
