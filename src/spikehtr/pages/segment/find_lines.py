"""A page through the network: a first look tells size and direction of the writing, a second finds the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.pages.quarter_turns import upright
from spikehtr.pages.segment.decode_maps import DecodedLine, DecodeOptions, Probabilities, decode, probabilities
from spikehtr.pages.segment.line_network import MULTIPLE, LineNetwork

Gray = NDArray[np.uint8]
PADDED = 2 * MULTIPLE  # sides are padded to multiples of this, alone or in a batch: so that scans of a kind share one
BATCH_PIXELS = 24_000_000  # that go through a GPU together


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
    half: bool | None = None  # whether the network computes in bf16; None: on a GPU


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


def run(network: LineNetwork, images: Sequence[Gray], half: bool | None = None) -> list[Probabilities]:
    """The maps of images, whose sides are made multiples of PADDED by repeating the last row and column.

    On a GPU images of one padded size go through together; what is said of one does not depend on the others. `half`:
    in bf16; by default on a GPU only.
    """
    device = next(network.parameters()).device
    half = device.type == "cuda" if half is None else half
    together: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        together.setdefault(tuple(side + -side % PADDED for side in image.shape), []).append(number)
    out: dict[int, Probabilities] = {}
    for (height, width), numbers in together.items():
        most = max(1, BATCH_PIXELS // (height * width)) if device.type == "cuda" else 1
        for first in range(0, len(numbers), most):
            batch = numbers[first : first + most]
            maps = _maps(network, [images[number] for number in batch], height, width, half)
            for number, fine, coarse in zip(batch, *maps, strict=True):
                h, w = images[number].shape
                out[number] = probabilities(fine[:, : -(-h // 2), : -(-w // 2)], coarse[:, : -(-h // 4), : -(-w // 4)])
    return [out[number] for number in range(len(images))]


def _maps(
    network: LineNetwork, images: Sequence[Gray], height: int, width: int, half: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Both maps of images of one padded size, as the network gives them."""
    device = next(network.parameters()).device
    padded = [
        cv2.copyMakeBorder(one, 0, height - one.shape[0], 0, width - one.shape[1], cv2.BORDER_REPLICATE)
        for one in images
    ]
    with torch.inference_mode():
        given = torch.from_numpy(np.stack(padded)).to(device)[:, None].float() / 255
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            maps = network(given.contiguous(memory_format=torch.channels_last))
    fine, coarse = (one.float().cpu().numpy() for one in maps)
    return fine, coarse


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


class _Look(NamedTuple):
    turns: int
    maps: Probabilities
    overview: Overview


def orient(
    network: LineNetwork,
    small: Sequence[Gray],
    scales: Sequence[float],
    options: FindOptions,
    turns: int | None = None,
) -> list[_Look]:
    """A first look at pages once they are upright, and how each lies, unless that is given.

    Rows are told from columns at one look. Upright is told from upside down by looking at both: what a network has
    learned of how pages lie mostly weighs the same on either, and only what it sees is left.
    """

    def at(wanted: dict[int, int]) -> dict[int, _Look]:
        """Looks at pages turned back by so many quarters each."""
        maps = run(network, [upright(small[number], turns) for number, turns in wanted.items()], options.half)
        return {
            number: _Look(turns % 4, one, look(one, scales[number], options))
            for (number, turns), one in zip(wanted.items(), maps, strict=True)
        }

    seen = at(dict.fromkeys(range(len(small)), turns or 0))
    if turns is None:
        seen |= at({number: 1 for number, one in seen.items() if one.overview.height and one.overview.down})
        unsure = [n for n, one in seen.items() if one.overview.height and one.overview.upright < options.sure]
        for number, other in at({number: seen[number].turns + 2 for number in unsure}).items():
            if other.overview.upright > seen[number].overview.upright + options.doubt:
                seen[number] = other
    return [seen[number] for number in range(len(small))]


def find(
    network: LineNetwork,
    pages: Sequence[Gray],
    options: FindOptions | None = None,
    decoding: DecodeOptions | None = None,
    turns: int | None = None,
) -> list[FoundPage]:
    """The lines of pages; `turns` where it is known how they lie (0: upright)."""
    options = options or FindOptions()
    firsts = [first_scale(page, options) for page in pages]
    looks = orient(network, [resized(*one) for one in zip(pages, firsts, strict=True)], firsts, options, turns)
    scales = [
        second_scale(page.size, one.overview.height, first, options)
        for page, one, first in zip(pages, looks, firsts, strict=True)
    ]
    again = [number for number, first in enumerate(firsts) if scales[number] != first]
    closer = [upright(resized(pages[number], scales[number]), looks[number].turns) for number in again]
    maps = {number: one.maps for number, one in enumerate(looks)}
    maps |= dict(zip(again, run(network, closer, options.half), strict=True))
    found = []
    for number, (one, scale) in enumerate(zip(looks, scales, strict=True)):
        lines = decode(maps.pop(number), decoding)
        lines = [DecodedLine(o.points / scale, o.above / scale, o.below / scale, o.score) for o in lines]
        found.append(FoundPage(lines, one.turns, one.overview.height, scale))
    return found


def first_scale(page: Gray, options: FindOptions) -> float:
    return min(1.0, float(np.sqrt(options.overview / page.size)))


def second_scale(pixels: int, height: float, first: float, options: FindOptions) -> float:
    """The scale of the second look; that of the first where it will do, or where there is no writing."""
    if not height:
        return first
    scale = min(options.height / height, options.enlarge, float(np.sqrt(options.most / pixels)))
    return first if abs(np.log(scale / first)) < 0.15 else scale
