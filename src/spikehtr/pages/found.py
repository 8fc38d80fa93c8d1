"""What a segmenter finds on a page. A segmenter is a function from a grey page to its regions in reading order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from PIL import Image

from spikehtr.data.samples import Point


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line on a page, in its pixels: the baseline in reading direction, around it the outline.

    The direction says how the line is read: one whose baseline runs down the page lies a quarter turn clockwise.
    """

    baseline: tuple[Point, ...]
    polygon: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class FoundRegion:
    """Lines that belong together, in reading order."""

    lines: list[FoundLine] = field(default_factory=list)
    kind: str = "paragraph"  # or "marginalia"


@dataclass(frozen=True, slots=True)
class FoundLayout:
    """Regions, and what is worth knowing of the page: how it lies, what was not taken for a line and why."""

    regions: list[FoundRegion]
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """What is known of a page before its lines are looked for."""

    turns: int | None = None  # quarter turns clockwise that it lies; None: to be found out
    spread: Literal["auto", "yes", "no"] = "auto"  # whether it is two pages side by side; auto: on evidence only


Segmenter = Callable[[Image.Image], list[FoundRegion] | FoundLayout]
