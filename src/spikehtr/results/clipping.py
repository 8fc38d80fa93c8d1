"""Outlines, baselines and boxes cut off at the page's edges: many programs refuse coordinates that are off the image.

A page of W x H pixels has columns 0 to W - 1 and rows 0 to H - 1; whatever is written lies between those.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import cv2
import numpy as np

from spikehtr.data.formats.outlines import Box, Points, bounds
from spikehtr.data.samples import Point

if TYPE_CHECKING:
    from spikehtr.results.page import Glyph, Page, TextLine, Word


def _placed(glyph: Glyph, box: Box) -> Glyph:
    return glyph._replace(box=box)


def inside(page: Page) -> Page:
    """A page of which nothing lies outside its image."""
    size = page.width, page.height

    def word_inside(word: Word) -> Word:
        boxes = [clip_box(c.box, *size) for c in word.characters]
        if all(box == c.box for box, c in zip(boxes, word.characters, strict=True)):
            return word
        return replace(word, characters=tuple(map(_placed, word.characters, boxes)))

    def line_inside(line: TextLine) -> TextLine:
        polygon, baseline = clip_polygon(line.polygon, *size), clip_baseline(line.baseline, *size)
        return replace(line, polygon=polygon, baseline=baseline, words=tuple(map(word_inside, line.words)))

    regions = (
        replace(region, polygon=clip_polygon(region.polygon, *size), lines=tuple(map(line_inside, region.lines)))
        for region in page.regions
    )
    return replace(page, regions=tuple(regions))


def clip_polygon(points: Points, width: int, height: int) -> Points:
    """The part of a polygon that is on the page. What lies on it as a whole stays as it is.

    A concave polygon may leave the page and come back; where the parts would then be joined by nothing but the page's
    edge, their convex hull is taken, since a polygon must not touch itself.
    """
    right, bottom = max(width - 1, 1), max(height - 1, 1)
    if all(0 <= x <= right and 0 <= y <= bottom for x, y in points):
        return points
    kept = list(points)
    for axis, limit, sign in ((0, 0.0, 1), (0, right, -1), (1, 0.0, 1), (1, bottom, -1)):
        kept = _half(kept, axis, limit, sign)
    kept = _distinct(kept)
    if len(set(kept)) < 3 or _flat(bounds(kept)):
        x0, y0, x1, y1 = clip_box(bounds(points), width, height)
        return (x0, y0), (x1, y0), (x1, y1), (x0, y1)
    if not is_simple(kept):
        hull = cv2.convexHull(np.array(kept, np.float32))[:, 0]
        kept = _distinct([(float(x), float(y)) for x, y in hull])
    return tuple(kept)


def clip_baseline(points: Points, width: int, height: int) -> Points:
    """A baseline that ends at the page's left and right edges, and runs along the upper or lower one where it would
    cross it: it stays as long as its line is."""
    right, bottom = float(max(width - 1, 1)), float(max(height - 1, 1))
    if all(0 <= x <= right and 0 <= y <= bottom for x, y in points):
        return points
    kept = list(points[:1]) if points and 0 <= points[0][0] <= right else []
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        low, high = 0.0, 1.0  # of the way from a to b
        if ax != bx:
            ends = sorted(((0 - ax) / (bx - ax), (right - ax) / (bx - ax)))
            low, high = max(low, ends[0]), min(high, ends[1])
        elif not 0 <= ax <= right:
            continue
        if low <= high:
            kept += [(ax + at * (bx - ax), ay + at * (by - ay)) for at in (low, high)]
    if len(set(kept)) < min(2, len(set(points))):  # beside the page
        kept = list(points)
    return tuple(_distinct((min(max(x, 0.0), right), min(max(y, 0.0), bottom)) for x, y in kept))


def clip_box(box: Box, width: int, height: int) -> Box:
    """A box on the page in whole pixels, one wide and high at the least."""
    left, right = _clip_range(box[0], box[2], max(width - 1, 1))
    top, bottom = _clip_range(box[1], box[3], max(height - 1, 1))
    return left, top, right, bottom


def is_simple(points: Sequence[Point]) -> bool:
    """Whether no two edges of a polygon touch, but for neighbours at their common corner."""
    count = len(points)
    edges = [(points[index], points[(index + 1) % count]) for index in range(count)]
    for one in range(count):
        a, b = edges[one]
        if _turn(a, b, edges[(one + 1) % count][1]) == 0 and _within(a, b, edges[(one + 1) % count][1]):
            return False  # back the way it came
        for other in range(one + 2, count - (one == 0)):
            if _touch(a, b, *edges[other]):
                return False
    return True


def _half(points: list[Point], axis: int, limit: float, sign: int) -> list[Point]:
    """The part of a polygon on one side of a line along an axis (Sutherland and Hodgman)."""
    out: list[Point] = []
    for here, after in zip(points, [*points[1:], *points[:1]], strict=True):
        inside, goes_on = (sign * (point[axis] - limit) >= 0 for point in (here, after))
        if inside:
            out.append(here)
        if inside != goes_on:
            share = (limit - here[axis]) / (after[axis] - here[axis])
            other = here[1 - axis] + share * (after[1 - axis] - here[1 - axis])
            out.append((float(limit), other) if axis == 0 else (other, float(limit)))
    return out


def _distinct(points: Iterable[Point]) -> list[Point]:
    """Without points that repeat the one before, to a thousandth of a pixel."""
    out: list[Point] = []
    for x, y in points:
        if not out or abs(x - out[-1][0]) + abs(y - out[-1][1]) > 1e-3:
            out.append((x, y))
    return out


def _flat(box: Box) -> bool:
    return box[2] - box[0] < 1e-3 or box[3] - box[1] < 1e-3


def _clip_range(low: float, high: float, most: float) -> tuple[float, float]:
    low, high = (float(min(max(value, 0), most)) for value in (math.floor(low), math.ceil(high)))
    if high - low >= 1:
        return low, high
    low = min(low, most - 1.0)
    return low, low + 1.0


def _turn(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _within(a: Point, b: Point, c: Point) -> bool:
    """Whether b's way to c, all three in a line, leads back towards a."""
    return (a[0] - b[0]) * (c[0] - b[0]) + (a[1] - b[1]) * (c[1] - b[1]) > 0


def _touch(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Whether the edges a-b and c-d have a point in common."""
    one, two, three, four = _turn(a, b, c), _turn(a, b, d), _turn(c, d, a), _turn(c, d, b)
    if one * two < 0 and three * four < 0:
        return True
    corners = ((one, a, b, c), (two, a, b, d), (three, c, d, a), (four, c, d, b))
    return any(turn == 0 and _between(start, end, point) for turn, start, end, point in corners)


def _between(a: Point, b: Point, c: Point) -> bool:
    return min(a[0], b[0]) <= c[0] <= max(a[0], b[0]) and min(a[1], b[1]) <= c[1] <= max(a[1], b[1])
