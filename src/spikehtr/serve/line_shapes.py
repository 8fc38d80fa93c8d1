"""Outlines and baselines under a person's hand: cut, joined, moved along, drawn around a new baseline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import cv2
import numpy as np

from spikehtr.data.formats.outlines import BAND_OF_PAGE, band, bounds

Points = list[list[int]]
MOST = 2000  # points of an outline or baseline
_CANVAS = 2000  # pixels of the longer side of the drawing in which outlines are joined


def clipped(points: Sequence[Sequence[float]], width: int, height: int) -> Points:
    """In whole pixels on the page; the same point twice in a row stands once."""
    out: Points = []
    for x, y in points:
        point = [min(max(round(x), 0), width - 1), min(max(round(y), 0), height - 1)]
        if not out or out[-1] != point:
            out.append(point)
    return out


def encloses(polygon: Sequence[Sequence[float]]) -> bool:
    if len({(x, y) for x, y in polygon}) < 3:
        return False
    left, top, right, bottom = bounds([(x, y) for x, y in polygon])
    return right > left and bottom > top


def usual_height(polygons: Sequence[Points], page_height: int) -> float:
    """How high lines of a page are."""
    heights = [max(y for _, y in polygon) - min(y for _, y in polygon) for polygon in polygons if polygon]
    return float(median(heights)) if heights else page_height * BAND_OF_PAGE


def around(baseline: Points, height: float, width: int, page_height: int) -> Points:
    """The outline of a line of which only the baseline is drawn."""
    return clipped(band(tuple((float(x), float(y)) for x, y in baseline), height), width, page_height)


def followed(old: Points, new: Points, polygon: Points, width: int, height: int) -> Points:
    """The outline after its baseline moved: moved as far where the baseline kept its shape, else drawn anew."""
    shift = {(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in zip(old, new, strict=False)}
    if len(old) == len(new) and len(shift) == 1:
        ((dx, dy),) = shift
        return clipped([(x + dx, y + dy) for x, y in polygon], width, height)
    return around(new, thickness(polygon), width, height)


def thickness(polygon: Points) -> float:
    """How high an outline is along its length: its area over its width."""
    points = np.asarray(polygon, np.float64)
    x, y = points.T
    area = abs(float(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))) / 2
    return max(2.0, area / max(1.0, float(np.ptp(x))))


def cut_polygon(polygon: Points, x: float, left: bool) -> Points:
    """The part of an outline on one side of a page column (Sutherland and Hodgman)."""

    def inside(point: Sequence[float]) -> bool:
        return point[0] <= x if left else point[0] >= x

    out: list[tuple[float, float]] = []
    for (x0, y0), (x1, y1) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
        if inside((x0, y0)):
            out.append((x0, y0))
        if inside((x0, y0)) != inside((x1, y1)):
            out.append((x, y0 + (y1 - y0) * (x - x0) / (x1 - x0)))
    return [[round(px), round(py)] for px, py in out]


def cut_baseline(baseline: Points, x: float) -> tuple[Points, Points]:
    """The parts of a baseline to the left and to the right of a page column; of two points each, or empty."""
    left: list[tuple[float, float]] = []
    right: list[tuple[float, float]] = []
    for index, (px, py) in enumerate(baseline):
        if index:
            x0, y0 = baseline[index - 1]
            if (x0 < x) != (px < x) and px != x0:
                crossing = (x, y0 + (py - y0) * (x - x0) / (px - x0))
                left.append(crossing)
                right.append(crossing)
        (left if px < x else right).append((px, py))
    parts = [[[round(a), round(b)] for a, b in part] for part in (left, right)]
    return (parts[0] if len(parts[0]) > 1 else []), (parts[1] if len(parts[1]) > 1 else [])


def joined_polygons(polygons: Sequence[Points]) -> Points:
    """One outline around several: their area, and bridges between them where they do not touch."""
    every = np.concatenate([np.asarray(polygon, np.float64) for polygon in polygons])
    corner = every.min(0)
    scale = min(1.0, _CANVAS / max(1.0, float(np.ptp(every, axis=0).max())))
    size = np.ceil((every.max(0) - corner) * scale).astype(int) + 3
    canvas = np.zeros((size[1], size[0]), np.uint8)
    drawn = [np.round((np.asarray(polygon) - corner) * scale).astype(np.int32) + 1 for polygon in polygons]
    for polygon in drawn:
        cv2.fillPoly(canvas, [polygon], 1)
    for one, other in pairwise(drawn):
        cv2.fillPoly(canvas, [_bridge(one, other)], 1)
    found, _ = cv2.findContours(canvas, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    largest = max(found, key=cv2.contourArea)
    simple = cv2.approxPolyDP(largest, 1.0, closed=True)[:, 0]
    return [[round(x), round(y)] for x, y in (simple - 1) / scale + corner]


def _bridge(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """A quadrangle from the side of an outline that faces another to that one's."""
    if one[:, 0].mean() > other[:, 0].mean():
        one, other = other, one
    near = one[one[:, 0] >= one[:, 0].max() - 0.1 * np.ptp(one[:, 0])]
    far = other[other[:, 0] <= other[:, 0].min() + 0.1 * np.ptp(other[:, 0])]
    corners = [side[index(side[:, 1])] for side, index in ((near, np.argmin), (far, np.argmin))]
    corners += [side[index(side[:, 1])] for side, index in ((far, np.argmax), (near, np.argmax))]
    hull: np.ndarray = cv2.convexHull(np.array(corners, np.int32))
    return hull
