"""PAGE and ALTO files as the state of a page: what other programs, or we, wrote into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spikehtr.data.formats import alto_xml, page_xml, xml
from spikehtr.data.formats.frames import frame_meant
from spikehtr.data.formats.machine import ReadLists
from spikehtr.data.formats.outlines import Points, band_height, bounds, parse_points, usable
from spikehtr.data.formats.xml_pages import PageFile, PageLine, pixel_scale
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.results.write_page import KINDS
from spikehtr.serve import line_shapes
from spikehtr.serve.documents import NEW_LINE, NEW_REGION, Entity, PageState
from spikehtr.serve.draft import plain

PARSERS = {"PcGts": page_xml.parse, "alto": alto_xml.parse}
_BLOCKS = {"PcGts": "{*}TextRegion", "alto": "{*}TextBlock"}


@dataclass
class ParsedPage:
    """A file's page in pixels of its image, and the element of everything in it."""

    root: xml.Element
    kind: str  # PcGts or alto
    scale: tuple[float, float]  # file's coordinates times this are pixels
    state: PageState = field(default_factory=PageState)
    lines: dict[str, xml.Element] = field(default_factory=dict)
    regions: dict[str, xml.Element] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: list[xml.Element] = field(default_factory=list)  # lines that cannot be used; they stay in the file


def parse_file(file: Path, image: Path) -> ParsedPage:
    """A PAGE or ALTO file of the page in `image`. What cannot be read at all is an error."""
    report = ImportReport()
    root = xml.load(file, report)
    if root is None:
        raise SpikeHTRError(_first(file, report))
    return parse_root(root, file, image, report)


def parse_root(root: xml.Element, file: Path, image: Path, report: ImportReport | None = None) -> ParsedPage:
    report = report or ImportReport()
    kind = xml.name_of(root)
    if kind not in PARSERS:
        raise SpikeHTRError(f"{file}: neither PAGE nor ALTO: its root element is <{kind}>; take it away")
    content = PARSERS[kind](root)
    frame = frame_meant(file, content.frame, image, report)
    found = pixel_scale(file, content, image, frame, report)
    if found is None:
        raise SpikeHTRError(_first(file, report))
    x, y, width, height = found
    parsed = ParsedPage(root, kind, (x, y))
    size = int(width), int(height)
    _add_regions(parsed, size)
    _add_lines(parsed, content, file, size, report)
    parsed.problems = [f"{problem.where}: {problem.message}" for problem in report.problems]
    return parsed


def _first(file: Path, report: ImportReport) -> str:
    problem = report.problems[0]
    return f"{file}: {problem.message}; {problem.remedy}"


def _add_regions(parsed: ParsedPage, size: tuple[int, int]) -> None:
    """Every text region, with and without lines, in reading order."""
    elements = list(parsed.root.iter(_BLOCKS[parsed.kind]))
    ranks = _ranks(parsed.root)

    def rank(element: xml.Element) -> int:
        names = (_id(one) for one in (element, *element.iterancestors()))
        return next((ranks[name] for name in names if name in ranks), len(ranks))

    names = {}
    for number, element in enumerate(elements, start=1):
        names[element] = _unique(_id(element) or f"region_{number}", parsed.regions)
        parsed.regions[names[element]] = element
    for element in sorted(elements, key=rank):
        kind = element.get("type") or "paragraph"
        polygon = _outline(element, parsed.scale, size)
        region = {**NEW_REGION, "kind": kind if kind in KINDS else "other", "polygon": polygon, "lines": []}
        parsed.state.regions[names[element]] = region
        parsed.state.order.append(names[element])


def _ranks(root: xml.Element) -> dict[str, int]:
    order = next(root.iter("{*}ReadingOrder"), None)
    names = [] if order is None else [name for name in _named(order) if name]
    return {name: rank for rank, name in enumerate(dict.fromkeys(names))}


def _named(group: xml.Element) -> list[str]:
    names = []
    for part in sorted(group.iterchildren("{*}*"), key=lambda part: xml.number(part.get("index")) or 0):
        names += [part.get("regionRef") or part.get("REF") or "", *_named(part)]
    return names


def _id(element: xml.Element) -> str | None:
    name: str | None = element.get("id") or element.get("ID")
    return name


def _unique(name: str, taken: dict[str, Any]) -> str:
    number, unique = 1, name
    while unique in taken:
        number += 1
        unique = f"{name}~{number}"
    return unique


def _outline(element: xml.Element, scale: tuple[float, float], size: tuple[int, int]) -> line_shapes.Points:
    """A region's own polygon; empty where it has none that encloses anything."""
    coords, polygon = element.find("{*}Coords"), element.find("{*}Shape/{*}Polygon")
    text = ""
    if coords is not None:
        text = coords.get("points") or " ".join(f"{p.get('x')},{p.get('y')}" for p in coords.iterfind("{*}Point"))
    elif polygon is not None:
        text = polygon.get("POINTS") or ""
    try:
        points = pixels(parse_points(text), scale, size)
    except ValueError:
        return []
    return points if line_shapes.encloses(points) else []


def pixels(points: Points, scale: tuple[float, float], size: tuple[int, int]) -> line_shapes.Points:
    return line_shapes.clipped([(x * scale[0], y * scale[1]) for x, y in points], *size)


def _add_lines(parsed: ParsedPage, content: PageFile, file: Path, size: tuple[int, int], report: ImportReport) -> None:
    x, y = parsed.scale
    shapes = [line.shape.scaled(x, y) for line in content.lines]
    band = band_height(shapes, size[1])
    names = {element: name for name, element in parsed.regions.items()}
    read = ReadLists(file.parent)
    for line, raw in zip(content.lines, shapes, strict=True):
        where = f"{file}, line {line.id}"
        shape = usable(raw, band, where, report)
        polygon: line_shapes.Points = []
        if shape is not None:
            left, top, right, bottom = shape.box or bounds(shape.polygon)
            corners = shape.polygon or ((left, top), (right, top), (right, bottom), (left, bottom))
            polygon = line_shapes.clipped(corners, *size)
        if shape is None or not line_shapes.encloses(polygon):
            if shape is not None:
                report.add("outside the page", where, "lies outside its page", "draw it again")
            parsed.left_out.append(line.element)
            continue
        block = next(line.element.iterancestors(_BLOCKS[parsed.kind]), None)
        region = names[block] if block is not None else _stray_region(parsed)
        name = _unique(line.id.replace(" ", "_"), parsed.state.lines)
        baseline = line_shapes.clipped(shape.baseline, *size)
        parsed.lines[name] = line.element
        parsed.state.lines[name] = {
            **NEW_LINE,
            "region": region,
            "baseline": baseline if len(baseline) > 1 else [],
            "polygon": polygon,
            **_text(line, content.image or file.stem, file, read),
        }
        parsed.state.regions[region]["lines"].append(name)


def _stray_region(parsed: ParsedPage) -> str:
    """A region for lines that stand in none."""
    name = "region_of_stray_lines"
    if name not in parsed.state.regions:
        parsed.state.regions[name] = {**NEW_REGION, "lines": []}
        parsed.state.order.append(name)
    return name


def _text(line: PageLine, image: str, file: Path, read: ReadLists) -> Entity:
    """Whose the text is: what a file does not call a machine's is a person's, so that nothing replaces it."""
    text = plain(line.text)
    by = line.by
    if by is None and text:
        by = "machine" if read.holds(file, image, line.id, line.text) else "person"
    if not text and "confirmed" not in (line.element.get("custom") or ""):
        by = None
    return {"text": text, "by": by, "confidence": _confidence(line.element)}


def _confidence(element: xml.Element) -> float | None:
    """What a PAGE file says of the whole line; of an ALTO line the mean of its words."""
    equivalent = element.find("{*}TextEquiv")
    if equivalent is not None:
        return _in_range(xml.number(equivalent.get("conf")))
    words = [xml.number(string.get("WC")) for string in element.iterfind("{*}String")]
    known = [word for word in words if word is not None]
    return _in_range(sum(known) / len(known)) if known else None


def _in_range(value: float | None) -> float | None:
    return None if value is None else min(max(value, 0.0), 1.0)
