"""Labels drawn as maps: what the network ought to say of (a part of) a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.segment.labels import Floats, PageLabels, up
from spikehtr.pages.segment.network import COARSE, FINE

BASELINE, START, END, BORDER = 1, 2, 4, 8  # bits of `Targets.fine`, in the order of the network's maps
OUTSIDE = 255  # class of the reading direction where there is no line
CORE = 0.14  # heights: how thick a baseline is drawn
BAR = 0.35  # share of the heights above and below to which the bar at a line's end goes
_SHIFT = 4  # binary digits of a drawn coordinate's fraction


class Targets(NamedTuple):
    """Maps of a part of a page, at the network's two strides."""

    fine: NDArray[np.uint8]  # [H/2, W/2]: bits
    heights: NDArray[np.float32]  # [2, H/4, W/4]: above and below in pixels of the input; 0 outside of lines
    turn: NDArray[np.uint8]  # [H/4, W/4]: quarter turns clockwise of the reading direction; OUTSIDE of lines


Move = Callable[[Floats], Floats]  # points [n, 2] of the page -> points of the part


class _Stations(NamedTuple):
    """All points of all lines, and the tops and bottoms of the letters there, in pixels of the part."""

    points: Floats  # [n, 2]
    tops: Floats
    bottoms: Floats
    bounds: list[int]  # where each line begins; the end of the last


def draw(labels: PageLabels, move: Move, height: int, width: int) -> Targets:
    """The targets of a part of `height` x `width` pixels (multiples of 4)."""
    fine = np.zeros((height // FINE, width // FINE), np.uint8)
    index = np.full((height // COARSE, width // COARSE), -1, np.int32)
    if labels.lines:
        stations = _stations(labels, move)
        above = np.hypot(*(stations.tops - stations.points).T)
        below = np.hypot(*(stations.bottoms - stations.points).T)
        turns = np.zeros(len(above), np.uint8)
        for number in _visible(stations, height, width):
            part = slice(stations.bounds[number], stations.bounds[number + 1])
            _quads(index, stations, part)
            _marks(fine, stations, part, float(np.median(above[part] + below[part])))
            way = stations.points[part][-1] - stations.points[part][0]
            turns[part] = round(float(np.arctan2(way[1], way[0])) / (np.pi / 2)) % 4
        heights = np.where(index >= 0, np.stack([above, below])[:, index], 0).astype(np.float32)
        turn = np.where(index >= 0, turns[index], OUTSIDE).astype(np.uint8)
    else:
        heights, turn = np.zeros((2, *index.shape), np.float32), np.full(index.shape, OUTSIDE, np.uint8)
    if len(labels.regions) > 1:
        for outline in labels.regions:
            if len(outline) > 2:
                _line(fine, move(outline), BORDER, 2, closed=True)
    return Targets(fine, heights, turn)


def _stations(labels: PageLabels, move: Move) -> _Stations:
    points = np.concatenate([line.points for line in labels.lines])
    upward = np.concatenate([up(np.gradient(line.points, axis=0)) for line in labels.lines])
    above = np.concatenate([line.above for line in labels.lines])[:, None]
    below = np.concatenate([line.below for line in labels.lines])[:, None]
    bounds = np.cumsum([0, *(len(line.points) for line in labels.lines)]).tolist()
    return _Stations(move(points), move(points + upward * above), move(points - upward * below), bounds)


def _visible(stations: _Stations, height: int, width: int) -> list[int]:
    starts = stations.bounds[:-1]
    low = np.minimum.reduceat(np.minimum(stations.tops, stations.bottoms), starts)
    high = np.maximum.reduceat(np.maximum(stations.tops, stations.bottoms), starts)
    inside = (high > 0).all(1) & (low[:, 0] < width) & (low[:, 1] < height)
    return [int(number) for number in np.flatnonzero(inside)]


def _quads(index: NDArray[np.int32], stations: _Stations, part: slice) -> None:
    """The body of a line, piece by piece: each pixel gets the number of a point near it."""
    for place in range(part.start, part.stop - 1):
        corners = [stations.tops[place], stations.tops[place + 1], stations.bottoms[place + 1], stations.bottoms[place]]
        fixed = _fixed(np.array(corners), COARSE)
        cv2.fillConvexPoly(index, fixed, place, lineType=cv2.LINE_8, shift=_SHIFT)


def _marks(fine: NDArray[np.uint8], stations: _Stations, part: slice, height: float) -> None:
    thickness = int(np.clip(round(CORE * height / FINE), 2, 6))
    points, tops, bottoms = stations.points[part], stations.tops[part], stations.bottoms[part]
    _line(fine, points, BASELINE, thickness)
    for place, bit in ((0, START), (-1, END)):
        bar = np.stack([tops[place], bottoms[place]]) * BAR + points[place] * (1 - BAR)
        _line(fine, bar, bit, thickness)


def _line(fine: NDArray[np.uint8], points: Floats, bit: int, thickness: int, closed: bool = False) -> None:
    """Sets a bit along a polyline; what was drawn before stays."""
    fixed = _fixed(points, FINE)
    margin = thickness + 1
    low = np.maximum((fixed.min(0) >> _SHIFT) - margin, 0)
    high = np.minimum((fixed.max(0) >> _SHIFT) + margin + 1, fine.shape[::-1])
    if (low >= high).any():
        return
    mask = np.zeros((high - low)[::-1], np.uint8)
    corner = (low << _SHIFT).astype(np.int32)
    cv2.polylines(mask, [(fixed - corner)[:, None]], closed, bit, thickness, cv2.LINE_8, _SHIFT)
    fine[low[1] : high[1], low[0] : high[0]] |= mask


def _fixed(points: Floats, stride: int) -> NDArray[np.int32]:
    """Coordinates in a map of this stride, as cv2 draws fractions of pixels: centres of pixels are whole numbers."""
    scaled = np.clip((points + 0.5) / stride - 0.5, -20000, 20000)
    return np.asarray(np.round(scaled * (1 << _SHIFT)), np.int32)
