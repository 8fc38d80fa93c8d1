"""Whether a picture shows two pages side by side: only where both the picture and its lines say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.find_ink import find_fold
from spikehtr.pages.segment.decode_maps import DecodedLine

MIDDLE = (0.3, 0.7)  # of the width, between which a gutter is sought
CROSSED = 0.08  # share of the lines of the emptier side that may run over a gutter, not more
FEWEST = 3  # lines on either side
LONGEST = 1000  # pixels of the copy in which the fold's shadow is looked for


def gutter(
    lines: Sequence[DecodedLine], image: NDArray[np.uint8], spread: Literal["auto", "yes", "no"]
) -> float | None:
    """The x between two pages of an upright picture, None where it is one. "auto": a fold must be seen, and lines must
    end at it; "yes": wherever fewest lines cross."""
    if spread == "no" or not lines:
        return None
    if spread == "yes":
        return emptiest(lines, image.shape[1])
    step = max(1, max(image.shape) // LONGEST)
    fold = find_fold(np.ascontiguousarray(image[::step, ::step]))
    if fold is None:
        return None
    left, right, crossing = sides(lines, fold * step)
    fewer = min(left, right)
    return fold * step if fewer >= FEWEST and crossing <= CROSSED * fewer else None


def sides(lines: Sequence[DecodedLine], x: float) -> tuple[int, int, int]:
    """How many lines lie left of a place, right of it, and run over it by a height of theirs or more."""
    extents = np.array([(one.points[:, 0].min(), one.points[:, 0].max(), one.height) for one in lines])
    low, high, height = extents.T
    crossing = (low < x - height) & (high > x + height)
    middle = (low + high) / 2
    return int((~crossing & (middle < x)).sum()), int((~crossing & (middle >= x)).sum()), int(crossing.sum())


def emptiest(lines: Sequence[DecodedLine], width: int) -> float:
    """The place near the middle that fewest lines cross, in the middle of the widest such gap."""
    places = np.linspace(MIDDLE[0] * width, MIDDLE[1] * width, 201)
    extents = np.array([(one.points[:, 0].min(), one.points[:, 0].max()) for one in lines])
    crossed = ((extents[:, 0] < places[:, None]) & (extents[:, 1] > places[:, None])).sum(1)
    fewest = np.flatnonzero(crossed == crossed.min())
    runs = np.split(fewest, np.flatnonzero(np.diff(fewest) > 1) + 1)
    return float(places[max(runs, key=len)].mean())
