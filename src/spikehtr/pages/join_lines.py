"""From crests to lines: doubles dropped, pieces of a line joined, columns and the two pages of a book kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spikehtr.pages.ridges import STEP_X, Floats, Ridge

ZONE = 2.0  # sizes above and below a line's crest in which a weaker one is the line's own ascenders or descenders
NEAR, FAR = 12.0, 34.0  # sizes: gaps up to the first are between words, up to the second between parts of a table's row
LEVEL, EXACT = 1.6, 1.0  # sizes that two pieces may be out of line: between words, and across a table
IN_ROWS = 0.65  # share of a column's pieces that must have a partner beside them for the two to be a table


def heights_at(ridge: Ridge, x: Floats) -> Floats:
    """The crest's y at any x: beyond its ends it goes on straight, in the direction it has there."""
    y = np.interp(x, ridge.x, ridge.y)
    for end, inside in ((0, slice(None, 26)), (-1, slice(-26, None))):
        outside = x < ridge.left if end == 0 else x > ridge.right
        if outside.any():
            y[outside] += slope(ridge, inside) * (x[outside] - ridge.x[end])
    return y


def slope(ridge: Ridge, part: slice = slice(None)) -> float:
    """The direction of (a part of) a crest, held to what a line of writing does; too short a part says nothing."""
    x, y = ridge.x[part], ridge.y[part]
    if x[-1] - x[0] < 8 * ridge.size:
        return 0.0
    return float(np.clip(np.polyfit(x, y, 1)[0], -0.25, 0.25))


def drop_doubles(ridges: Sequence[Ridge]) -> list[Ridge]:
    """Strongest first, each keeps weaker ones out of its zone."""
    kept: list[Ridge] = []
    for ridge in sorted(ridges, key=lambda ridge: -float(ridge.strength.sum())):
        covered = np.zeros(len(ridge.x), bool)
        for other in kept:
            if other.right < ridge.left or other.left > ridge.right:
                continue
            inside = (ridge.x >= other.left - STEP_X) & (ridge.x <= other.right + STEP_X)
            distance = np.abs(ridge.y - np.interp(ridge.x, other.x, other.y))
            covered |= inside & (distance < ZONE * max(other.size, min(ridge.size, 1.5 * other.size)))
        kept += _uncovered(ridge, covered)
    return kept


def _uncovered(ridge: Ridge, covered: np.ndarray) -> list[Ridge]:
    """The parts of a ridge that no stronger one covers, if they are long enough to be writing."""
    if not covered.any():
        return [ridge]
    edges = np.flatnonzero(np.diff(np.concatenate([[True], covered, [True]]).astype(np.int8)))
    parts = []
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        part = ridge.part(slice(first, end))
        if end - first >= 3 and part.length >= 6 * ridge.size:
            parts.append(part)
    return parts


def join(ridges: Sequence[Ridge], folds: Sequence[float]) -> list[Ridge]:
    """Pieces in one line made one: nearest first, words before the columns of a table."""
    pieces = list(ridges)
    for farthest in (NEAR, FAR):
        while True:
            pairs = _pairs(pieces, farthest, folds)
            taken: set[int] = set()
            joined = []
            for _, a, b in sorted(pairs):
                if a not in taken and b not in taken:
                    taken |= {a, b}
                    joined.append(_one(pieces[a], pieces[b]))
            if not joined:
                break
            pieces = [piece for index, piece in enumerate(pieces) if index not in taken] + joined
    return pieces


def _pairs(pieces: list[Ridge], farthest: float, folds: Sequence[float]) -> list[tuple[float, int, int]]:
    """(cost, left, right) of every two pieces that may be one line."""
    lefts, rights = np.array([piece.left for piece in pieces]), np.array([piece.right for piece in pieces])
    starts, sizes = np.array([piece.y[0] for piece in pieces]), np.array([piece.size for piece in pieces])
    out = []
    for a, left in enumerate(pieces):
        size, gap = np.maximum(left.size, sizes), lefts - left.right
        fits = (gap >= -4 * size) & (gap <= farthest * size) & (rights > left.right) & (lefts > left.left)
        fits &= np.abs(starts - left.y[-1]) < 4 * size + 0.3 * np.abs(gap)
        for b in np.flatnonzero(fits):
            cost = _cost(pieces, left, pieces[b], folds)
            if cost is not None:
                out.append((cost, a, int(b)))
    return out


def _cost(pieces: list[Ridge], left: Ridge, right: Ridge, folds: Sequence[float]) -> float | None:
    """How unlikely it is that two pieces are one line; None if they cannot be."""
    size, gap = max(left.size, right.size), right.left - left.right
    off = out_of_line(left, right)
    far = gap > NEAR * size
    if off > (EXACT if far else LEVEL) * size or _apart(left, right, folds) or _between(pieces, left, right):
        return None
    if far and not _table(pieces, left, right):
        return None
    return float((max(gap, 0) + 6 * off) / size)


def _apart(left: Ridge, right: Ridge, folds: Sequence[float]) -> bool:
    """Whether a fold lies between the middles of two pieces."""
    return any((left.left + left.right) / 2 < fold < (right.left + right.right) / 2 for fold in folds)


def out_of_line(left: Ridge, right: Ridge) -> float:
    """How far apart two pieces are in height where they would meet.

    Each goes on in its direction, or both on the level: whichever fits, since a short piece's direction says little.
    """
    middle = np.array([(left.right + right.left) / 2])
    straight = abs(heights_at(left, middle) - heights_at(right, middle))[0]
    level = abs(left.y[-6:].mean() - right.y[:6].mean())
    return float(min(straight, level if right.left - left.right < NEAR * left.size else straight))


def _between(pieces: list[Ridge], left: Ridge, right: Ridge) -> bool:
    """Whether a third piece lies in the gap on the same line: then join that first."""
    if right.left - left.right < 2 * STEP_X:
        return False
    for other in pieces:
        if other is left or other is right or other.left < left.right or other.right > right.left:
            continue
        if abs(other.y.mean() - (left.y[-1] + right.y[0]) / 2) < 1.5 * max(left.size, right.size):
            return True
    return False


def _table(pieces: list[Ridge], left: Ridge, right: Ridge) -> bool:
    """Whether the writing on both sides of the gap stands in the same rows; columns of running text do not."""
    size = max(left.size, right.size)
    low, high = left.right, right.left
    near = [piece for piece in pieces if abs(piece.y.mean() - left.y[-1]) < 30 * size]
    ending = [piece for piece in near if left.left - 6 * size < piece.right < high and piece.right > low - 20 * size]
    starting = [piece for piece in near if low < piece.left < right.right and piece.left < high + 20 * size]
    return max(_matched(ending, starting, EXACT), _matched(starting, ending, EXACT)) >= IN_ROWS


def _matched(pieces: list[Ridge], others: list[Ridge], level: float) -> float:
    hits = 0
    for piece in pieces:
        size = piece.size
        hits += any(
            abs(piece.y.mean() - other.y.mean()) < 10 * size
            and (out_of_line(piece, other) if piece.left < other.left else out_of_line(other, piece)) < level * size
            for other in others
        )
    return hits / len(pieces) if pieces else 0.0


def _one(left: Ridge, right: Ridge) -> Ridge:
    """Both in one, with a straight bridge over the gap; where they overlap, the left one up to the middle."""
    cut = (left.right + right.left) / 2 if right.left <= left.right else np.inf
    keep_left, keep_right = left.x <= cut, right.x > min(cut, left.right)
    bridge = np.arange(left.right + STEP_X, right.left - STEP_X / 2, STEP_X) if cut == np.inf else np.zeros(0)
    span = [left.right, right.left], [left.y[-1], right.y[0]]
    lengths = max(left.length, STEP_X), max(right.length, STEP_X)
    return Ridge(
        x=np.concatenate([left.x[keep_left], bridge, right.x[keep_right]]),
        y=np.concatenate([left.y[keep_left], np.interp(bridge, *span), right.y[keep_right]]),
        strength=np.concatenate([left.strength[keep_left], np.zeros(len(bridge)), right.strength[keep_right]]),
        size=(left.size * lengths[0] + right.size * lengths[1]) / sum(lengths),
    )
