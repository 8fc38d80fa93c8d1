"""hOCR 1.2, as XHTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lxml import etree

from spikehtr.results.clipping import inside
from spikehtr.results.xml_text import UniqueIds, clean, serialised, whole
from spikehtr.version import __version__

if TYPE_CHECKING:
    from spikehtr.results.page import Page, TextLine, Word

SPACE = "http://www.w3.org/1999/xhtml"


def hocr(page: Page, min_confidence: float = 0.0) -> str:
    page = inside(page)
    root = etree.Element(f"{{{SPACE}}}html", nsmap={None: SPACE})
    head = _add(root, "head")
    _add(head, "title").text = clean(page.image)
    _add(head, "meta", charset="utf-8")
    _add(head, "meta", name="ocr-system", content=f"spikehtr {page.version or __version__}")
    for name, value in (("spikehtr-model", page.model), ("spikehtr-precision", page.precision)):
        if value:
            _add(head, "meta", name=name, content=clean(value))
    _add(head, "meta", name="ocr-capabilities", content="ocr_page ocr_carea ocr_line ocrx_word ocrp_poly ocrp_wconf")
    names = UniqueIds()
    image = clean(page.image).replace("\\", "\\\\").replace('"', '\\"')
    title = f'image "{image}"; bbox 0 0 {page.width} {page.height}; ppageno {(page.frame or 1) - 1}'
    sheet = _add(_add(root, "body"), "div", **{"class": "ocr_page"}, id=names.take("page"), title=title)
    for region in page.regions:
        place = _bbox(page, region.outline)
        area = _add(sheet, "div", **{"class": "ocr_carea"}, id=names.take(region.id), title=place)
        for line in region.lines:
            _line(area, page, line, names, min_confidence)
    return serialised(root)


def _add(parent: Any, tag: str, /, **attributes: str) -> Any:
    return etree.SubElement(parent, f"{{{SPACE}}}{tag}", attributes)


def _bbox(page: Page, points: tuple[tuple[float, float], ...]) -> str:
    xs, ys = zip(*whole(page, points), strict=True)
    return f"bbox {min(xs)} {min(ys)} {max(xs)} {max(ys)}"


def _line(area: Any, page: Page, line: TextLine, names: UniqueIds, least: float) -> None:
    title = _bbox(page, line.polygon) + _baseline(page, line)
    title += "; poly " + " ".join(f"{x} {y}" for x, y in whole(page, line.polygon))
    element = _add(area, "span", **{"class": "ocr_line"}, id=names.take(line.id), title=title)
    for index, word in enumerate(line.words):
        inner = _add(element, "span", **{"class": _class(word, least)}, title=_word(page, word))
        inner.set("id", names.take(f"{line.id}_w{index}"))
        inner.text = clean(word.text)
        inner.tail = " " if index + 1 < len(line.words) else None
    if not line.words:
        element.text = clean(line.text) or None
    _add(element, "br")


def _class(word: Word, least: float) -> str:
    return "ocrx_word doubtful" if word.is_doubtful(least) else "ocrx_word"


def _word(page: Page, word: Word) -> str:
    place = _bbox(page, ((word.box[0], word.box[1]), (word.box[2], word.box[3])))
    each = " ".join(f"{100 * glyph.confidence:.0f}" for glyph in word.characters)
    return f"{place}; x_wconf {100 * word.confidence:.0f}; x_confs {each}"


def _baseline(page: Page, line: TextLine) -> str:
    """Slope and offset of the baseline, from the box's lower left corner."""
    if len(line.baseline) < 2:
        return ""
    (x0, y0), (x1, y1) = line.baseline[0], line.baseline[-1]
    slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
    left, _, _, bottom = line.box
    return f"; baseline {slope:.4f} {y0 + slope * (left - x0) - bottom:.0f}"
