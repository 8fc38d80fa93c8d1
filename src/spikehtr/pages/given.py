"""PAGE and ALTO files as a given segmentation: their regions, lines and ids, whether or not they hold any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from spikehtr.data.formats import xml
from spikehtr.data.formats.frames import frame_meant
from spikehtr.data.formats.outlines import Box, LineOutline, Points, band_height, bounds, parse_points, usable
from spikehtr.data.formats.xml_pages import ImageFinder, PageFile, pixel_scale
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.inputs import ROOTS
from spikehtr.pages.quarter_turns import quarter_of_given
from spikehtr.pages.word_boxes import LineInk

_BLOCKS = {"PcGts": "TextRegion", "alto": "TextBlock"}


class LinePlace(NamedTuple):
    """A line to be cut out: by its polygon, else by its box."""

    id: str
    polygon: Points | None
    box: Box | None
    baseline: Points
    ink: LineInk | None = None  # its strokes, once it is cut out
    turns: int = 0  # quarter turns clockwise that it lies

    @property
    def outline(self) -> Points:
        if self.polygon is not None:
            return self.polygon
        left, top, right, bottom = self.box or (0.0, 0.0, 0.0, 0.0)
        return (left, top), (right, top), (right, bottom), (left, bottom)


class RegionPlace(NamedTuple):
    id: str
    kind: str
    polygon: Points
    lines: list[LinePlace]
    turns: int = 0  # quarter turns clockwise that it lies, where that is said


class Given(NamedTuple):
    image: Path
    regions: list[RegionPlace]
    problems: list[str]  # lines that cannot be used, and why
    remarks: list[str]  # what is odd, and was used all the same
    frame: int | None = None  # which page of the image file, from 1; None where that has but one


def read_given(file: Path) -> Given:
    """What an XML file says of its page, in pixels of the image that is there. Lines keep their ids."""
    if not file.exists():
        raise SpikeHTRError("no such file")
    report = ImportReport()
    root = xml.load(file, report)
    if root is None:
        raise SpikeHTRError(_first(report))
    kind = xml.name_of(root)
    if kind not in ROOTS:
        raise SpikeHTRError(f"neither PAGE nor ALTO: its root element is <{kind}>")
    content = ROOTS[kind](root)
    image = ImageFinder().find(file, content.image)
    if image is None:
        raise SpikeHTRError(f"its image {content.image or file.stem!r} was not found: put it beside the XML file")
    frame = frame_meant(file, content.frame, image, report)
    scale = pixel_scale(file, content, image, frame, report)
    if scale is None:
        raise SpikeHTRError(_first(report))
    x, y, width, height = scale
    regions = _regions(file, kind, content, (x, y, height), report)
    errors = [one for one in report.problems if one.severity == "error"]
    wrong = {one.where for one in errors}
    problems = [f"{one.where}: {one.message}" for one in errors]
    remarks = [f"{one.where}: {one.message}" for one in report.problems if one.where not in wrong]
    inside = [_inside(region, width, height, file, problems) for region in regions]
    return Given(image, inside, problems, remarks, frame)


def _first(report: ImportReport) -> str:
    problem = report.problems[0]
    return f"{problem.message}; {problem.remedy}"


def _regions(
    file: Path, kind: str, content: PageFile, scale: tuple[float, float, float], report: ImportReport
) -> list[RegionPlace]:
    """The parser's lines put back into their blocks."""
    x, y, height = scale
    shapes = [line.shape.scaled(x, y) for line in content.lines]
    band = band_height(shapes, height)
    regions: dict[Any, RegionPlace] = {}  # by the element: its id() may be another's as soon as nothing holds it
    for line, shape in zip(content.lines, shapes, strict=True):
        block = next(line.element.iterancestors(f"{{*}}{_BLOCKS[kind]}"), line.element.getparent())
        if block not in regions:
            regions[block] = _region(block, len(regions), x, y)
        place = usable(shape, band, f"{file}, line {line.id}", report)
        if place is not None:
            found = LinePlace(line.id, place.polygon or None, place.box, place.baseline)
            upside_down = regions[block].turns == 2
            turns = quarter_of_given(found.baseline, found.outline, upside_down)
            regions[block].lines.append(found._replace(turns=turns))
    return list(regions.values())


def _region(block: Any, number: int, x: float, y: float) -> RegionPlace:
    name = block.get("id") or block.get("ID") or f"region_{number + 1}"
    return RegionPlace(name, block.get("type") or "paragraph", _outline(block, x, y), [], _turns(block))


def _turns(block: Any) -> int:
    """Quarter turns clockwise that a region lies, as it says: PAGE has the angle clockwise that would make it level,
    ALTO that by which it is turned counter-clockwise."""
    angle = xml.number(block.get("orientation") or block.get("ROTATION"))
    return round(-angle / 90) % 4 if angle is not None else 0


def _outline(block: Any, x: float, y: float) -> Points:
    """A region's own polygon, if it has one that can be understood."""
    coords, polygon = block.find("{*}Coords"), block.find("{*}LineOutline/{*}Polygon")
    text = coords.get("points") if coords is not None else polygon.get("POINTS") if polygon is not None else None
    try:
        shape = LineOutline(parse_points(text or "")).scaled(x, y)
    except ValueError:
        return ()
    return shape.polygon if shape.has_polygon() else ()


def _inside(region: RegionPlace, width: float, height: float, file: Path, problems: list[str]) -> RegionPlace:
    """Without lines that lie off the page: there is nothing to read."""
    lines = []
    for line in region.lines:
        left, top, right, bottom = bounds(line.outline)
        if right <= 0 or bottom <= 0 or left >= width or top >= height:
            problems.append(f"{file}, line {line.id}: lies outside its page of {width:.0f} x {height:.0f} pixels")
        else:
            lines.append(line)
    return region._replace(lines=lines)
