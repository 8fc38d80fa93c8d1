"""ALTO XML, versions 2 to 4: a file, or a folder of them, with page images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spikehtr.data.formats import xml, xml_pages
from spikehtr.data.formats.frames import frame_of
from spikehtr.data.formats.machine import by_in_alto
from spikehtr.data.formats.outlines import Box, LineOutline, Points, parse_points
from spikehtr.data.formats.reading_order import in_reading_order
from spikehtr.data.formats.xml_pages import PageFile, PageLine
from spikehtr.data.samples import ImportReport, Sample

LOOKS_FOR = "ALTO XML files (root element alto) with their page images"

_SECOND_PAGE = "it is on a second page within the file, and only a file's first page is read"


def recognises(path: Path) -> bool:
    return xml_pages.recognises(path, "alto")


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    return xml_pages.read_pages(path, report, "alto", parse)


def parse(root: xml.Element) -> PageFile:
    """An <alto> element's page. Coordinates in tenths of millimetres or 1/1200 inch keep their unit."""
    name = root.findtext("{*}Description/{*}sourceImageInformation/{*}fileName")
    unit = (root.findtext("{*}Description/{*}MeasurementUnit") or "").strip() or "pixel"
    sheets = root.findall("{*}Layout/{*}Page")
    if not sheets:
        return PageFile(name, None)
    width, height = xml.number(sheets[0].get("WIDTH")), xml.number(sheets[0].get("HEIGHT"))
    lines: list[PageLine] = []
    for sheet in sheets:
        for element in sheet.iter("{*}TextLine"):
            shape = _shape(element) if sheet is sheets[0] else LineOutline(faults=(_SECOND_PAGE,))
            line_id, text = element.get("ID") or f"number {len(lines) + 1}", _text(element)
            lines.append(PageLine(line_id, text, shape, element, by_in_alto(element, text)))
    size = (width, height) if width and height else None
    return PageFile(name, size, in_reading_order(root, lines), unit, frame_of(root))


def _shape(line: xml.Element) -> LineOutline:
    faults: list[str] = []
    polygon = line.find("{*}Shape/{*}Polygon")
    points = _points(polygon.get("POINTS"), "polygon", faults) if polygon is not None else ()
    box = _box(line)
    return LineOutline(points, box, _baseline(line.get("BASELINE"), box, faults), tuple(faults))


def _points(text: str | None, what: str, faults: list[str]) -> Points:
    try:
        return parse_points(text or "")
    except ValueError as error:
        faults.append(f"its {what} is {error}")
        return ()


def _box(line: xml.Element) -> Box | None:
    left, top = xml.number(line.get("HPOS")), xml.number(line.get("VPOS"))
    width, height = xml.number(line.get("WIDTH")), xml.number(line.get("HEIGHT"))
    if left is None or top is None or width is None or height is None:
        return None
    return left, top, left + width, top + height


def _baseline(text: str | None, box: Box | None, faults: list[str]) -> Points:
    """Points, or, before version 4.1, the height on the page at which a level baseline runs through the box."""
    level = xml.number(text)
    if level is None:
        return _points(text, "baseline", faults)
    return ((box[0], level), (box[2], level)) if box else ()


def _text(line: xml.Element) -> str:
    """The line's strings. Where it marks spaces (SP), those are its spaces; else one stands between strings."""
    parts = list(line.iterchildren("{*}String", "{*}SP", "{*}HYP"))
    marked = any(xml.name_of(part) == "SP" for part in parts)
    text = ""
    for part in parts:
        kind = xml.name_of(part)
        if kind == "SP":
            text += " "
        elif kind == "HYP":
            text += part.get("CONTENT", "-")
        else:
            text += (" " if text and not marked else "") + part.get("CONTENT", "")
    return text
