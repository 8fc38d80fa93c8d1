"""Where a column begins, the lines of a page agree: all of them end and begin there, or none does.

Rows of tables run on over columns in some files and end with each in others, and so a network cuts some rows of a page
and not others. Here the more frequent way is taken for all rows nearby.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
# Heights of a line, but for MARK and OFTEN; chosen on left-out collections.
ALIGNED = 1.0  # lines that begin so near each other begin at the same column
AROUND = 15.0  # rows up to so far above and below have a say
WITHIN = 2.0  # a line runs on over a column's edge if it reaches so far to both sides
BESIDE = 8.0  # widest gap between a line and the one before it in its row
LEVEL = 0.4  # farthest that a row's lines are out of level
OFTEN = 2  # more lines than so many times those that run on have to begin at an edge for these to be cut there
MARK = 0.2  # least probability of an end where a line that runs on is cut


class _Ends(NamedTuple):
    left: Floats
    right: Floats
    y_left: Floats
    y_right: Floats
    height: Floats


def agree_on_columns(chains: Sequence[Floats], ends: Floats, tall: Floats, gap: float) -> list[Floats]:
    """Lines, as points [n, 3] (x, y, probability), joined and cut where most others on their page are.

    `ends` is the map of starts and ends, `tall` that of heights; lines farther apart than `gap` heights are not joined.
    """
    if len(chains) < 3:
        return list(chains)
    at = _Ends(
        np.array([chain[0, 0] for chain in chains]),
        np.array([chain[-1, 0] for chain in chains]),
        np.array([chain[:3, 1].mean() for chain in chains]),
        np.array([chain[-3:, 1].mean() for chain in chains]),
        np.array([_height(chain, tall) for chain in chains]),
    )
    between, before = _neighbours(at)
    begin = np.flatnonzero(np.isfinite(between))
    joins: list[tuple[float, int, int]] = []
    cuts: dict[int, set[int]] = defaultdict(set)
    for line in begin.tolist():
        x, y, size = at.left[line], at.y_left[line], at.height[line]
        near = (np.abs(at.left[begin] - x) < ALIGNED * size) & (np.abs(at.y_left[begin] - y) < AROUND * size)
        over = np.flatnonzero((at.left < x - WITHIN * size) & (at.right > x + WITHIN * size)).tolist()
        over = [other for other in over if abs(_level(chains[other], x) - y) < AROUND * size]
        if len(over) > near.sum():
            if between[line] < gap * max(size, at.height[before[line]]):
                joins.append((float(between[line]), int(before[line]), line))
        elif near.sum() > OFTEN * len(over):
            for other in over:
                place = _strongest(ends, x, _level(chains[other], x), 1.5 * size)
                if place is not None:
                    cuts[other].add(place)
    return _joined(chains, joins, cuts)


def _height(chain: Floats, tall: Floats) -> float:
    rows = np.clip(chain[:, 1].round().astype(np.int64), 0, tall.shape[0] - 1)
    return float(np.median(tall[rows, chain[:, 0].astype(np.int64)]))


def _neighbours(at: _Ends) -> tuple[Floats, NDArray[np.int64]]:
    """For each line the gap to the nearest line before it in its row (infinite: none is), and which that is."""
    size = np.maximum(at.height[:, None], at.height[None])
    gap = at.left[None] - at.right[:, None]  # [the line before, the line]
    level = np.abs(at.y_left[None] - at.y_right[:, None])
    beside = (gap > -0.7 * size) & (gap < BESIDE * size) & (level < LEVEL * size)
    beside &= (at.left[:, None] < at.left[None]) & (at.right[:, None] < at.right[None])
    gaps = np.where(beside, gap, np.inf)
    return gaps.min(0), gaps.argmin(0)


def _level(chain: Floats, x: float) -> float:
    return float(np.interp(x, chain[:, 0], chain[:, 1]))


def _strongest(ends: Floats, x: float, y: float, reach: float) -> int | None:
    """The column near a point in which an end is likeliest, where it is likely enough."""
    first = max(0, int(x - reach))
    window = ends[max(0, int(y - 2)) : int(y + 3), first : int(x + reach + 1)]
    if not window.size or window.max() <= MARK:
        return None
    return first + int(window.max(0).argmax())


def _joined(
    chains: Sequence[Floats], joins: Sequence[tuple[float, int, int]], cuts: dict[int, set[int]]
) -> list[Floats]:
    """What is cut is not joined; of several lines that could go on in one, the nearest does."""
    following: dict[int, int] = {}
    taken: set[int] = set()
    for _, one, other in sorted(joins):
        if one not in following and other not in taken and not {one, other} & cuts.keys():
            following[one] = other
            taken.add(other)
    out = []
    for number, chain in enumerate(chains):
        if number in cuts:
            parts = np.split(chain, np.searchsorted(chain[:, 0], sorted(cuts[number])))
            out += [part for part in parts if len(part) > 2]
        elif number not in taken:
            parts = [chain]
            while number in following:
                number = following[number]
                parts.append(chains[number])
            points = np.concatenate(parts)
            out.append(points[np.argsort(points[:, 0], kind="stable")])
    return out
