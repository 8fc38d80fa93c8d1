"""ALTO XML, version 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from spikehtr.data.formats.machine import alto_tag
from spikehtr.data.formats.outlines import bounds
from spikehtr.results.clipping import inside
from spikehtr.results.xml_text import UniqueIds, clean, listed, number, serialised, whole
from spikehtr.version import __version__

if TYPE_CHECKING:
    from spikehtr.results.page import Page, Region, TextLine, Word

SPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SCHEMA = f"{SPACE} http://www.loc.gov/standards/alto/v4/alto-4-4.xsd"
_DOUBTFUL = "doubtful"
_READ = "machine-read"  # a line; the tag's ID has a digest of the text that was read


def alto_xml(page: Page, min_confidence: float = 0.0, glyphs: bool = False) -> str:
    page = inside(page)
    root = etree.Element(f"{{{SPACE}}}alto", nsmap={None: SPACE, "xsi": _XSI})
    root.set(f"{{{_XSI}}}schemaLocation", _SCHEMA)
    names = UniqueIds()
    names.take(_DOUBTFUL)
    _description(root, page, names)
    kinds = {kind: names.take(f"kind_{kind}") for kind in dict.fromkeys(region.kind for region in page.regions)}
    tags = _add(root, "Tags")
    for kind, name in kinds.items():
        _add(tags, "OtherTag", ID=name, LABEL=clean(kind), TYPE="region")
    _add(tags, "OtherTag", ID=_DOUBTFUL, LABEL=_DOUBTFUL, TYPE="word")
    for name in dict.fromkeys(alto_tag(clean(line.text)) for line in page.lines if line.is_machines):
        _add(tags, "OtherTag", ID=names.take(name), LABEL=_READ, TYPE="line")
    frame = page.frame or 1
    sheet = _add(_add(root, "Layout"), "Page", ID=names.take("page"), PHYSICAL_IMG_NR=frame, **_size(page))
    space = _add(sheet, "PrintSpace", HPOS=0, VPOS=0, **_size(page))
    for region in page.regions:
        _region(space, page, region, kinds[region.kind], names, min_confidence, glyphs)
    return serialised(root)


def _add(parent: Any, tag: str, /, **attributes: object) -> Any:
    return etree.SubElement(parent, f"{{{SPACE}}}{tag}", {key: str(value) for key, value in attributes.items()})


def _size(page: Page) -> dict[str, int]:
    return {"WIDTH": page.width, "HEIGHT": page.height}


def _description(root: Any, page: Page, names: UniqueIds) -> None:
    description = _add(root, "Description")
    _add(description, "MeasurementUnit").text = "pixel"
    _add(_add(description, "sourceImageInformation"), "fileName").text = clean(page.image)
    processing = _add(description, "Processing", ID=names.take("reading"))
    _add(processing, "processingStepDescription").text = f"handwriting read with {clean(page.model) or 'a model'}"
    settings = [f"{key}: {value}" for key, value in (("model", page.model), ("precision", page.precision)) if value]
    if settings:
        _add(processing, "processingStepSettings").text = clean("; ".join(settings))
    software = _add(processing, "processingSoftware")
    _add(software, "softwareName").text = "spikehtr"
    _add(software, "softwareVersion").text = page.version or __version__


def _place(points: list[tuple[int, int]]) -> dict[str, int]:
    left, top, right, bottom = bounds(points)
    return {"HPOS": int(left), "VPOS": int(top), "WIDTH": int(right - left), "HEIGHT": int(bottom - top)}


def _region(space: Any, page: Page, region: Region, kind: str, names: UniqueIds, least: float, glyphs: bool) -> None:
    points = whole(page, region.outline)
    block = _add(space, "TextBlock", ID=names.take(region.id), TAGREFS=kind, **_place(points))
    if region.turns:
        block.set("ROTATION", str(360 - 90 * region.turns))  # counter-clockwise
    _add(_add(block, "Shape"), "Polygon", POINTS=listed(points))
    for line in region.lines:
        _line(block, page, line, names, least, glyphs)


def _line(block: Any, page: Page, line: TextLine, names: UniqueIds, least: float, glyphs: bool) -> None:
    points = whole(page, line.polygon)
    name = names.take(line.id)
    element = _add(block, "TextLine", ID=name, **_place(points))
    if line.is_machines:
        element.set("TAGREFS", alto_tag(clean(line.text)))
        element.set("CS", "false")  # not corrected; who confirms it sets that to true
    if line.baseline:
        element.set("BASELINE", listed(whole(page, line.baseline)))
    _add(_add(element, "Shape"), "Polygon", POINTS=listed(points))
    for index, word in enumerate(line.words):
        if index:
            _add(element, "SP")
        _word(element, page, word, names.take(f"{name}_w{index}"), names, least, glyphs)
    if not line.words:  # the schema wants a String in every line
        _add(element, "String", ID=names.take(f"{name}_w0"), CONTENT=clean(line.text), **_place(points))


def _word(parent: Any, page: Page, word: Word, name: str, names: UniqueIds, least: float, glyphs: bool) -> None:
    place, text = _place(_corners(page, word.box)), clean(word.text)
    element = _add(parent, "String", ID=name, CONTENT=text, WC=number(word.confidence), **place)
    if word.is_doubtful(least):
        element.set("TAGREFS", _DOUBTFUL)
    for other in word.alternatives:
        _add(element, "ALTERNATIVE").text = clean(other.text)
    for index, glyph in enumerate(word.characters if glyphs else ()):
        place, text = _place(_corners(page, glyph.box)), clean(glyph.character)
        sure, identifier = number(glyph.confidence), names.take(f"{name}_g{index}")
        inner = _add(element, "Glyph", ID=identifier, CONTENT=text, GC=sure, **place)
        for other in glyph.alternatives:
            if other.text:
                _add(inner, "Variant", CONTENT=clean(other.text), VC=number(other.confidence))


def _corners(page: Page, box: tuple[float, float, float, float]) -> list[tuple[int, int]]:
    return whole(page, ((box[0], box[1]), (box[2], box[3])))
