"""Lines made level: many hands climb or sink, and of a line as high as its box much is then paper.

The slope is the one at which the rows' sums of ink are most uneven: at which letters stand in a row. The line is
sheared by it, each column up or down, so that places along the line stay what they are, and the rows that are then
empty are cut off. Scaled to the network's height, the letters of a sloping line come out larger.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

_ROWS, _COLUMNS = 64, 96  # of the small picture in which the slope is looked for, at most
_STEEPEST = 0.8  # of the height: how far one end may lie above the other
_STEP = 4  # rows, in the first search
_SHORTEST, _LOWEST = 2, 8  # heights a line must be wide, and rows high: of less no slope can be told
_GAIN = 1.03  # the rows must become so much more uneven, or a line counts as level
_LEAST = 0.4  # of the height: so much is always left, or a dash would fill the line
_MARGIN = 0.05  # of what is left, above and below
_SPECK = 4  # pixels of 64 rows: so much ink may be cut off above and below, less than the dot of an i
_FAINT, _DARK = 0.1, 0.35  # of the darkest ink: what is lighter is paper; what is darker is a stroke
_CONTRAST = 24  # grey levels between ink and paper; with less there is nothing to go by
_COUNTED = 1 << 24  # pixels that the library counts exactly
_WIDEST = 1 << 15  # columns that the library can shear


class _Ink(NamedTuple):
    """The inked places of a picture of a line."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    darkness: NDArray[np.float32]
    height: int
    width: int

    def profiles(self, sinks: NDArray[np.intp]) -> NDArray[np.float64]:
        """The ink in each row once a line is level that sinks by so many rows; of each such number [N, 3 * height].

        Row 0 stands at `height`: there are as many rows above and below as the line has.
        """
        columns = (np.arange(self.width) + 0.5) / self.width - 0.5
        down = np.rint(sinks[:, None] * columns).astype(np.intp)  # [N, width]
        size = 3 * self.height
        places = (np.arange(len(sinks)) * size + self.height)[:, None] + self.rows - down[:, self.columns]
        ink = np.bincount(places.ravel(), np.tile(self.darkness, len(sinks)), len(sinks) * size)
        return ink.reshape(len(sinks), size).astype(np.float64, copy=False)

    def evenness(self, sinks: range) -> NDArray[np.float64]:
        uneven: NDArray[np.float64] = np.square(self.profiles(np.array(sinks))).sum(1)
        return -uneven


def grey_levels(gray: NDArray[np.uint8], *shares: float) -> list[int]:
    """The levels that such shares of the pixels are as dark as, or darker. (By counting: sorting is slow.)"""
    flat = gray.reshape(-1, 1)
    if 0 < gray.size < _COUNTED:
        up_to = cv2.calcHist([flat], [0], None, [256], [0, 256]).ravel().astype(np.int64).cumsum()
    else:
        up_to = np.bincount(flat[:, 0], minlength=256).cumsum()
    return [int(np.searchsorted(up_to, share * gray.size)) for share in shares]


def straighten(gray: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey line [h, w] without its slope, and without the empty rows above and below: [h', w]."""
    height, width = gray.shape
    paper, dark = grey_levels(gray, 0.5, 0.02)
    rows = min(height, _ROWS)
    strokes = _ink(gray, (max(1, round(width * rows / height)), rows), paper, _DARK * (paper - dark))
    strokes = strokes._replace(darkness=np.ones_like(strokes.darkness))  # their pixels count, not how dark they are
    if paper - dark < _CONTRAST or not len(strokes.rows) or width >= _WIDEST:
        return gray
    sinks = 0
    if width >= _SHORTEST * height and height >= _LOWEST:
        sinks = _slope(_ink(gray, (min(width, _COLUMNS), rows), paper, _FAINT * (paper - dark)))
    top, bottom = (round(edge * height / rows) for edge in _extent(strokes.profiles(np.array([sinks]))[0], rows))
    if sinks == 0:
        return gray[max(top, 0) : min(bottom, height)]
    fall = sinks * height / rows
    back = np.array([[1, 0, 0], [fall / width, 1, top - fall / 2]])  # from a place in the result to one in the line
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return np.asarray(cv2.warpAffine(gray, back, (width, bottom - top), flags=flags, borderValue=paper), np.uint8)


def _ink(gray: NDArray[np.uint8], size: tuple[int, int], paper: int, least: float) -> _Ink:
    """What is darker than paper by `least`, in a picture so wide and high."""
    darkness = paper - cv2.resize(gray, size, interpolation=cv2.INTER_AREA).astype(np.float32)
    rows, columns = np.nonzero(darkness > least)
    return _Ink(rows, columns, darkness[rows, columns], size[1], size[0])


def _slope(ink: _Ink) -> int:
    """How many rows of its picture a line sinks from its left end to its right one; below 0: it climbs."""
    most = round(_STEEPEST * ink.height)
    steps = range(-most, most + 1, _STEP)
    coarse = steps[int(ink.evenness(steps).argmin())]
    near = range(max(-most, coarse - _STEP + 1), min(most, coarse + _STEP - 1) + 1)
    found = ink.evenness(near)
    best = int(found.argmin())
    return near[best] if found[best] < _GAIN * ink.evenness(range(1))[0] else 0


def _extent(pixels: NDArray[np.float64], height: int) -> tuple[float, float]:
    """The first of the rows to be kept, and where they end, counted from the line's own first row; `pixels` of strokes
    in each row of a profile."""
    part = pixels.cumsum()
    speck = min(_SPECK, (part[-1] - 1) / 2)
    top, bottom = np.searchsorted(part, speck, "right"), np.searchsorted(part, part[-1] - speck) + 1
    margin = max(_MARGIN * (bottom - top), (_LEAST * height - (bottom - top)) / 2, 1)
    return float(top - margin - height), float(bottom + margin - height)
