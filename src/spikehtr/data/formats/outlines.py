"""Where a line is on its page, made usable: polygon, else box, else a band around the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median

from spikehtr.data.samples import ImportReport, Point

Box = tuple[float, float, float, float]  # left, top, right, bottom
Points = tuple[Point, ...]

LIMIT = 1_000_000  # pixels; no page is larger, and beyond it drawing a mask is no longer exact
ABOVE, BELOW = 0.75, 0.25  # how a band's height lies about the baseline
BAND_OF_SPACING = 0.9  # a band's height where no line has an outline: so many times what baselines lie apart
BAND_OF_PAGE = 1 / 40  # and where they do not tell, either
SAME_LINE, HIGHEST = 1 / 200, 1 / 8  # of the page: baselines nearer than this are one line's; no band is higher


def parse_points(text: str) -> Points:
    """`"1,2 3,4"` or `"1 2 3 4"` -> ((1, 2), (3, 4)). A ValueError says what is wrong with it."""
    try:
        numbers = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise ValueError(f"not a list of numbers: {_short(text)}") from None
    if len(numbers) % 2:
        raise ValueError(f"an odd number of coordinates: {_short(text)}")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"a coordinate that is no finite number: {_short(text)}")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def bounds(points: Iterable[Point]) -> Box:
    """The box around points, of which there must be one at least."""
    xs, ys = zip(*points, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


@dataclass(frozen=True, slots=True)
class LineOutline:
    """Where a line is, as its file has it. Any part may be missing or useless."""

    polygon: Points = ()
    box: Box | None = None
    baseline: Points = ()
    faults: tuple[str, ...] = ()  # what could not be understood

    def scaled(self, x: float, y: float) -> LineOutline:
        """The same in an image that is `x` times as wide and `y` times as high."""
        box = self.box and (self.box[0] * x, self.box[1] * y, self.box[2] * x, self.box[3] * y)
        polygon = tuple((px * x, py * y) for px, py in self.polygon)
        return replace(self, polygon=polygon, box=box, baseline=tuple((px * x, py * y) for px, py in self.baseline))

    def has_polygon(self) -> bool:
        """Whether the polygon has three different points at least and encloses anything."""
        return len(set(self.polygon)) >= 3 and _encloses(bounds(self.polygon))

    def outline_box(self) -> Box | None:
        """The box around the polygon, or the stated box, if one of them can be used."""
        if self.has_polygon():
            return bounds(self.polygon)
        return self.box if self.box and _encloses(self.box) else None


def _encloses(box: Box) -> bool:
    left, top, right, bottom = box
    return right > left and bottom > top and max(map(abs, box)) <= LIMIT


def band_height(shapes: Iterable[LineOutline], page_height: float) -> float:
    """How high a line without an outline is: as the page's median line; where none has one, as baselines lie apart."""
    shapes = list(shapes)
    heights = [box[3] - box[1] for shape in shapes if (box := shape.outline_box())]
    if heights:
        return median(heights)
    drawn = [shape.baseline for shape in shapes if len(set(shape.baseline)) >= 2 and _in_limit(shape.baseline)]
    apart = _distances([bounds(baseline) for baseline in drawn], page_height * SAME_LINE)
    height = median(apart) * BAND_OF_SPACING if apart else page_height * BAND_OF_PAGE
    return min(height, page_height * HIGHEST)


def _distances(baselines: list[Box], least: float) -> list[float]:
    """How far below each baseline the next one is, where there is one: they share half of the shorter's width."""

    def below(one: Box, other: Box) -> float:
        shared = min(one[2], other[2]) - max(one[0], other[0])
        down = (other[1] + other[3] - one[1] - one[3]) / 2
        return down if down > least and shared * 2 >= min(one[2] - one[0], other[2] - other[0]) else math.inf

    nearest = (min(below(one, other) for other in baselines) for one in baselines)
    return [distance for distance in nearest if distance < math.inf]


def usable(shape: LineOutline, height: float, where: str, report: ImportReport) -> LineOutline | None:
    """A shape with just a polygon or a box, and a baseline of two points at least or none.

    Whatever had to be replaced is reported as a warning; None, and an error, where nothing can be used.
    """
    for fault in shape.faults:
        report.add("bad coordinates", where, fault, "write coordinates as x,y pairs of numbers", "warning")
    outline = shape.outline_box()
    baseline = shape.baseline if len(set(shape.baseline)) >= 2 and _in_limit(shape.baseline) else ()
    if not outline and not baseline:
        had = "a baseline of one point and no outline" if shape.baseline else "neither an outline nor a baseline"
        remedy = "draw the line's polygon or baseline, or take the line out"
        report.add("no outline", where, f"{had} that can be used", remedy)
        return None
    if shape.baseline and not baseline:
        message = "the baseline is a single point; it is left out, the outline is used"
        report.add("one-point baseline", where, message, "draw the baseline again", "warning")
    if not outline:
        message = f"no usable polygon or box: a band of {height:.0f} pixels about the baseline is used"
        report.add("band for outline", where, message, "draw the line's polygon for a better crop", "warning")
        return LineOutline(polygon=band(baseline, height), baseline=baseline)
    if not shape.has_polygon():
        message = "no usable polygon (three different points at least): the box is used"
        report.add("box for outline", where, message, "draw the line's polygon for a better crop", "warning")
        return LineOutline(box=outline, baseline=baseline)
    return LineOutline(polygon=shape.polygon, baseline=baseline)


def _in_limit(points: Points) -> bool:
    return all(abs(x) <= LIMIT and abs(y) <= LIMIT for x, y in points)


def band(baseline: Points, height: float) -> Points:
    """The polygon that lies `ABOVE` and `BELOW` a baseline, at right angles to its direction as a whole."""
    (x0, y0), (x1, y1) = baseline[0], baseline[-1]
    length = math.hypot(x1 - x0, y1 - y0)
    up_x, up_y = ((y1 - y0) / length, (x0 - x1) / length) if length else (0.0, -1.0)
    if up_y > 0:  # drawn from right to left
        up_x, up_y = -up_x, -up_y
    upper = [(x + up_x * ABOVE * height, y + up_y * ABOVE * height) for x, y in baseline]
    lower = [(x - up_x * BELOW * height, y - up_y * BELOW * height) for x, y in baseline]
    return (*upper, *reversed(lower))
