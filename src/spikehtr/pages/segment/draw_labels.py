"""Labels drawn as maps: what the network ought to say of (a part of) a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.segment.labels import Floats, PageLabels, up
from spikehtr.pages.segment.maps import COARSE, FINE

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
    planes = {bit: np.zeros((height // FINE, width // FINE), np.uint8) for bit in (BASELINE, START, END, BORDER)}
    index = np.full((height // COARSE, width // COARSE), -1, np.int32)
    if labels.lines:
        stations = _stations(labels, move)
        above = np.hypot(*(stations.tops - stations.points).T)
        below = np.hypot(*(stations.bottoms - stations.points).T)
        visible = _visible(stations, height, width)
        _quads(index, stations, visible)
        _marks(planes, stations, visible, above + below)
        turns = np.zeros(len(above), np.uint8)
        for number in visible:
            part = slice(stations.bounds[number], stations.bounds[number + 1])
            way = stations.points[part.stop - 1] - stations.points[part.start]
            turns[part] = round(float(np.arctan2(way[1], way[0])) / (np.pi / 2)) % 4
        heights = np.where(index >= 0, np.stack([above, below])[:, index], 0).astype(np.float32)
        turn = np.where(index >= 0, turns[index], OUTSIDE).astype(np.uint8)
    else:
        heights, turn = np.zeros((2, *index.shape), np.float32), np.full(index.shape, OUTSIDE, np.uint8)
    if len(labels.regions) > 1:
        outlines = [_fixed(move(outline), FINE) for outline in labels.regions if len(outline) > 2]
        cv2.polylines(planes[BORDER], outlines, True, BORDER, 2, cv2.LINE_8, _SHIFT)
    return Targets(planes[BASELINE] | planes[START] | planes[END] | planes[BORDER], heights, turn)


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


def _quads(index: NDArray[np.int32], stations: _Stations, visible: list[int]) -> None:
    """The bodies of lines, piece by piece: each pixel gets the number of a point near it."""
    tops, bottoms = _fixed(stations.tops, COARSE), _fixed(stations.bottoms, COARSE)
    quads = np.stack([tops[:-1], tops[1:], bottoms[1:], bottoms[:-1]], 1)  # [n - 1, 4, 2]
    edge = np.array(index.shape[::-1]) << _SHIFT
    inside = ((quads.max(1) >= -(1 << _SHIFT)) & (quads.min(1) < edge)).all(1)
    for number in visible:
        first, last = stations.bounds[number], stations.bounds[number + 1] - 1
        for place in first + np.flatnonzero(inside[first:last]):
            cv2.fillConvexPoly(index, quads[place], int(place), lineType=cv2.LINE_8, shift=_SHIFT)


def _marks(planes: dict[int, NDArray[np.uint8]], stations: _Stations, visible: list[int], tall: Floats) -> None:
    """Baselines and bars at their ends, those of one thickness at once."""
    points = _fixed(stations.points, FINE)
    bars = np.stack([stations.tops, stations.bottoms], 1) * BAR + stations.points[:, None] * (1 - BAR)
    fixed_bars = _fixed(bars, FINE)
    drawn: dict[tuple[int, int], list[NDArray[np.int32]]] = defaultdict(list)
    for number in visible:
        first, stop = stations.bounds[number], stations.bounds[number + 1]
        thickness = int(np.clip(round(CORE * float(np.median(tall[first:stop])) / FINE), 2, 6))
        drawn[BASELINE, thickness].append(points[first:stop])
        drawn[START, thickness].append(fixed_bars[first])
        drawn[END, thickness].append(fixed_bars[stop - 1])
    for (bit, thickness), lines in drawn.items():
        cv2.polylines(planes[bit], lines, False, bit, thickness, cv2.LINE_8, _SHIFT)


def _fixed(points: Floats, stride: int) -> NDArray[np.int32]:
    """Coordinates in a map of this stride, as cv2 draws fractions of pixels: centres of pixels are whole numbers."""
    scaled = np.clip((points + 0.5) / stride - 0.5, -20000, 20000)
    return np.asarray(np.round(scaled * (1 << _SHIFT)), np.int32)
