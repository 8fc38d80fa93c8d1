"""What a PAGE or ALTO file says of its lines, as a network learns it: baselines with the heights above and below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.given import Given

Floats = NDArray[np.float64]

SPACING = 0.6  # heights of the line between two points of a baseline
MOST = 64  # points of a baseline
WINDOW = 0.35  # heights to each side in which the outline counts for a point's height


@dataclass(frozen=True, slots=True)
class LineLabel:
    """A line: points on its baseline in reading direction, and how far its outline goes above and below each."""

    points: Floats  # [n, 2]
    above: Floats  # [n], pixels
    below: Floats  # [n]
    region: int  # its place in `PageLabels.regions`

    @property
    def height(self) -> float:
        return float(np.median(self.above) + np.median(self.below))


@dataclass(frozen=True, slots=True)
class PageLabels:
    """The lines of a page in the order of its file."""

    lines: tuple[LineLabel, ...]
    regions: tuple[Floats, ...]  # outlines [n, 2]; empty where the file has none

    @property
    def height(self) -> float:
        """The median height of the lines; 0 on a page without any."""
        return float(np.median([line.height for line in self.lines])) if self.lines else 0.0

    def scaled(self, by: float) -> PageLabels:
        lines = tuple(LineLabel(o.points * by, o.above * by, o.below * by, o.region) for o in self.lines)
        return PageLabels(lines, tuple(outline * by for outline in self.regions))


def labels_of(given: Given) -> PageLabels:
    """Lines without a baseline of two points are left out: there is nothing to learn from them."""
    lines = []
    for number, region in enumerate(given.regions):
        for line in region.lines:
            if len(line.baseline) > 1:
                label = line_label(line.baseline, line.outline, number)
                if label is not None:
                    lines.append(label)
    regions = tuple(np.array(region.polygon, np.float64).reshape(-1, 2) for region in given.regions)
    return PageLabels(tuple(lines), regions)


def line_label(baseline: Sequence[Any], outline: Sequence[Any], region: int = 0) -> LineLabel | None:
    """None where the baseline has no length."""
    drawn = np.array(baseline, np.float64)
    if not np.hypot(*np.diff(drawn, axis=0).T).sum() > 0:
        return None
    if drawn[-1, 0] < drawn[0, 0] and abs(drawn[-1, 0] - drawn[0, 0]) > abs(drawn[-1, 1] - drawn[0, 1]):
        drawn = drawn[::-1]  # some programs keep the order in which the points were clicked
    edge = _dense(np.array(outline, np.float64), 2.0)
    above, below = _heights(drawn[[0, -1]].mean(0)[None], (drawn[-1] - drawn[0])[None], edge, np.inf)
    height = max(4.0, float(above[0] + below[0]))
    points = along(drawn, SPACING * height, MOST)
    above, below = _heights(points, np.gradient(points, axis=0), edge, max(4.0, WINDOW * height))
    above, below = _usable(above, 0.75 * height), _usable(below, 0.25 * height)
    return LineLabel(points, above, below, region)


def along(points: Floats, spacing: float, most: int) -> Floats:
    """The same polyline with points about `spacing` apart, two at least."""
    way = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.linspace(0, way[-1], int(np.clip(round(way[-1] / spacing) + 1, 2, most)))
    return np.stack([np.interp(places, way, points[:, axis]) for axis in (0, 1)], 1)


def up(directions: Floats) -> Floats:
    """Unit vectors that point to the tops of the letters of lines that run in these directions (y grows downwards)."""
    length = np.maximum(np.hypot(directions[:, 0], directions[:, 1]), 1e-9)[:, None]
    return np.stack([directions[:, 1], -directions[:, 0]], 1) / length


def _dense(outline: Floats, spacing: float) -> Floats:
    closed = np.concatenate([outline, outline[:1]])
    length = np.hypot(*np.diff(closed, axis=0).T).sum()
    return along(closed, spacing, max(8, int(length / spacing)))


def _heights(points: Floats, directions: Floats, edge: Floats, window: float) -> tuple[Floats, Floats]:
    """How far the outline goes above and below each point, beside it to within a window; nan where it does not."""
    upward = up(directions)
    forward = np.stack([-upward[:, 1], upward[:, 0]], 1)
    away = edge[None] - points[:, None]  # [n, m, 2]
    high = np.einsum("nmc,nc->nm", away, upward)
    near = np.abs(np.einsum("nmc,nc->nm", away, forward)) <= window
    return (
        np.where(near, high, -np.inf).max(1).astype(np.float64),
        np.where(near, -high, -np.inf).max(1).astype(np.float64),
    )


def _usable(heights: Floats, usual: float) -> Floats:
    """Heights that are missing or absurd are replaced by what the rest of the line has."""
    good = np.isfinite(heights) & (heights > 0)
    middle = float(np.median(heights[good])) if good.any() else max(1.0, usual)
    return np.clip(np.where(good, heights, middle), 0.5 * middle, 2.0 * middle)
