"""Which ink belongs to which line, and what follows from it: the line's ends, baseline and outline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.find_ink import Mask
from spikehtr.pages.ridges import STEP_X, STEP_Y, Floats, Ridge

CORE = 1.15  # sizes above and below the crest: the x-height
REACH = 5.0  # sizes at the most from the crest to the line's own dots, ascenders and descenders
WHOLE = 0.8  # share of a stroke's core ink in one line from which all of it is that line's
BIN = 8  # pixels along the line for which one top and one bottom are kept


@dataclass(frozen=True, slots=True)
class Owned:
    """The ink of one line: where, column by column, it begins and ends."""

    left: float
    right: float
    x: Floats  # middles of the bins that hold ink
    top: Floats
    bottom: Floats
    core: int  # pixels of ink in the x-height
    tall: int  # pixels of ink at all


def share_out(ink: Mask, lines: Sequence[Ridge]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """(ys, xs, owner) of every pixel of ink; owner is the line's number, or -1.

    A connected stroke goes as a whole to the line whose x-height holds most of it; one that lies in the x-height of
    several (touching descenders) is cut half way between them.
    """
    ys, xs = np.nonzero(ink)
    zones, cores = _maps(ink.shape, lines)
    zone, core = (cells[ys // STEP_Y, xs // STEP_X].astype(np.int64) for cells in (zones, cores))
    count, labels = cv2.connectedComponents(ink, connectivity=8)
    parts = labels[ys, xs].astype(np.int64)
    n = max(1, len(lines))
    inside = core >= 0
    tally = np.bincount(parts[inside] * n + core[inside], minlength=count * n).reshape(count, n)
    total, most = tally.sum(1), tally.argmax(1)
    whole = (total > 0) & (tally.max(1) >= WHOLE * total)
    owner = np.where(whole[parts], most[parts], zone)
    return ys.astype(np.int32), xs.astype(np.int32), _within_reach(owner, lines, ys, xs)


def _maps(shape: tuple[int, ...], lines: Sequence[Ridge]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """On the ridges' grid, the nearest line (in sizes of it), and the line in whose x-height a cell lies; or -1."""
    cells = -(-shape[0] // STEP_Y), -(-shape[1] // STEP_X)
    zones, cores = np.full(cells, -1, np.int32), np.full(cells, -1, np.int32)
    nearest = np.full(cells, np.inf, np.float32)
    for number, line in enumerate(lines):
        margin = 3 * line.size
        first, end = int(max(0, (line.left - margin) // STEP_X)), int((line.right + margin) // STEP_X) + 1
        columns = np.arange(first, min(end, cells[1]))
        height = np.interp((columns + 0.5) * STEP_X, line.x, line.y)
        reach = int(REACH * line.size / STEP_Y) + 1
        rows = (height / STEP_Y).astype(np.int64)[:, None] + np.arange(-reach, reach + 1)  # [columns, band]
        away = np.abs((rows + 0.5) * STEP_Y - height[:, None]) / line.size
        rows = np.clip(rows, 0, cells[0] - 1)
        across = np.broadcast_to(columns[:, None], rows.shape)
        closer = away < nearest[rows, across]
        rows, across, away = rows[closer], across[closer], away[closer]
        nearest[rows, across] = away
        zones[rows, across] = number
        cores[rows, across] = np.where(away <= CORE, number, -1)
    return zones, cores


def _within_reach(
    owner: NDArray[np.int64], lines: Sequence[Ridge], ys: NDArray[np.int64], xs: NDArray[np.int64]
) -> NDArray[np.int32]:
    out = owner.astype(np.int32)
    for number, line in enumerate(lines):
        chosen = np.flatnonzero(owner == number)
        away = np.abs(ys[chosen] - np.interp(xs[chosen], line.x, line.y)) / line.size
        out[chosen[away > REACH]] = -1
    return out


def gather(line: Ridge, ys: NDArray[np.int32], xs: NDArray[np.int32]) -> Owned | None:
    """What one line owns; None if that is next to nothing."""
    if len(xs) < 12:
        return None
    away = (ys - np.interp(xs, line.x, line.y)) / line.size
    core = np.abs(away) <= CORE
    if core.sum() < 8:
        return None
    # Ends by the core ink, less a stray pixel or two: a long flourish does not make the line longer.
    left, right = np.percentile(xs[core], (0.2, 99.8))
    order = np.argsort(xs // BIN, kind="stable")
    bins, starts = np.unique((xs // BIN)[order], return_index=True)
    top, bottom = (reduce.reduceat(ys[order], starts).astype(np.float64) for reduce in (np.minimum, np.maximum))
    middles = (bins + 0.5).astype(np.float64) * BIN
    return Owned(float(left), float(right), middles, top, bottom, int(core.sum()), len(xs))


def baseline_of(line: Ridge, owned: Owned, ys: NDArray[np.int32], xs: NDArray[np.int32]) -> Floats:
    """Points [n, 2] of the line on which the writing stands: where, below the crest, the ink falls off most steeply."""
    away = ys - np.interp(xs, line.x, line.y)
    size = line.size
    bins = np.arange(-size, 3 * size + 1, 1.0)
    profile = np.histogram(away, bins)[0].astype(np.float64)
    spread = max(1.0, 0.3 * size)
    kernel = np.exp(-0.5 * (np.arange(-3 * spread, 3 * spread + 1) / spread) ** 2)
    fall = -np.diff(np.convolve(profile, kernel / kernel.sum(), "same"))
    middle = bins[1:-1]
    allowed = (middle > 0.3 * size) & (middle < 2.0 * size)
    offset = float(middle[allowed][fall[allowed].argmax()]) if allowed.any() else size
    step = 4 * size
    x = np.linspace(owned.left, owned.right, max(2, round((owned.right - owned.left) / step) + 1))
    window = max(3, round(6 * size / 4) | 1)
    padded = np.pad(line.y, window // 2, mode="edge")
    smooth = np.convolve(padded, np.ones(window) / window, "valid")
    return np.stack([x, np.interp(x, line.x, smooth) + offset], 1)
