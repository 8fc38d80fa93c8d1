"""A page through the network: a first look tells size and direction of the writing, a second finds the lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from spikehtr.pages.segment.decoding import DecodedLine, DecodeOptions, Probabilities, decode, probabilities
from spikehtr.pages.segment.network import MULTIPLE, LineNetwork

Gray = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FindOptions:
    """At which sizes pages are looked at."""

    overview: float = 350_000.0  # pixels of the first look
    height: float = 26.0  # pixels to which the height of the smaller lines is brought for the second look
    quantile: float = 0.35  # which lines are the smaller ones
    most: float = 1_600_000.0  # pixels of the second look
    enlarge: float = 2.0  # no page is made larger than so many times its size
    sure: float = 0.6  # share of the writing that must agree for a page to be turned


class Overview(NamedTuple):
    height: float  # of the smaller lines, pixels of the page; 0 where there is no writing
    turns: int  # quarter turns clockwise by which the page is turned
    agreement: float  # share of the writing that is turned so


class Found(NamedTuple):
    """Lines in pixels of the page as it stands, top to bottom."""

    lines: list[DecodedLine]
    overview: Overview
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
        return Overview(0.0, 0, 0.0)
    heights = maps.heights.sum(0).ravel()
    order = np.argsort(heights)
    reached = np.cumsum(weight[order] / heights[order])  # a line counts by its length, not by its area
    height = float(heights[order][np.searchsorted(reached, options.quantile * reached[-1])])
    votes = (maps.turn.reshape(4, -1) * weight).sum(1) / weight.sum()
    turns = int(votes.argmax())
    return Overview(height / scale, turns, float(votes[turns]))


def find(
    network: LineNetwork, page: Gray, options: FindOptions | None = None, decoding: DecodeOptions | None = None
) -> Found:
    """The lines of an upright page."""
    options = options or FindOptions()
    first = min(1.0, float(np.sqrt(options.overview / page.size)))
    maps = run(network, resized(page, first))
    overview = look(maps, first, options)
    scale = second_scale(page.size, overview.height, first, options)
    if scale != first:
        maps = run(network, resized(page, scale))
    lines = [DecodedLine(o.points / scale, o.above / scale, o.below / scale, o.score) for o in decode(maps, decoding)]
    return Found(lines, overview, scale)


def second_scale(pixels: int, height: float, first: float, options: FindOptions) -> float:
    """The scale of the second look; that of the first where it will do, or where there is no writing."""
    if not height:
        return first
    scale = min(options.height / height, options.enlarge, float(np.sqrt(options.most / pixels)))
    return first if abs(np.log(scale / first)) < 0.15 else scale
