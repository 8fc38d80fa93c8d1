"""What a segmenter finds on a page. A segmenter is a function from a grey page to its regions in reading order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from PIL import Image

from spikehtr.data.samples import Point


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line on a page, in its pixels: from left to right on the baseline, around it the outline."""

    baseline: tuple[Point, ...]
    polygon: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class FoundRegion:
    """Lines that belong together, in reading order."""

    lines: list[FoundLine] = field(default_factory=list)
    kind: str = "paragraph"  # or "marginalia"


Segmenter = Callable[[Image.Image], list[FoundRegion]]
