"""A page through the network: a first look tells size and direction of the writing, a second finds the lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from spikehtr.pages.quarter_turns import upright
from spikehtr.pages.segment.decode_maps import DecodedLine, DecodeOptions, Probabilities, decode, probabilities
from spikehtr.pages.segment.maps import Gray, LookAt


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
    look_at: LookAt,
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
        maps = look_at([upright(small[number], turns) for number, turns in wanted.items()])
        return {
            number: _Look(turns % 4, one, look(one, scales[number], options))
            for (number, turns), one in zip(wanted.items(), map(probabilities, maps), strict=True)
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
    look_at: LookAt,
    pages: Sequence[Gray],
    options: FindOptions | None = None,
    decoding: DecodeOptions | None = None,
    turns: int | None = None,
) -> list[FoundPage]:
    """The lines of pages; `turns` where it is known how they lie (0: upright)."""
    options = options or FindOptions()
    firsts = [first_scale(page, options) for page in pages]
    looks = orient(look_at, [resized(*one) for one in zip(pages, firsts, strict=True)], firsts, options, turns)
    scales = [
        second_scale(page.size, one.overview.height, first, options)
        for page, one, first in zip(pages, looks, firsts, strict=True)
    ]
    again = [number for number, first in enumerate(firsts) if scales[number] != first]
    closer = [upright(resized(pages[number], scales[number]), looks[number].turns) for number in again]
    maps = {number: one.maps for number, one in enumerate(looks)}
    maps |= dict(zip(again, map(probabilities, look_at(closer)), strict=True))
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
