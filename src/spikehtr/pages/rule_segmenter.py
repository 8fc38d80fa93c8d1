"""Finding the lines of a page by rules: ridges of ink, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from spikehtr.data.samples import Point
from spikehtr.pages.assign_ink import baseline_of
from spikehtr.pages.filter_lines import keep_writing, without_pale
from spikehtr.pages.find_ink import Gray, find_ink
from spikehtr.pages.found import FoundLine, FoundRegion, LayoutOptions
from spikehtr.pages.join_lines import drop_doubles, join
from spikehtr.pages.order_lines import Placed, in_order
from spikehtr.pages.outline_lines import outline, simple_baseline
from spikehtr.pages.ridges import Floats, Ridge, inked, response, trace

WORK = 2000  # pixels of the longer side: larger pages are looked at in a copy of this size
WEAK = 0.035  # answer of a line in the mean; what is weaker was joined to nothing that is stronger


@dataclass(frozen=True)
class RuleSegmenter:
    """The rules with something known of the page; they cannot tell themselves how it lies."""

    layout: LayoutOptions

    def __call__(self, page: Image.Image) -> list[FoundRegion]:
        return find_lines(page, self.layout.spread)


def find_lines(page: Image.Image, spread: Literal["auto", "yes", "no"] = "auto") -> list[FoundRegion]:
    """Well under a second for most pages. `spread`: whether it is an open book, to be cut at its fold."""
    scale = min(1.0, WORK / max(page.size))
    small = page.convert("L")
    if scale < 1:
        width, height = (max(1, round(side * scale)) for side in page.size)
        small = small.resize((width, height), Image.Resampling.BOX)
    regions = segment(np.asarray(small), spread)
    return [
        FoundRegion([FoundLine(_points(line.baseline, scale), _points(line.polygon, scale)) for line in lines], kind)
        for lines, kind in regions
    ]


def _points(points: Floats, scale: float) -> tuple[Point, ...]:
    """In the page's own pixels, whole ones: as they are written, so that what was written reads the same again."""
    return tuple((float(round(float(x) / scale)), float(round(float(y) / scale))) for x, y in points)


def segment(gray: Gray, spread: Literal["auto", "yes", "no"] = "auto") -> list[tuple[list[Placed], str]]:
    """Regions of a page that is at most WORK pixels long, in reading order."""
    if min(gray.shape) < 32:
        return []
    ink, dark, fold = find_ink(gray)
    if fold is None and spread == "yes":
        fold = gray.shape[1] / 2
    folds = [] if fold is None or spread == "no" else [fold]
    followed = [part for ridge in trace(*response(ink)) for part in _cut(ridge, folds)]
    parts = [part for ridge in followed for part in inked(ridge, ink) if part.length >= 3 * part.size]
    lines = drop_doubles(join(drop_doubles(without_pale(ink, dark, parts)), folds))
    lines = [line for line in lines if line.mean_strength > WEAK]
    height, width = gray.shape
    placed = []
    for line, owned, ys, xs in keep_writing(ink, dark, lines):
        baseline = baseline_of(line, owned, ys, xs)
        polygon = outline(line, owned, baseline, width, height)
        placed.append(Placed(simple_baseline(baseline, line.size), polygon, line.size))
    return in_order(placed, folds)


def _cut(ridge: Ridge, folds: Sequence[float]) -> list[Ridge]:
    """A crest that runs over the fold of a book, cut there."""
    for fold in folds:
        if ridge.left < fold < ridge.right:
            sides = (ridge.x < fold, ridge.x >= fold)
            return [ridge.part(side) for side in sides if np.count_nonzero(side) >= 3]
    return [ridge]
