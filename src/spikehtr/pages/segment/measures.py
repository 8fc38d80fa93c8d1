"""How well the lines of a page were found, beyond recall and precision: split, merged, missed, false; reading order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spikehtr.pages.score_lines import WHOLE, Cover, cover_of, resample, score

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
    cover = cover_of([resample(line) for line in true], [resample(line) for line in found]) if true and found else None
    base = score(true, found, cover)
    split, merged, missed, false = _faults(cover, bool(true), bool(found))
    disorder, jumps = order_errors([other for _, other in sorted(base.matches)])
    f = base.f_value
    return PageScore(
        base.recall, base.precision, f, base.whole, split, merged, missed, false, disorder, jumps, len(true)
    )


def _faults(cover: Cover | None, true: bool, found: bool) -> tuple[float, float, float, float]:
    if cover is None:
        return 0.0, 0.0, float(true), float(found)
    _, forth, back = cover
    on_one = (back >= WHOLE) & (forth >= PART)
    split = (on_one.sum(1) > 1).mean()
    over = forth >= WHOLE
    merged = (over & (over.sum(0) > 1)).any(1).mean()
    return float(split), float(merged), float((forth.max(1) < TOUCHED).mean()), float((back.max(0) < TOUCHED).mean())


def order_errors(found: Sequence[int]) -> tuple[float, float]:
    """Of places in the found order, listed in the true order: share of pairs in the other order, and of jumps."""
    places = np.argsort(np.argsort(np.array(found)))  # the lines found whole, alone
    number = len(places)
    if number < 2:
        return 0.0, 0.0
    inversions = np.triu(places[:, None] > places[None], 1).sum()
    return float(inversions / (number * (number - 1) / 2)), float((np.diff(places) != 1).mean())
