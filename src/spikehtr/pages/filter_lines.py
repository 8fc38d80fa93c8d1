"""Which of the lines that were found are writing: rulings, edges, textures and the tops of tall letters are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.assign_ink import CORE, Owned, gather, share_out
from spikehtr.pages.find_ink import Mask
from spikehtr.pages.ridges import Ridge, around

SHORT, LONG = 7.0, 10.0  # sizes: below the first a line is a dot or a digit; from the second on it is judged in earnest
SOLID = 0.6  # share of the x-height that is ink in a bar; writing fills less
LOW, HIGH = 0.6, 5.0  # sizes that the ink is high in the middle: rulings are lower, pictures and edges higher
CROSSED = 0.16  # strokes that a cut along the line crosses for each size of its length
SHALLOW, SHALLOW_SHORT = 0.3, 0.5  # of the page's usual darkness: less is the table under the page, or bleed-through


class KeptLine(NamedTuple):
    """A line and its ink."""

    ridge: Ridge
    owned: Owned
    ys: NDArray[np.int32]
    xs: NDArray[np.int32]


def keep_writing(ink: Mask, dark: NDArray[np.float32], lines: Sequence[Ridge]) -> list[KeptLine]:
    """The lines that are writing, with their ink, after what the others left has gone to its right owners.

    Three rounds: rulings and the like go first, and their ink is wiped out of `ink`, so that it does not count as part
    of the lines beside them; then lines that are part of a stronger one beside them.
    """
    found: list[KeptLine] = []
    for neighbours in (False, True, True):
        ys, xs, owner = share_out(ink, lines)
        order = np.argsort(owner, kind="stable")
        bounds = np.searchsorted(owner[order], np.arange(len(lines) + 1))
        found = []
        for number, line in enumerate(lines):
            mine = order[bounds[number] : bounds[number + 1]]
            owned = gather(line, ys[mine], xs[mine])
            if owned is None:
                continue
            if _like_writing(line, owned, ink):
                found.append(KeptLine(line, owned, ys[mine], xs[mine]))
            elif owned.right - owned.left > LONG * line.size:
                ink[ys[mine], xs[mine]] = 0
        found = _dark_enough(found, dark)
        if neighbours:
            found = [one for one in found if not _part_of_another(one, found)]
        lines = [one.ridge for one in found]
    return found


def _like_writing(line: Ridge, owned: Owned, ink: Mask) -> bool:
    """By itself: not solid, not flat, not a tall edge, and crossed by strokes."""
    length = owned.right - owned.left
    solid = owned.core / ((length + 1) * 2 * CORE * line.size)
    height = float(np.median(owned.bottom - owned.top)) / line.size
    if length < 2 * line.size or solid > SOLID or not LOW <= height <= HIGH or owned.core < 0.4 * owned.tall:
        return False
    return _crossings(line, ink) >= CROSSED and (length >= SHORT * line.size or line.mean_strength >= 0.06)


def _crossings(line: Ridge, ink: Mask) -> float:
    """Strokes crossed along the crest and a little above and below it, for each size of its length."""
    x = np.arange(max(0, int(line.left)), min(ink.shape[1], int(line.right)))
    y = np.interp(x, line.x, line.y)
    count = 0
    for shift in (-0.5, 0.0, 0.5):
        rows = np.clip((y + shift * line.size).round().astype(np.int64), 0, ink.shape[0] - 1)
        there = ink[rows, x] > 0
        count += int(np.count_nonzero(there[1:] & ~there[:-1]))
    return count / 3 / max(1.0, len(x) / line.size)


def without_pale(ink: Mask, dark: NDArray[np.float32], pieces: Sequence[Ridge]) -> list[Ridge]:
    """Without short pieces of crests much paler than the rest: joined to a line, a shadow at its end would pass."""
    if not pieces:
        return []
    strokes = [around(piece, dark)[around(piece, ink) > 0] for piece in pieces]
    shades = np.array([stroke.mean() if stroke.size else 0.0 for stroke in strokes])
    long = np.array([piece.length > LONG * piece.size for piece in pieces])
    enough = long | (shades >= SHALLOW_SHORT * _usual(shades, np.array([stroke.size for stroke in strokes])))
    return [piece for piece, kept in zip(pieces, enough, strict=True) if kept]


def _usual(shades: NDArray[Any], weights: NDArray[Any]) -> float:
    """The page's usual darkness: the median over all ink."""
    order = np.argsort(shades)
    return float(shades[order][np.searchsorted(weights[order].cumsum(), weights.sum() / 2)])


def _dark_enough(found: list[KeptLine], dark: NDArray[np.float32]) -> list[KeptLine]:
    """Without lines much paler than the page's usual ink."""
    if not found:
        return []
    shades = np.array([dark[one.ys, one.xs].mean() for one in found])
    usual = _usual(shades, np.array([one.owned.core for one in found]))
    long = np.array([one.owned.right - one.owned.left > LONG * one.ridge.size for one in found])
    enough = shades >= np.where(long, SHALLOW, SHALLOW_SHORT) * usual
    return [one for one, kept in zip(found, enough, strict=True) if kept]


def _part_of_another(one: KeptLine, found: list[KeptLine]) -> bool:
    """Whether a longer, stronger line runs so close that this one is its ascenders, descenders or accents."""
    line, length = one.ridge, one.owned.right - one.owned.left
    middle = (one.owned.left + one.owned.right) / 2
    for other in (each.ridge for each in found):
        if other is line or other.length < 1.5 * line.length or not other.left < middle < other.right:
            continue
        away = abs(np.interp(middle, other.x, other.y) - np.interp(middle, line.x, line.y)) / other.size
        weaker = line.mean_strength / other.mean_strength
        if away < 4.5 and (other.size > 1.9 * line.size or (other.size > 1.4 * line.size and weaker < 0.8)):
            return True
        if away < 6.5 and weaker < 0.65:
            return True
        if away < SHORT and length < SHORT * line.size and line.mean_strength < 0.07:
            return True
    return False
