"""Pages and lines that lie on their side or head: images turned upright, and points there and back.

A page lies `turns` quarter turns clockwise if its text reads from left to right only once it is turned back by as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats.outlines import Box, Points, bounds

_BACK = (None, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180, Image.Transpose.ROTATE_270)


def upright(image: NDArray[Any], turns: int) -> NDArray[Any]:
    """An array [h, w] that lies so, turned back."""
    return np.ascontiguousarray(np.rot90(image, turns))


def upright_image(image: Image.Image, turns: int) -> Image.Image:
    back = _BACK[turns % 4]
    return image if back is None else image.transpose(back)


def as_it_lies(points: NDArray[Any], turns: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Points [n, 2] of a page turned upright, in pixels of the page as it lies, whose image has this shape."""
    height, width = shape[0] - 1, shape[1] - 1
    x, y = points.T
    places = ((x, y), (width - y, x), (width - x, height - y), (y, height - x))
    return np.stack(places[turns % 4], 1)


def turned_upright(points: Sequence[tuple[float, float]], turns: int, size: tuple[int, int]) -> Points:
    """Points of a page of `size` (width, height) as it lies, in pixels of the page turned upright."""
    if not turns % 4 or not points:
        return tuple(points)
    shape = size[::-1] if turns % 2 == 0 else size
    return tuple((float(x), float(y)) for x, y in as_it_lies(np.array(points), -turns, shape))


def box_as_it_lies(box: Box, turns: int, size: tuple[int, int]) -> Box:
    """A box (left, top, right, bottom; the last two are edges, beyond the last pixel) of the page turned upright."""
    if not turns % 4:
        return box
    left, top, right, bottom = box
    edges = as_it_lies(np.array([(left, top), (right, bottom)]), turns, (size[1] + 1, size[0] + 1))
    return bounds([(float(x), float(y)) for x, y in edges])


def quarter(points: Sequence[tuple[float, float]]) -> int:
    """How many quarter turns clockwise a baseline's direction is from left to right, by its ends."""
    if len(points) < 2:
        return 0
    (x0, y0), (x1, y1) = points[0], points[-1]
    return round(float(np.arctan2(y1 - y0, x1 - x0)) / (np.pi / 2)) % 4


def quarter_of_given(baseline: Points, outline: Points, upside_down: bool) -> int:
    """The same of a line that a file gives: which end was clicked first says nothing of level lines, so they are upside
    down only where the file says so. A line that runs up or down is higher than wide, and longer than a letter."""
    turns = quarter(baseline)
    if turns % 2 == 0:
        return 2 if upside_down else 0
    left, top, right, bottom = bounds(outline)
    return turns if bottom - top > 1.5 * (right - left) else 0
