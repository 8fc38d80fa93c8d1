"""How well baselines were found: recall and precision as in the cBAD competitions, and whole lines found.

After T. Grüning et al., 'READ-BAD: a new dataset and evaluation scheme for baseline detection' (DAS 2018). Baselines
are points five pixels apart. A point is covered by a set of points as far as the nearest of them, at distance d, says:
fully up to the tolerance t, not at all from 3t on, linearly in between. The tolerance of a true line is a quarter of
its distance to the nearest other line. Recall is the mean over true lines of how much of each is covered by anything
found. Precision matches found and true lines one to one and is the mean over found lines of how much of each is covered
by its match; a line without one counts 0. Stricter, and nearer to what a reader needs: a true line is *whole* if one
found line covers at least WHOLE of it and is covered by it as much: neither split, nor merged, nor cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spikehtr.data.samples import Point

Points = NDArray[np.float64]  # [n, 2]
Line = Sequence[Point] | Points

STEP = 5.0
SHARE = 0.25  # of the distance between lines: the tolerance
ALONE = 50.0  # pixels: the distance between lines where there is one line only
WHOLE = 0.7


class Score(NamedTuple):
    recall: float
    precision: float
    whole: float  # share of true lines
    matches: list[tuple[int, int]]  # (true, found), of the lines found whole

    @property
    def f_value(self) -> float:
        total = self.recall + self.precision
        return 2 * self.recall * self.precision / total if total else 0.0


def score(true: Sequence[Line], found: Sequence[Line], cover: Cover | None = None) -> Score:
    """Baselines of one page; `cover` of the two where it is known."""
    if not len(true) or not len(found):
        return Score(float(not true), float(not found), float(not true), [])
    cover = cover or cover_of([resample(line) for line in true], [resample(line) for line in found])
    recall, forth, back = cover.recall.mean(), cover.forth, cover.back
    precision = sum(back[i, j] for i, j in _pairs(back, 1e-9)) / len(found)
    matches = _pairs(np.minimum(back, forth), WHOLE)
    return Score(float(recall), float(precision), len(matches) / len(true), matches)


def resample(line: Line) -> Points:
    """Points STEP pixels apart."""
    points = np.asarray(line, np.float64)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.linspace(0, along[-1], max(2, int(along[-1] / STEP) + 1))
    return np.stack([np.interp(places, along, points[:, axis]) for axis in (0, 1)], 1)


def tolerances_of(lines: Sequence[Points]) -> Points:
    """A quarter of each line's distance to the nearest other one above or below; the page's median where it has none.

    No line's distance counts for more than one and a half times the median: a heading far from the text is no easier.
    """
    ordered = [line[np.argsort(line[:, 0], kind="stable")] for line in lines]
    left, right = (np.array([line[end, 0] for line in ordered]) for end in (0, -1))
    distances = []
    for number, line in enumerate(lines):
        beside = np.flatnonzero((left <= right[number]) & (right >= left[number])).tolist()
        near = [_apart(line, ordered[other]) for other in beside if other != number]
        distances.append(min((apart for apart in near if apart is not None), default=np.nan))
    usual = float(np.nanmedian(distances)) if np.isfinite(distances).any() else ALONE
    tolerances: Points = SHARE * np.minimum(np.nan_to_num(np.array(distances), nan=usual), 1.5 * usual)
    return tolerances


def _apart(line: Points, other: Points) -> float | None:
    """The mean height between a line and another, whose points are ordered by x, where one is above the other.

    None where neither is, or both are one row.
    """
    xs, ys = other.T
    inside = (line[:, 0] >= xs[0]) & (line[:, 0] <= xs[-1])
    if not inside.any():
        return None
    apart = float(np.abs(line[inside, 1] - np.interp(line[inside, 0], xs, ys)).mean())
    return apart if apart > STEP else None


class Cover(NamedTuple):
    """How much of lines lies at points of others, 0 to 1."""

    recall: Points  # [true]: of each true line, by anything found
    forth: Points  # [true, found]: of each true line, by each found one
    back: Points  # [true, found]: of each found line, by each true one


def cover_of(lines: Sequence[Points], others: Sequence[Points]) -> Cover:
    """For each true line all found ones near it at once; what is farther than three tolerances covers nothing."""
    recall = np.zeros(len(lines))
    forth, back = np.zeros((len(lines), len(others))), np.zeros((len(lines), len(others)))
    low, high = (np.array([extreme(other, 0) for other in others]) for extreme in (np.min, np.max))
    for i, (line, tolerance) in enumerate(zip(lines, tolerances_of(lines), strict=True)):
        reach = 3 * tolerance
        near = np.flatnonzero((line.min(0) - reach <= high).all(1) & (low <= line.max(0) + reach).all(1)).tolist()
        if not near:
            continue
        points = np.concatenate([others[j] for j in near])
        starts = np.cumsum([0, *(len(others[j]) for j in near[:-1])])
        away = np.sqrt(((line[:, None] - points[None]) ** 2).sum(-1))  # [points of the line, points of the others]
        nearest = np.minimum.reduceat(away, starts, axis=1)  # [points of the line, near]
        recall[i] = _share(nearest.min(1), tolerance).mean()
        forth[i, near] = _share(nearest, tolerance).mean(0)
        counts = np.diff([*starts, len(points)])
        back[i, near] = np.add.reduceat(_share(away.min(0), tolerance), starts) / counts
    return Cover(recall, forth, back)


def _share(distances: Points, tolerance: float) -> Points:
    return np.clip((3 * tolerance - distances) / (2 * tolerance), 0, 1)


def _pairs(table: NDArray[np.float64], least: float) -> list[tuple[int, int]]:
    """Rows and columns one to one, best first."""
    left, pairs = table.copy(), []
    while left.size and left.max() >= least:
        i, j = (int(value) for value in np.unravel_index(left.argmax(), left.shape))
        pairs.append((i, j))
        left[i], left[:, j] = -1, -1
    return pairs
