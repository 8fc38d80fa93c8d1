"""PAGE XML, version 2019-07-15."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from spikehtr.data.formats.frames import note
from spikehtr.data.formats.machine import page_note
from spikehtr.results.clipping import inside
from spikehtr.results.xml_text import UniqueIds, clean, listed, now, number, serialised, whole
from spikehtr.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spikehtr.results.line import Alternative
    from spikehtr.results.page import Page, Region, TextLine, Word

SPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
_SCHEMA = f"{SPACE} {SPACE}/pagecontent.xsd"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
KINDS = frozenset(
    [
        "paragraph",
        "heading",
        "caption",
        "header",
        "footer",
        "page-number",
        "drop-capital",
        "credit",
        "floating",
        "signature-mark",
        "catch-word",
        "marginalia",
        "footnote",
        "footnote-continued",
        "endnote",
        "TOC-entry",
        "list-label",
        "other",
    ]
)


def page_xml(page: Page, min_confidence: float = 0.0, glyphs: bool = False) -> str:
    page = inside(page)
    root = etree.Element(f"{{{SPACE}}}PcGts", nsmap={None: SPACE, "xsi": _XSI})
    root.set(f"{{{_XSI}}}schemaLocation", _SCHEMA)
    metadata = _add(root, "Metadata")
    moment = now()
    creator = f"spikehtr {page.version or __version__}"
    for name, text in (("Creator", creator), ("Created", moment), ("LastChange", moment)):
        _add(metadata, name).text = text
    _recognition(metadata, page)
    sheet = _add(root, "Page", imageFilename=clean(page.image), imageWidth=page.width, imageHeight=page.height)
    if page.frame is not None:
        sheet.set("custom", note(page.frame))
    names = UniqueIds()
    ids = [names.take(region.id) for region in page.regions]
    if ids:
        group = _add(_add(sheet, "ReadingOrder"), "OrderedGroup", id=names.take("reading_order"))
        for index, name in enumerate(ids):
            _add(group, "RegionRefIndexed", index=index, regionRef=name)
    for index, (region, name) in enumerate(zip(page.regions, ids, strict=True)):
        _region(sheet, page, region, name, index, names, min_confidence, glyphs)
    return serialised(root)


def _add(parent: Any, tag: str, /, **attributes: object) -> Any:
    return etree.SubElement(parent, f"{{{SPACE}}}{tag}", {key: str(value) for key, value in attributes.items()})


def _recognition(metadata: Any, page: Page) -> None:
    """What read the page, in the way of OCR-D: a processing step with labels."""
    if not page.model:
        return
    step = _add(metadata, "MetadataItem", type="processingStep", name="recognition/text-recognition", value="spikehtr")
    labels = _add(step, "Labels")
    version = page.version or __version__
    for kind, value in (("model", page.model), ("precision", page.precision), ("version", version)):
        if value:
            _add(labels, "Label", value=clean(value), type=kind)


def _region(
    sheet: Any, page: Page, region: Region, name: str, index: int, names: UniqueIds, least: float, glyphs: bool
) -> None:
    kind = region.kind if region.kind in KINDS else "other"
    element = _add(sheet, "TextRegion", id=name, type=kind, custom=f"readingOrder {{index:{index};}}")
    if region.turns:  # the angle clockwise that would make it level
        element.set("orientation", str((0, -90, 180, 90)[region.turns]))
    _coords(element, page, region.outline)
    for place, line in enumerate(region.lines):
        _line(element, page, line, place, names, least, glyphs)
    _text(element, "\n".join(line.text for line in region.lines))


def _line(parent: Any, page: Page, line: TextLine, index: int, names: UniqueIds, least: float, glyphs: bool) -> None:
    name = names.take(line.id)
    machine = f" {page_note(clean(line.text))}" if line.is_machines else ""
    custom = f"readingOrder {{index:{index};}}{machine}{_unclear(line, least)}"
    element = _add(parent, "TextLine", id=name, custom=custom)
    _coords(element, page, line.polygon)
    if line.baseline:
        _add(element, "Baseline", points=listed(whole(page, line.baseline)))
    for number_of, word in enumerate(line.words):
        _word(element, page, word, names.take(f"{name}_w{number_of}"), names, glyphs)
    _texts(element, line.text, line.confidence if line.words else None, line.alternatives)


def _unclear(line: TextLine, least: float) -> str:
    """Doubtful words in the way that Transkribus marks what is unclear."""
    out, offset = "", 0
    for word in line.words:
        if word.is_doubtful(least):
            out += f" unclear {{offset:{offset}; length:{len(word.text)};}}"
        offset += len(word.text) + 1
    return out


def _word(parent: Any, page: Page, word: Word, name: str, names: UniqueIds, glyphs: bool) -> None:
    element = _add(parent, "Word", id=name)
    _box(element, page, word.box)
    for index, glyph in enumerate(word.characters if glyphs else ()):
        inner = _add(element, "Glyph", id=names.take(f"{name}_g{index}"))
        _box(inner, page, glyph.box)
        _texts(inner, glyph.character, glyph.confidence, glyph.alternatives)
    _texts(element, word.text, word.confidence, word.alternatives)


def _box(parent: Any, page: Page, box: tuple[float, float, float, float]) -> None:
    left, top, right, bottom = box
    _coords(parent, page, ((left, top), (right, top), (right, bottom), (left, bottom)))


def _coords(parent: Any, page: Page, points: tuple[tuple[float, float], ...]) -> None:
    _add(parent, "Coords", points=listed(whole(page, points)))


def _text(parent: Any, text: str, confidence: float | None = None) -> None:
    element = _add(parent, "TextEquiv") if confidence is None else _add(parent, "TextEquiv", conf=number(confidence))
    _add(element, "Unicode").text = clean(text)


def _texts(parent: Any, text: str, confidence: float | None, alternatives: Sequence[Alternative]) -> None:
    """The text, and after it what else it may be: of several the lowest index counts."""
    named = [other for other in alternatives if other.text]
    _text(parent, text, confidence)
    if named:
        parent[-1].set("index", "0")
    for index, other in enumerate(named, start=1):
        _text(parent, other.text, other.confidence)
        parent[-1].set("index", str(index))
