"""Lines of writing as ridges: smeared along the line, each line of ink becomes a crest that can be followed.

The ink is blurred by Gaussians longer than high, at several sizes, and answered by their second derivative across (a
bar of ink as high as the Gaussian is wide answers most), so that small and large hands on one page both stand out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.find_ink import Mask

Floats = NDArray[np.float64]

STEP_X, STEP_Y = 4, 2  # pixels of the page a cell of the grid
LENGTH = 5.0  # how many times longer than high the Gaussians are
SIZES = (4.5, 6.5, 9.5, 14.0, 20.0)  # half heights of writing to look for, in pixels of a page 2,000 pixels long
GAP = 10.0  # sizes without ink over which a crest is not followed by itself
WEAKEST = 0.025  # of the answer of solid ink: less is no line


@dataclass(frozen=True, slots=True)
class Ridge:
    """A crest from left to right, in pixels of the page: a point every STEP_X pixels."""

    x: Floats
    y: Floats
    strength: Floats
    size: float  # the half height of the writing, about half an x-height

    @property
    def left(self) -> float:
        return float(self.x[0])

    @property
    def right(self) -> float:
        return float(self.x[-1])

    @property
    def length(self) -> float:
        return self.right - self.left

    @property
    def mean_strength(self) -> float:
        """Over the parts that were followed; bridges over gaps have none."""
        return float(self.strength[self.strength > 0].mean())

    def part(self, which: slice | NDArray[np.bool_]) -> Ridge:
        return Ridge(self.x[which], self.y[which], self.strength[which], self.size)


def response(ink: Mask) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The strongest answer on the grid [h / STEP_Y, w / STEP_X], and which of the sizes gave it."""
    rows, columns = -(-ink.shape[0] // STEP_Y), -(-ink.shape[1] // STEP_X)
    density = cv2.resize(ink, (columns, rows), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    best = np.full(density.shape, -1, np.float32)
    which = np.zeros(density.shape, np.uint8)
    for index, size in enumerate(SIZES):
        sigma = size / STEP_Y
        blurred = cv2.GaussianBlur(density, (0, 0), LENGTH * size / STEP_X, sigmaY=sigma, borderType=cv2.BORDER_REFLECT)
        answer = -(sigma**2) * cv2.Sobel(blurred, cv2.CV_32F, 0, 2, ksize=1)
        stronger = answer > best
        best[stronger] = answer[stronger]
        which[stronger] = index
    return best, which


def trace(answer: NDArray[np.float32], which: NDArray[np.uint8]) -> list[Ridge]:
    """Crests followed from column to column: each peak goes on in the nearest peak of the next column."""
    crest = np.zeros(answer.shape, bool)
    crest[1:-1] = (answer[1:-1] >= answer[:-2]) & (answer[1:-1] > answer[2:]) & (answer[1:-1] > WEAKEST)
    open_ends: dict[int, int] = {}  # row of a ridge's last peak -> its number
    found: list[list[tuple[int, int]]] = []
    for column in range(answer.shape[1]):
        rows = np.flatnonzero(crest[:, column])
        going: dict[int, int] = {}
        ends = np.array(list(open_ends))
        for row in rows:
            number = None
            if len(ends):
                near = int(ends[np.abs(ends - row).argmin()])
                if abs(near - row) <= 2 and rows[np.abs(rows - near).argmin()] == row:
                    number = open_ends[near]
            if number is None:
                number = len(found)
                found.append([])
            found[number].append((column, int(row)))
            going[int(row)] = number
        open_ends = going
    return [_ridge(points, answer, which) for points in found if len(points) >= 3]


def around(ridge: Ridge, page: NDArray[Any]) -> NDArray[Any]:
    """The page along a crest, a size above and below it: [points, heights, STEP_X]."""
    reach = max(1, round(ridge.size))
    columns = np.clip(ridge.x.astype(np.int64)[:, None] + np.arange(-STEP_X // 2, STEP_X // 2), 0, page.shape[1] - 1)
    rows = np.clip(ridge.y.astype(np.int64)[:, None] + np.arange(-reach, reach + 1), 0, page.shape[0] - 1)
    cut: NDArray[Any] = page[rows[:, :, None], columns[:, None, :]]
    return cut


def inked(ridge: Ridge, ink: Mask) -> list[Ridge]:
    """The parts of a crest that have ink: the blur draws it out past its ends and over wide gaps."""
    there = np.flatnonzero(around(ridge, ink).any((1, 2)))
    breaks = np.flatnonzero(np.diff(there) * STEP_X > GAP * ridge.size) + 1
    parts = [part for part in np.split(there, breaks) if len(part)]
    return [ridge.part(slice(part[0], part[-1] + 1)) for part in parts if part[-1] - part[0] >= 2]


def _ridge(points: list[tuple[int, int]], answer: NDArray[np.float32], which: NDArray[np.uint8]) -> Ridge:
    columns, rows = np.array(points).T
    here, above, below = (answer[rows + shift, columns].astype(np.float64) for shift in (0, -1, 1))
    bend = above - 2 * here + below
    offset = np.where(bend < 0, 0.5 * (above - below) / np.minimum(bend, -1e-9), 0.0)  # the parabola's top
    return Ridge(
        x=(columns + 0.5) * STEP_X,
        y=(rows + 0.5 + np.clip(offset, -0.5, 0.5)) * STEP_Y,
        strength=here,
        size=float(np.median(np.asarray(SIZES)[which[rows, columns]])),
    )
