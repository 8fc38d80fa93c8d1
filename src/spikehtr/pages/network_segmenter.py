"""The line network as a segmenter: pages in, regions of lines out, on a CPU page by page, on a GPU in batches."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats.outlines import Points
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLayout, FoundLine, FoundRegion, LayoutOptions
from spikehtr.pages.quarter_turns import as_it_lies, upright
from spikehtr.pages.shared_arrays import Arrays
from spikehtr.pages.worker_pool import Answer, ask
from spikehtr.results.clipping import clip_baseline, clip_polygon

if TYPE_CHECKING:
    from spikehtr.pages.segment.decode_maps import DecodedLine
    from spikehtr.pages.segment.find_lines import FoundPage
    from spikehtr.pages.segment.line_network import LineNetwork
    from spikehtr.pages.segment.maps import Gray, Logits

SMALLEST = 16  # pixels of a side: on less there is no writing
SIMPLER = 0.03  # heights of its line that a point left out of an outline may lie off it
SAID = {1: "90 degrees clockwise", 2: "180 degrees", 3: "90 degrees counter-clockwise"}


@dataclass(frozen=True)
class NetworkSegmenter:
    """Can be sent to other processes: each loads the network when it first needs it."""

    weights: Path
    device: str = "cpu"
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    asks: bool = False  # the process that started this one, for what the network says

    def __call__(self, page: Image.Image) -> FoundLayout:
        return self.segment_pages([page])[0]

    def segment_pages(self, pages: Sequence[Image.Image]) -> list[FoundLayout]:
        """Each page's layout, which does not depend on the others."""
        grays = [np.asarray(page.convert("L")) for page in pages]
        large = [number for number, gray in enumerate(grays) if min(gray.shape) >= SMALLEST]
        found = self._find([grays[number] for number in large])
        layouts = {number: _layout(one, grays[number], self.layout) for number, one in zip(large, found, strict=True)}
        small = FoundLayout([], [f"smaller than {SMALLEST} pixels: too small for a page with writing"])
        return [layouts.get(number, small) for number in range(len(pages))]

    def for_workers(self) -> tuple[Self, Answer | None]:
        """What other processes find lines with, and what answers them: a network on a GPU is loaded here alone."""
        return (self, None) if self.device == "cpu" else (replace(self, asks=True), self.answer)

    def answer(self, asked: Sequence[Arrays]) -> list[Arrays]:
        """What the network says of the images of each that asks, all of them together."""
        found = iter(self.look_at([image for images in asked for image in images]))
        return [[array for _ in images for array in next(found)] for images in asked]

    def look_at(self, images: Sequence[Gray]) -> list[Logits]:
        from spikehtr.pages.segment.run_network import look_at

        return look_at(loaded(self.weights, self.device), images, _is_faster_in_bf16(self.device))

    def _find(self, grays: list[NDArray[np.uint8]]) -> list[FoundPage]:
        from spikehtr.pages.segment.find_lines import find

        return find(_asked if self.asks else self.look_at, grays, turns=self.layout.turns)


def _asked(images: Sequence[Gray]) -> list[Logits]:
    from spikehtr.pages.segment.maps import Logits

    arrays = iter(ask(images) if images else ())
    return [Logits(fine, coarse) for fine, coarse in zip(arrays, arrays, strict=True)]


_LOADING = threading.Lock()


def loaded(weights: Path, device: str) -> LineNetwork:
    """The network of a file as it reads fastest, loaded once a process."""
    with _LOADING:
        return _loaded(weights.resolve(), weights.stat().st_mtime_ns, device)


@cache
def _loaded(weights: Path, _: int, device: str) -> LineNetwork:
    import torch

    from spikehtr.pages.segment.line_network import folded
    from spikehtr.pages.segment.network_weights import load

    network = folded(load(weights)).to(device)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@cache
def _is_faster_in_bf16(device: str) -> bool:
    """On GPUs, and on CPUs with a tile unit (AMX)."""
    if not device.startswith("cpu"):
        return True
    try:
        from spikehtr.readers.cpu.library import library

        return library().tiles
    except SpikeHTRError:
        return False


def _layout(found: FoundPage, gray: NDArray[np.uint8], options: LayoutOptions) -> FoundLayout:
    """A page's regions, in pixels of the page as it lies."""
    from spikehtr.pages.segment.arrange_lines import arrange
    from spikehtr.pages.segment.find_gutter import gutter

    fold = gutter(found.lines, upright(gray, found.turns), options.spread)
    regions, off = [], Counter[str]()
    for lines, kind in arrange(found.lines, [] if fold is None else [fold]):
        kept = []
        for line in lines:
            one = _found_line(line, found.turns, gray.shape)
            if one is None:
                off["lies off the page or has no height"] += 1
            else:
                kept.append(one)
        if kept:
            regions.append(FoundRegion(kept, kind))
    remarks = []
    if found.turns and regions and options.turns is None:
        remarks.append(
            f"lies turned by {SAID[found.turns]}: its lines are read upright, and their places are those on the image "
            "as it lies (--rotate 0 if it is upright)"
        )
    if fold is not None and regions and options.spread == "auto":
        remarks.append("two pages side by side, read one after the other (--single if it is one)")
    remarks += [f"{count} found and left out: {why}" for why, count in off.items()]
    return FoundLayout(regions, remarks)


def _found_line(line: DecodedLine, turns: int, shape: tuple[int, ...]) -> FoundLine | None:
    """In whole pixels: as they are written, so that what was written reads the same again."""
    height, width = shape
    outline, baseline = simple(line.polygon, line.height), simple(line.points, line.height, closed=False)
    polygon = clip_polygon(_whole(as_it_lies(outline, turns, shape)), width, height)
    polygon = tuple((float(round(x)), float(round(y))) for x, y in polygon)
    level = clip_baseline(_whole(as_it_lies(baseline, turns, shape)), width, height)
    level = tuple((float(round(x)), float(round(y))) for x, y in level)
    xs, ys = zip(*polygon, strict=True)
    if len(set(polygon)) < 3 or max(xs) - min(xs) < 2 or max(ys) - min(ys) < 2 or len(level) < 2:
        return None
    return FoundLine(level, polygon)


def simple(points: NDArray[Any], height: float, closed: bool = True) -> NDArray[Any]:
    """Fewer points, none of those left out farther off than can be seen; first and last stay."""
    import cv2

    kept = cv2.approxPolyDP(points.astype(np.float32)[:, None], SIMPLER * height, closed=False)[:, 0]
    return np.asarray(kept if len(kept) >= 2 + closed else points, np.float64)


def _whole(points: NDArray[Any]) -> Points:
    return tuple((float(round(x)), float(round(y))) for x, y in points.tolist())
