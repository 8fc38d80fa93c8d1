"""A line's outline: around all of its own ink, ascenders and descenders too, and little of its neighbours."""

from __future__ import annotations

import cv2
import numpy as np

from spikehtr.pages.assign_ink import Owned
from spikehtr.pages.ridges import Floats, Ridge

ABOVE, BELOW = 2.8, 0.9  # sizes that the outline goes above and below the baseline at the least
HIGHEST, LOWEST = 6.5, 4.0  # and at the most: one flourish or ruling must not make the whole line small when scaled
MARGIN = 0.6  # sizes of paper around the ink
REACH = 2.0  # sizes to each side over which the highest and the lowest ink count: no notches between letters
ENDS = 3.0  # sizes past the x-height's ends for strokes that lead in or out


def outline(line: Ridge, owned: Owned, baseline: Floats, width: int, height: int) -> Floats:
    """A polygon [n, 2] in the page, upper edge from left to right, lower edge back."""
    size = line.size
    margin = max(2.0, MARGIN * size)
    left = max(owned.left - ENDS * size, float(owned.x[0]) - 4) - margin
    right = min(owned.right + ENDS * size, float(owned.x[-1]) + 4) + margin
    left, right = max(0.0, min(left, owned.left - margin)), min(width - 1.0, max(right, owned.right + margin))
    x = np.linspace(left, right, max(2, round((right - left) / (1.5 * size)) + 1))
    base = np.interp(x, baseline[:, 0], baseline[:, 1])
    near = np.abs(owned.x[None] - x[:, None]) <= REACH * size  # [n, bins]
    top = np.where(near, owned.top[None], np.inf).min(1)
    bottom = np.where(near, owned.bottom[None], -np.inf).max(1)
    upper = np.clip(top - margin, base - HIGHEST * size, base - ABOVE * size)
    lower = np.clip(bottom + margin, base + BELOW * size, base + LOWEST * size)
    edges = [_simple(np.stack([x, np.clip(edge, 0, height - 1.0)], 1), 0.15 * size) for edge in (upper, lower)]
    return np.concatenate([edges[0], edges[1][::-1]])


def _simple(points: Floats, most: float) -> Floats:
    """Fewer points, none of the dropped ones more than `most` off."""
    kept: Floats = cv2.approxPolyDP(points.astype(np.float32)[:, None], most, closed=False)[:, 0].astype(np.float64)
    return kept


def simple_baseline(points: Floats, size: float) -> Floats:
    return _simple(points, 0.12 * size)
