"""From the network's maps to lines: crests of the baseline map, cut at ends, linked over gaps, alike in columns.

Everything is done for all pixels or all pieces at once; nothing loops over pixels. Coordinates are pixels of the
network's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.segment.agree_columns import agree_on_columns
from spikehtr.pages.segment.labels import up
from spikehtr.pages.segment.maps import COARSE, FINE, UNIT, Logits

Floats = NDArray[Any]  # floats of 32 or 64 bits
DOUBLE = 0.6  # share of a line's points that run beside another from which it is the same


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """Thresholds, chosen on left-out collections."""

    baseline: float = 0.3  # least probability of a crest's pixel
    cut: float = 0.8  # probability of an end from which a crest is cut there
    mean: float = 0.5  # least mean probability along a line
    piece: float = 0.25  # heights: shorter pieces of lines are dropped
    shortest: float = 0.6  # heights: shorter lines are dropped; most are what is left beyond the mark of an end
    steep: float = 3.0  # heights: the same of lines that run down the page
    gap: float = 2.5  # heights: pieces farther apart are not linked
    level: float = 0.3  # heights: pieces farther out of line are not linked
    double: float = 0.35  # heights: a line that runs so near a longer one is the same line found twice
    ended: float = 0.35  # mean probability of the ends that face each other from which pieces are not linked


class Probabilities(NamedTuple):
    """The maps as numbers a decoder uses: probabilities, and heights in pixels of the input."""

    fine: Floats  # [4, H/2, W/2]: baseline, start, end, border
    body: Floats  # [H/4, W/4]
    heights: Floats  # [2, H/4, W/4]
    turn: Floats  # [4, H/4, W/4]: sums to 1


class DecodedLine(NamedTuple):
    points: Floats  # [n, 2], in reading direction
    above: Floats  # [n]
    below: Floats  # [n]
    score: float  # mean probability

    @property
    def height(self) -> float:
        return middle(self.above) + middle(self.below)

    @property
    def polygon(self) -> Floats:
        """Upper edge in reading direction, lower edge back; a little beyond the ends."""
        upward = up(np.asarray(np.gradient(self.points, axis=0)))
        forward = np.stack([-upward[:, 1], upward[:, 0]], 1)
        points = self.points.copy()
        reach = 0.12 * self.height
        points[0] -= forward[0] * reach
        points[-1] += forward[-1] * reach
        top, bottom = points + upward * self.above[:, None], points - upward * self.below[:, None]
        return np.concatenate([top, bottom[::-1]])


def middle(values: Floats) -> float:
    """The median, without what numpy's asks of each of many short arrays."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def probabilities(logits: Logits) -> Probabilities:
    fine, coarse = (maps.astype(np.float32, copy=False) for maps in logits)
    turn = np.exp(coarse[3:7] - coarse[3:7].max(0))
    heights = UNIT * np.exp(np.clip(coarse[1:3], -4, 4))
    return Probabilities(_sigmoid(fine), _sigmoid(coarse[0]), heights, turn / turn.sum(0))


def _sigmoid(logits: Floats) -> Floats:
    odds: Floats = 1 + np.exp(-np.clip(logits, -30, 30))
    return np.reciprocal(odds)


class _Pieces(NamedTuple):
    """Pieces of lines: all their points, sorted by piece and along it; where each piece begins."""

    x: Floats
    y: Floats
    weight: Floats
    bounds: NDArray[np.int64]  # [pieces + 1]


def decode(maps: Probabilities, options: DecodeOptions | None = None) -> list[DecodedLine]:
    """The lines of a page, top to bottom; their reading order is found from them afterwards."""
    options = options or DecodeOptions()
    tall = cv2.resize(maps.heights.sum(0).astype(np.float32), maps.fine.shape[:0:-1], interpolation=cv2.INTER_LINEAR)
    steep = cv2.resize((maps.turn[1] + maps.turn[3]).astype(np.float32), maps.fine.shape[:0:-1]) > 0.5
    lines: list[DecodedLine] = []
    for across in (False, True):  # lines that run along the rows of the map, then those that run down it
        allowed = steep if across else ~steep
        if not allowed.any():
            continue
        fine = maps.fine.transpose(0, 2, 1) if across else maps.fine
        heights = (tall.T if across else tall) / FINE
        pieces = _crests(fine, allowed.T if across else allowed, heights, options)
        if len(pieces.bounds) > 1:
            chains = agree_on_columns(_linked(pieces, fine, heights, options), fine[1:3].max(0), heights, options.gap)
            found = _finish(chains, maps, across, options)
            lines += _without_doubles(found, int(across), options)
    return sorted(lines, key=lambda line: float(line.points[:, 1].mean()))


def _crests(fine: Floats, allowed: NDArray[np.bool_], tall: Floats, options: DecodeOptions) -> _Pieces:
    """Pixels that are the highest of their column, nearby, in connected pieces."""
    base = np.ascontiguousarray(fine[0], np.float32)
    crest = (base > options.baseline) & (base >= cv2.dilate(base, np.ones((5, 1), np.uint8))) & allowed
    joined = cv2.dilate(crest.astype(np.uint8), np.ones((3, 3), np.uint8))
    # Cut where a mark of an end is strongest, a pixel wide: the whole mark would take the shortest lines away.
    marks = np.ascontiguousarray(np.maximum(fine[1], fine[2]), np.float32)
    cut = (marks > options.cut) & (marks >= cv2.dilate(marks, np.ones((1, 5), np.uint8)))
    joined[cut] = 0
    crest &= ~cut
    _, numbers = cv2.connectedComponents(joined, connectivity=8)
    ys, xs = np.nonzero(crest)
    piece = numbers[ys, xs].astype(np.int64)
    # One point a column of a piece: the mean of its crest pixels, refined by the parabola through the neighbours.
    key = piece * base.shape[1] + xs
    unique, inverse = np.unique(key, return_inverse=True)
    weight = base[ys, xs].astype(np.float64)
    above, below = base[np.maximum(ys - 1, 0), xs], base[np.minimum(ys + 1, len(base) - 1), xs]
    bow = np.minimum(above + below - 2 * weight, -1e-3)
    exact = ys + np.clip(0.5 * (above - below) / bow, -0.5, 0.5)
    total = np.bincount(inverse, weight)
    y = np.bincount(inverse, weight * exact) / total
    x = (unique % base.shape[1]).astype(np.float64)
    probability = total / np.bincount(inverse)
    owner = unique // base.shape[1]
    first = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]])) if len(owner) else np.zeros(0, np.int64)
    pieces = _Pieces(x, y, probability, np.append(first, len(x)))
    return _long(pieces, tall, options.piece)


def _long(pieces: _Pieces, tall: Floats, shortest: float) -> _Pieces:
    """Without pieces shorter than so many heights."""
    if len(pieces.bounds) < 2:
        return pieces
    starts, stops = pieces.bounds[:-1], pieces.bounds[1:]
    length = pieces.x[stops - 1] - pieces.x[starts] + 1
    keep = length >= shortest * _height_at(tall, pieces)
    chosen = np.repeat(keep, stops - starts)
    bounds = np.concatenate([[0], np.cumsum((stops - starts)[keep])])
    return _Pieces(pieces.x[chosen], pieces.y[chosen], pieces.weight[chosen], bounds)


def _height_at(tall: Floats, pieces: _Pieces) -> Floats:
    """The mean height of each piece's line, in pixels of the map."""
    rows = np.clip(pieces.y.round().astype(np.int64), 0, tall.shape[0] - 1)
    values = tall[rows, pieces.x.astype(np.int64)]
    return np.add.reduceat(values, pieces.bounds[:-1]) / np.diff(pieces.bounds)


def _linked(pieces: _Pieces, fine: Floats, tall: Floats, options: DecodeOptions) -> list[NDArray[np.float64]]:
    """Points [n, 3] (x, y, probability) of whole lines: pieces in one line without an end between them are one."""
    starts, stops = pieces.bounds[:-1], pieces.bounds[1:]
    number = len(starts)
    height = _height_at(tall, pieces)
    left, right, y_left, y_right, slope_left, slope_right = _ends(pieces, height)
    ends = cv2.dilate(np.ascontiguousarray(fine[1:3].max(0), np.float32), np.ones((3, 5), np.uint8))
    size = np.maximum(height[:, None], height[None])
    gap = left[None] - right[:, None]  # [left piece, right piece]
    middle = gap / 2
    meeting = y_right[:, None] + slope_right[:, None] * middle
    off = np.abs(meeting - (y_left[None] - slope_left[None] * middle))
    level = np.abs(y_right[:, None] - y_left[None])
    off = np.minimum(off, np.where(gap < size, level, np.inf))
    fits = (gap > -0.5 * size) & (gap < options.gap * size) & (off < options.level * size)
    fits &= (right[None] > right[:, None]) & (left[None] > left[:, None])
    np.fill_diagonal(fits, False)
    at_right, at_left = _value(ends, right, y_right), _value(ends, left, y_left)
    ended = (at_right[:, None] + at_left[None]) / 2
    fits &= ended < options.ended
    cost = np.where(fits, np.maximum(gap, 0) / size + 4 * off / size + 2 * ended, np.inf)
    following = np.full(number, -1)
    taken = np.zeros(number, bool)
    rows, columns = np.nonzero(fits)
    for place in np.argsort(cost[rows, columns], kind="stable"):
        a, b = int(rows[place]), int(columns[place])
        if following[a] < 0 and not taken[b]:
            following[a], taken[b] = b, True
    chains = []
    for head in np.flatnonzero(~taken):
        chain, at = [], int(head)
        while at >= 0:
            part = slice(starts[at], stops[at])
            chain.append(np.stack([pieces.x[part], pieces.y[part], pieces.weight[part]], 1))
            at = int(following[at])
        points = np.concatenate(chain)
        chains.append(points[np.argsort(points[:, 0], kind="stable")] if len(chain) > 1 else points)
    return chains


def _ends(pieces: _Pieces, height: Floats) -> tuple[Floats, ...]:
    """x, y and slope at both ends of every piece; slopes from the last two heights or so."""
    starts, stops = pieces.bounds[:-1], pieces.bounds[1:]
    reach = np.maximum(2, (2 * height).astype(np.int64))
    few = np.minimum(3, stops - starts)
    cumulated = np.concatenate([[0.0], np.cumsum(pieces.y)])
    y_left, y_right = (
        (cumulated[starts + few] - cumulated[starts]) / few,
        (cumulated[stops] - cumulated[stops - few]) / few,
    )
    inner_left, inner_right = np.minimum(starts + reach, stops - 1), np.maximum(stops - 1 - reach, starts)
    left, right = pieces.x[starts], pieces.x[stops - 1]

    def slope(run: Floats, rise: Floats) -> Floats:
        return np.where(run > 0.7 * height, np.clip(rise / np.maximum(run, 1), -0.4, 0.4), 0.0)

    slope_left = slope(pieces.x[inner_left] - left, pieces.y[inner_left] - y_left)
    slope_right = slope(right - pieces.x[inner_right], y_right - pieces.y[inner_right])
    return left, right, y_left, y_right, slope_left, slope_right


def _value(image: Floats, x: Floats, y: Floats) -> Floats:
    rows = np.clip(y.round().astype(np.int64), 0, image.shape[0] - 1)
    return image[rows, np.clip(x.round().astype(np.int64), 0, image.shape[1] - 1)]


def _finish(
    chains: list[NDArray[np.float64]], maps: Probabilities, across: bool, options: DecodeOptions
) -> list[DecodedLine]:
    """Lines with smooth baselines and their heights; weak and tiny ones dropped."""
    lines = []
    for chain in chains:
        score = float(chain[:, 2].mean())
        if score < options.mean:
            continue
        fine = chain[:, 1::-1] if across else chain[:, :2]
        points = (fine + 0.5) * FINE - 0.5
        above, below = _sampled(maps.heights, points)
        height = middle(above) + middle(below)
        length = float(chain[-1, 0] - chain[0, 0] + 1) * FINE
        if length < (options.steep if across else options.shortest) * height:
            continue
        if across and _sampled(maps.turn[1::2], points).mean(1).argmax():  # turned by 270 degrees: reads upwards
            points, above, below = points[::-1], above[::-1], below[::-1]
        lines.append(_smooth(points, above, below, height, score))
    return lines


def _without_doubles(lines: list[DecodedLine], along: int, options: DecodeOptions) -> list[DecodedLine]:
    """Longest first, each that does not run beside one that is kept; `along`: the axis on which they run."""
    kept: list[tuple[DecodedLine, Floats, Floats]] = []
    for line in sorted(lines, key=lambda one: -float(np.ptp(one.points[:, along]))):
        order = np.argsort(line.points[:, along], kind="stable")
        places, levels = line.points[order, along], line.points[order, 1 - along]
        for other, at, level in kept:
            if places[-1] < at[0] or places[0] > at[-1]:
                continue
            beside = np.abs(levels - np.interp(places, at, level, np.inf, np.inf))
            if (beside < options.double * min(line.height, other.height)).mean() > DOUBLE:
                break
        else:
            kept.append((line, places, levels))
    return [line for line, _, _ in kept]


def _sampled(coarse: Floats, points: Floats) -> Floats:
    """Values [channels, n] of coarse maps at points, nearest pixel."""
    x, y = ((points + 0.5) / COARSE - 0.5).round().astype(np.int64).T
    values: Floats = coarse[:, np.clip(y, 0, coarse.shape[1] - 1), np.clip(x, 0, coarse.shape[2] - 1)]
    return values


def _smooth(points: Floats, above: Floats, below: Floats, height: float, score: float) -> DecodedLine:
    """Points about half a height apart, each the mean of what is around it; the ends stay where they are."""
    way = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.linspace(0, way[-1], max(2, round(way[-1] / (0.5 * height)) + 1))
    even = np.arange(0, way[-1] + 1, 1.0)
    values = np.stack([np.interp(even, way, column) for column in (*points.T, above, below)])
    reach = min(round(max(FINE, 0.4 * height)), len(even) - 1)
    padded = np.pad(values, ((0, 0), (reach, reach)), mode="reflect", reflect_type="odd")
    total = np.concatenate([np.zeros((4, 1)), np.cumsum(padded, 1)], 1)
    mean = (total[:, 2 * reach + 1 :] - total[:, : -2 * reach - 1]) / (2 * reach + 1)
    x, y, high, low = (np.interp(places, even, column) for column in mean)
    return DecodedLine(np.stack([x, y], 1), np.maximum(high, 1.0), np.maximum(low, 1.0), score)
