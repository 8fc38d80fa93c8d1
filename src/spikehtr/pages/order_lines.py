"""Regions and reading order: pages of a book, columns and margins apart, top to bottom, the parts of a row together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spikehtr.pages.ridges import Floats

GUTTER = 3.0  # sizes of white between two columns at the least
GAP = 3.2  # times the usual distance of two lines: a larger gap ends a region
IN_ROWS, LEVEL = (
    0.65,
    0.8,
)  # share of a column's lines that have a partner in line with them (to so many sizes): a table
COLUMN_LINES, COLUMN_WIDTH, ALIKE = 8, 20.0, 0.85  # least lines of a column of text, sizes it is wide, ratio of widths
CROSSED = 0.1  # share of the lines of the emptier side that may run over the white between two columns of text
EDGE = 0.1  # share of lines whose ends may lie in that white
MARGIN = 0.4  # a column narrower than this share of its neighbour, and with no more lines, is a marginal note


class Placed(NamedTuple):
    """A line found on the page."""

    baseline: Floats  # [n, 2]
    polygon: Floats  # [m, 2]
    size: float

    @property
    def left(self) -> float:
        return float(self.baseline[0, 0])

    @property
    def right(self) -> float:
        return float(self.baseline[-1, 0])

    @property
    def y(self) -> float:
        return float(self.baseline[:, 1].mean())


def in_order(lines: Sequence[Placed], folds: Sequence[float]) -> list[tuple[list[Placed], str]]:
    """(lines, kind) of each region, all in reading order."""
    edges = [-np.inf, *sorted(folds), np.inf]
    regions: list[tuple[list[Placed], str]] = []
    for low, high in pairwise(edges):
        side = [line for line in lines if low <= (line.left + line.right) / 2 < high]
        if side:
            regions += _split(side, "paragraph")
    return regions


def _split(lines: list[Placed], kind: str) -> list[tuple[list[Placed], str]]:
    """Columns first, then parts with much white between them, until nothing is left to divide."""
    columns = _columns(lines)
    if columns:
        kinds = _kinds(columns)
        return [region for part, its in zip(columns, kinds, strict=True) for region in _split(part, its)]
    parts = _crossed_columns(lines) or _blocks(lines)
    if len(parts) > 1:
        return [region for part in parts for region in _split(part, kind)]
    return [(_rows(lines), kind)]


def _columns(lines: list[Placed]) -> list[list[Placed]] | None:
    """Left and right part, where white runs down between them and their lines are not the rows of a table."""
    if len(lines) < 3:
        return None
    by_left = sorted(lines, key=lambda line: line.left)
    size = float(np.median([line.size for line in lines]))
    best: tuple[float, int] | None = None
    reach = by_left[0].right
    for index, line in enumerate(by_left[1:], start=1):
        gap = line.left - reach
        if gap > GUTTER * size and (best is None or gap > best[0]):
            left, right = by_left[:index], by_left[index:]
            if _side_by_side(left, right) and (_running_text(left, right) or not _same_rows(left, right)):
                best = gap, index
        reach = max(reach, line.right)
    return None if best is None else [by_left[: best[1]], by_left[best[1] :]]


def _crossed_columns(lines: list[Placed]) -> list[list[Placed]] | None:
    """What stands above, the left column, the right one, what stands below: where a heading, a page number or a few
    lines that were taken for one run over the white between two columns of text."""
    if len(lines) < 2 * COLUMN_LINES:
        return None
    size = float(np.median([line.size for line in lines]))
    left, right = (np.array([getattr(line, side) for line in lines]) for side in ("left", "right"))
    best: tuple[int, float, float] | None = None
    for x in np.linspace(left.min(), right.max(), 129)[1:-1]:
        before, after = right < x + GUTTER * size, left > x - GUTTER * size
        before, after = before & ~(after & (left + right > 2 * x)), after & ~(before & (left + right <= 2 * x))
        crossing = len(lines) - int(before.sum()) - int(after.sum())
        fewer = int(min(before.sum(), after.sum()))
        if fewer < COLUMN_LINES or crossing > CROSSED * fewer:
            continue
        white = float(np.quantile(left[after], EDGE) - np.quantile(right[before], 1 - EDGE))
        if white > GUTTER * size and (best is None or (crossing, -white) < best[:2]):
            best = crossing, -white, float(x)
    if best is None:
        return None
    x = best[2]
    sides = [line for line in lines if line.right < x + GUTTER * size or line.left > x - GUTTER * size]
    columns = [line for line in sides if _middle(line) <= x], [line for line in sides if _middle(line) > x]
    if not (_side_by_side(*columns) and _running_text(*columns)):
        return None
    top, bottom = (edge(line.y for line in sides) for edge in (min, max))
    kept = {id(line) for line in sides}
    over = [line for line in lines if id(line) not in kept]
    above, below = [line for line in over if line.y < top], [line for line in over if line.y > bottom]
    columns[0].extend(line for line in over if top <= line.y <= bottom)
    return [part for part in (above, *columns, below) if part]


def _middle(line: Placed) -> float:
    return (line.left + line.right) / 2


def _side_by_side(left: list[Placed], right: list[Placed]) -> bool:
    """Whether they share some of their height: else they are one above the other, and are divided otherwise."""
    (a, b), (c, d) = ((min(one.y for one in part), max(one.y for one in part)) for part in (left, right))
    slack = 2 * max(left[0].size, right[0].size)
    return min(b, d) + slack > max(a, c)


def _same_rows(left: list[Placed], right: list[Placed]) -> bool:
    few, many = sorted((left, right), key=len)
    hits = sum(any(abs(_level(one, other)) < LEVEL * one.size for other in many) for one in few)
    return hits >= IN_ROWS * len(few)


def _running_text(left: list[Placed], right: list[Placed]) -> bool:
    """Two columns of one width, of lines too long for the cells of a table: a scribe's, ruled across both."""
    if min(len(left), len(right)) < COLUMN_LINES:
        return False
    narrow, wide = sorted(float(np.quantile([o.right - o.left for o in part], 0.8)) for part in (left, right))
    size = float(np.median([line.size for line in (*left, *right)]))
    return narrow > ALIKE * wide and narrow > COLUMN_WIDTH * size


def _level(one: Placed, other: Placed) -> float:
    """How far apart in height two lines are at the ends that face each other."""
    left, right = sorted((one, other), key=lambda line: line.left)
    return float(left.baseline[-1, 1] - right.baseline[0, 1])


def _kinds(columns: list[list[Placed]]) -> list[str]:
    widths = [max(line.right for line in part) - min(line.left for line in part) for part in columns]
    kinds = ["paragraph", "paragraph"]
    narrow = int(widths[1] < widths[0])
    if widths[narrow] < MARGIN * widths[1 - narrow] and len(columns[narrow]) <= len(columns[1 - narrow]):
        kinds[narrow] = "marginalia"
    return kinds


def _blocks(lines: list[Placed]) -> list[list[Placed]]:
    """Divided where the distance between two lines is much more than usual."""
    ordered = sorted(lines, key=lambda line: line.y)
    steps = [below.y - above.y for above, below in pairwise(ordered)]
    usual = [step for step, line in zip(steps, ordered, strict=False) if step > 2 * line.size]
    if not usual:
        return [lines]
    limit = GAP * float(np.median(usual))
    parts = [[ordered[0]]]
    for step, line in zip(steps, ordered[1:], strict=True):
        if step > limit:
            parts.append([])
        parts[-1].append(line)
    return parts


def _rows(lines: list[Placed]) -> list[Placed]:
    """Top to bottom; lines side by side in one row from left to right. The page's tilt is taken out first."""
    slopes = [
        (line.baseline[-1, 1] - line.baseline[0, 1]) / (line.right - line.left)
        for line in lines
        if line.right - line.left > 20 * line.size
    ]
    tilt = float(np.median(slopes)) if slopes else 0.0

    def height(line: Placed) -> float:
        return line.y - tilt * (line.left + line.right) / 2

    rows: list[list[Placed]] = []
    for line in sorted(lines, key=height):
        row = rows[-1] if rows else []
        if (
            row
            and height(line) - height(row[0]) < 1.5 * min(line.size, row[0].size)
            and not any(min(line.right, other.right) - max(line.left, other.left) > line.size for other in row)
        ):
            row.append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda one: one.left)]
