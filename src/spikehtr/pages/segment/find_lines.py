"""A page through the network: a first look tells size and direction of the writing, a second finds the lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.pages.segment.decode_maps import DecodedLine, DecodeOptions, Probabilities, decode, probabilities
from spikehtr.pages.segment.line_network import MULTIPLE, LineNetwork

Gray = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FindOptions:
    """At which sizes pages are looked at."""

    overview: float = 350_000.0  # pixels of the first look
    height: float = 26.0  # pixels to which the height of the smaller lines is brought for the second look
    quantile: float = 0.35  # which lines are the smaller ones
    most: float = 1_600_000.0  # pixels of the second look
    enlarge: float = 2.0  # no page is made larger than so many times its size
    sure: float = 4.0  # log odds of upright against upside down from which a page is not looked at upside down
    doubt: float = 0.03  # log odds: a page is turned by 180 degrees only for more than this


class Overview(NamedTuple):
    """What a first look says of a page, or of the page it has turned upright."""

    height: float  # of the smaller lines, pixels of the page; 0 where there is no writing
    down: bool  # whether most of the writing runs up or down the page
    upright: float  # log odds that the writing stands upright and not upside down, mean over it


class FoundPage(NamedTuple):
    """Lines in pixels of the page once it is upright, top to bottom."""

    lines: list[DecodedLine]
    turns: int  # quarter turns clockwise by which the page lies; `upright` undoes them
    height: float  # of the smaller lines as the first look has it, pixels of the page; 0 where there is no writing
    scale: float  # of the second look


def run(network: LineNetwork, image: Gray) -> Probabilities:
    """The maps of an image, whose sides are made multiples of MULTIPLE by repeating the last row and column."""
    height, width = image.shape
    padded = cv2.copyMakeBorder(image, 0, -height % MULTIPLE, 0, -width % MULTIPLE, cv2.BORDER_REPLICATE)
    device = next(network.parameters()).device
    with torch.inference_mode():
        given = torch.from_numpy(np.ascontiguousarray(padded)).to(device)[None, None].float() / 255
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            maps = network(given.contiguous(memory_format=torch.channels_last))
    fine, coarse = (one[0].float().cpu().numpy() for one in maps)
    return probabilities(fine[:, : -(-height // 2), : -(-width // 2)], coarse[:, : -(-height // 4), : -(-width // 4)])


def resized(image: Gray, scale: float) -> Gray:
    size = tuple(max(8, round(side * scale)) for side in image.shape[::-1])
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR))


def look(maps: Probabilities, scale: float, options: FindOptions) -> Overview:
    """What a first look at the given scale says of a page."""
    weight = np.where(maps.body > 0.5, maps.body, 0).ravel()
    if weight.sum() < 20:
        return Overview(0.0, False, 0.0)
    heights = maps.heights.sum(0).ravel()
    order = np.argsort(heights)
    reached = np.cumsum(weight[order] / heights[order])  # a line counts by its length, not by its area
    height = float(heights[order][np.searchsorted(reached, options.quantile * reached[-1])])
    turn = maps.turn.reshape(4, -1)
    votes = (turn * weight).sum(1) / weight.sum()
    odds = np.log(np.maximum(turn[0], 1e-9) / np.maximum(turn[2], 1e-9))
    return Overview(height / scale, bool(votes[1] + votes[3] > 0.5), float((odds * weight).sum() / weight.sum()))


def upright(image: Gray, turns: int) -> Gray:
    """A page that lies `turns` quarter turns clockwise, turned back."""
    return np.ascontiguousarray(np.rot90(image, turns))


def as_it_lies(points: NDArray[Any], turns: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Points [n, 2] of a page turned upright, in pixels of the page as it lies, whose image has this shape."""
    height, width = shape[0] - 1, shape[1] - 1
    x, y = points.T
    places = ((x, y), (width - y, x), (width - x, height - y), (y, height - x))
    return np.stack(places[turns % 4], 1)


class _Look(NamedTuple):
    turns: int
    maps: Probabilities
    overview: Overview


def orient(network: LineNetwork, small: Gray, scale: float, options: FindOptions, turns: int | None = None) -> _Look:
    """A first look at a page once it is upright, and how it lies, unless that is given.

    Rows are told from columns at one look. Upright is told from upside down by looking at both: what a network has
    learned of how pages lie mostly weighs the same on either, and only what it sees is left.
    """

    def at(turns: int) -> _Look:
        maps = run(network, upright(small, turns))
        return _Look(turns, maps, look(maps, scale, options))

    first = at(turns or 0)
    if turns is not None or not first.overview.height:
        return first
    if first.overview.down:
        first = at(1)
    if first.overview.upright >= options.sure:
        return first
    other = at(first.turns + 2)
    return other if other.overview.upright > first.overview.upright + options.doubt else first


def find(
    network: LineNetwork,
    page: Gray,
    options: FindOptions | None = None,
    decoding: DecodeOptions | None = None,
    turns: int | None = None,
) -> FoundPage:
    """The lines of a page; `turns` where it is known how the page lies (0: upright)."""
    options = options or FindOptions()
    first = first_scale(page, options)
    seen = orient(network, resized(page, first), first, options, turns)
    height, maps = seen.overview.height, seen.maps
    scale = second_scale(page.size, height, first, options)
    if scale != first:
        maps = run(network, upright(resized(page, scale), seen.turns))
    lines = [DecodedLine(o.points / scale, o.above / scale, o.below / scale, o.score) for o in decode(maps, decoding)]
    return FoundPage(lines, seen.turns, height, scale)


def first_scale(page: Gray, options: FindOptions) -> float:
    return min(1.0, float(np.sqrt(options.overview / page.size)))


def second_scale(pixels: int, height: float, first: float, options: FindOptions) -> float:
    """The scale of the second look; that of the first where it will do, or where there is no writing."""
    if not height:
        return first
    scale = min(options.height / height, options.enlarge, float(np.sqrt(options.most / pixels)))
    return first if abs(np.log(scale / first)) < 0.15 else scale
