"""How a line image becomes the network's input. One implementation for training, evaluation and transcription.

A line may be made level first (`straightening`). Then height 64 by bicubic interpolation with the aspect kept; a line
that is wider than the maximum is scaled down further, aspect still kept, and stands in the middle of a 64-pixel canvas
filled with the paper's level. Two steps, so that a store can keep the first one's result and serve any maximum width.
Right padding is the batch's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from spikehtr.data.straightening import grey_levels, straighten


class FittedLine(NamedTuple):
    """A line image as the network takes it, and the width it had before."""

    pixels: NDArray[np.uint8]  # [height, w]
    original_width: int


@dataclass(frozen=True)
class LineFitting:
    """How line images become a network's input: plain values, for processes that know no network."""

    height: int
    max_width: int
    straighten: bool

    def __call__(self, gray: Image.Image) -> FittedLine:
        return FittedLine(fit_line(gray, self.height, self.max_width, self.straighten), gray.width)

    def rows_seen(self, width: int, height: int) -> float:
        """How many rows of its own a line has left as the network sees it: a very wide one is scaled down whole."""
        return min(height, self.height, self.max_width * height / width)


def paper_level(gray: NDArray[np.uint8]) -> int:
    """The grey level of the background: the median, since most of a line is paper."""
    return grey_levels(gray, 0.5)[0]


def cut_line(
    page: Image.Image,
    polygon: Sequence[tuple[float, float]] | None,
    box: tuple[float, float, float, float] | None = None,
) -> Image.Image:
    """The part of a grey page inside a polygon (around it: the paper's level), or inside a box, or all of it.

    An empty part, or one outside the page, gives an image of no width or no height.
    """
    if polygon is not None:
        xs, ys = [x for x, _ in polygon], [y for _, y in polygon]
        # A pixel more all round: outlines are drawn tight, and strokes at the very edge blur when scaled.
        box = (min(xs) - 1, min(ys) - 1, max(xs) + 2, max(ys) + 2)
    if box is None:
        return page
    left, top = max(0, round(box[0])), max(0, round(box[1]))
    right, bottom = min(page.width, round(box[2])), min(page.height, round(box[3]))
    crop = page.crop((left, top, max(left, right), max(top, bottom)))
    if polygon is None or not crop.width or not crop.height:
        return crop
    mask = Image.new("1", crop.size)
    ImageDraw.Draw(mask).polygon([(x - left, y - top) for x, y in polygon], fill=1, outline=1)
    inside = np.asarray(mask)
    pixels = np.array(crop)
    if inside.any():
        pixels[~inside] = paper_level(pixels[inside])
    return Image.fromarray(pixels)


def scale_line(image: Image.Image, height: int, level: bool = False) -> NDArray[np.uint8]:
    """Step one: grey, [height, w], aspect kept; made level before, if asked for."""
    gray = image.convert("L")
    if level:
        gray = Image.fromarray(straighten(np.asarray(gray)))
    width = max(1, round(gray.width * height / gray.height))
    return np.asarray(gray.resize((width, height), Image.Resampling.BICUBIC))


def shrink_line(line: NDArray[np.uint8], max_width: int) -> NDArray[np.uint8]:
    """Step two: [height, w] -> [height, min(w, max_width)]; what is too wide is scaled down whole and centred."""
    height, width = line.shape
    if width <= max_width:
        return line
    tall = max(1, round(height * max_width / width))
    small = np.asarray(Image.fromarray(line).resize((max_width, tall), Image.Resampling.BICUBIC))
    canvas = np.full((height, max_width), paper_level(small), np.uint8)
    top = (height - tall) // 2
    canvas[top : top + tall] = small
    return canvas


def fit_line(image: Image.Image, height: int, max_width: int, level: bool = False) -> NDArray[np.uint8]:
    """Both steps: grey [height, w] with w <= max_width."""
    return shrink_line(scale_line(image, height, level), max_width)
