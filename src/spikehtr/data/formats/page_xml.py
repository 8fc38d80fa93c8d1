"""PAGE XML, any version from 2010 to 2019: a file, or a folder of them, with page images."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from spikehtr.data.formats import xml, xml_pages
from spikehtr.data.formats.frames import frame_of
from spikehtr.data.formats.helpers import split_of, walk
from spikehtr.data.formats.machine import by_in_page, digest
from spikehtr.data.formats.outlines import Box, LineOutline, Points, bounds, parse_points
from spikehtr.data.formats.reading_order import in_reading_order
from spikehtr.data.formats.xml_pages import PageFile, PageLine
from spikehtr.data.samples import ImportReport, Sample

LOOKS_FOR = "PAGE XML files (root element PcGts) with their page images"
LOOKS_FOR_READ2016 = "folders Training, Validation or Test with PAGE XML in page/ (the ICFHR 2016 archives)"


def recognises(path: Path) -> bool:
    return xml_pages.recognises(path, "PcGts")


def recognises_read2016(path: Path) -> bool:
    """The archives of the ICFHR 2016 competition, unpacked: `PublicData/Training`, `PublicData/Validation` and
    `Test-ICFHR-2016`, each with PAGE XML in `page` (in some copies `page/page`) and images in `Images` (or doubled, or
    beside `page`). The part's name gives the split, as it does elsewhere."""
    return path.is_dir() and any(
        file.parent.name.lower() == "page" and split_of(file, path) and xml.sniff(file) == "PcGts"
        for file in islice(walk(path, xml_pages.XML), 50)
    )


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    return xml_pages.read_pages(path, report, "PcGts", parse)


def parse(root: xml.Element) -> PageFile:
    """A <PcGts> element's page. Lines come in reading order, those of nested regions too."""
    page = root.find("{*}Page")
    if page is None:
        return PageFile(None, None)
    width, height = xml.number(page.get("imageWidth")), xml.number(page.get("imageHeight"))
    in_regions = _texts_in_regions(page)
    lines = [_line(element, number, in_regions) for number, element in enumerate(page.iter("{*}TextLine"), start=1)]
    size = (width, height) if width and height else None
    return PageFile(page.get("imageFilename"), size, in_reading_order(page, lines), frame=frame_of(root))


def _line(element: xml.Element, number: int, in_regions: dict[xml.Element, str]) -> PageLine:
    faults: list[str] = []
    polygon = _points(element.find("{*}Coords"), "polygon", faults)
    baseline = _points(element.find("{*}Baseline"), "baseline", faults)
    box = None if polygon else _words_box(element)
    shape = LineOutline(polygon, box, baseline, tuple(faults))
    text = _text(element)
    by = by_in_page(element, text)
    elsewhere = _said_elsewhere(element, text, in_regions)
    return PageLine(element.get("id") or f"number {number}", text, shape, element, by, elsewhere)


def _points(element: xml.Element | None, what: str, faults: list[str]) -> Points:
    """A points attribute, or the Point children that versions before 2013 have."""
    if element is None:
        return ()
    text = element.get("points")
    if text is None:
        text = " ".join(f"{point.get('x')},{point.get('y')}" for point in element.iterfind("{*}Point"))
    try:
        return parse_points(text)
    except ValueError as error:
        faults.append(f"its {what} is {error}")
        return ()


def _words_box(line: xml.Element) -> Box | None:
    """The box around a line's words, for a line that has no polygon itself."""
    points = [point for word in line.iterfind("{*}Word") for point in _points(word.find("{*}Coords"), "", [])]
    return bounds(points) if points else None


def _text(line: xml.Element) -> str:
    """The line's own transcript, empty where someone emptied it; where it has none, its words' joined by spaces."""
    own = _unicode(line)
    return _words(line) if own is None else own


def _words(line: xml.Element) -> str:
    return " ".join(filter(None, map(_unicode, line.iterfind("{*}Word"))))


def _said_elsewhere(line: xml.Element, text: str, in_regions: dict[xml.Element, str]) -> str | None:
    """What a line's words, or its region, say, where that is not what the line says."""
    words = _words(line)
    if words and digest(words) != digest(text):
        return f"its words say {words!r}"
    return f"its region says {in_regions[line]!r}" if line in in_regions else None


def _texts_in_regions(page: xml.Element) -> dict[xml.Element, str]:
    """Of lines whose text is not in their region's own transcript, what stands there in their place. Only where that
    has as many lines as the region: it may be a text of another kind."""
    found = {}
    for region in page.iter("{*}TextRegion"):
        own = _unicode(region)
        lines = list(region.iterchildren("{*}TextLine"))
        texts = own.split("\n") if own else []
        if len(texts) != len(lines):
            continue
        there = {digest(text) for text in texts}
        for line, text in zip(lines, texts, strict=True):
            if digest(_text(line)) not in there:
                found[line] = text
    return found


def _unicode(element: xml.Element) -> str | None:
    """The first of an element's transcripts, or the one with the lowest index; None where it has none."""
    versions = sorted(element.iterfind("{*}TextEquiv"), key=lambda version: xml.number(version.get("index")) or 0)
    texts = ("".join(found.itertext()) for version in versions if (found := version.find("{*}Unicode")) is not None)
    return next(texts, None)
