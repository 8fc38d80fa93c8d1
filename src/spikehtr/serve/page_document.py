"""The XML of a PAGE file, changed element by element: each at the place that the schema has for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lxml import etree

from spikehtr.data.formats import xml
from spikehtr.results.xml_text import clean, listed, number
from spikehtr.serve.line_shapes import Points
from spikehtr.serve.page_parsing import ParsedPage

# What comes before an element among its siblings, by PAGE's schema.
_BEFORE = {
    "Coords": ("AlternativeImage",),
    "Baseline": ("AlternativeImage", "Coords"),
    "Word": ("AlternativeImage", "Coords", "Baseline", "Word"),
    "TextEquiv": ("AlternativeImage", "Coords", "Baseline", "Word", "TextEquiv"),
    "TextLine": ("AlternativeImage", "Coords", "UserDefined", "Labels", "Roles", "TextRegion", "TextLine"),
}


class PageDocument:
    """What writing into a PAGE file is made of; `changed` says whether anything was."""

    def __init__(self, parsed: ParsedPage, image: Path, is_new: bool = False) -> None:
        self.parsed, self.image, self.is_new = parsed, image, is_new
        self.space = etree.QName(parsed.root).namespace or ""
        version = re.search(r"(\d{4})-\d\d-\d\d", self.space)
        self.old_points = version is not None and int(version[1]) < 2013
        self.page = parsed.root.find("{*}Page")
        self.changed = is_new

    def tag(self, name: str) -> str:
        return f"{{{self.space}}}{name}" if self.space else name

    def remove(self, element: Any) -> None:
        """Take an element out; the white space behind it goes with it, other text stays."""
        parent, before = element.getparent(), element.getprevious()
        if (element.tail or "").strip():
            if before is not None:
                before.tail = (before.tail or "") + element.tail
            else:
                parent.text = (parent.text or "") + element.tail
        elif before is not None and element.getnext() is None:
            before.tail = element.tail
        parent.remove(element)
        element.tail = None
        self.changed = True

    def add(self, parent: Any, name: str, **attributes: str) -> Any:
        """A new child at the place that the schema has for it."""
        element = etree.Element(self.tag(name), attributes)
        self.insert(parent, element, name)
        return element

    def insert(self, parent: Any, element: Any, name: str) -> None:
        before = _BEFORE.get(name)
        place = len(parent)
        if before is not None:
            kinds = [xml.name_of(child) if isinstance(child.tag, str) else "" for child in parent]
            place = max((index + 1 for index, kind in enumerate(kinds) if kind in before), default=0)
        element.tail = "\n"
        parent.insert(place, element)
        self.changed = True

    def set_points(self, element: Any, points: Points) -> None:
        x, y = self.parsed.scale
        scaled = [(round(px / x), round(py / y)) for px, py in points]
        for child in list(element.iterfind("{*}Point")):
            element.remove(child)
        if self.old_points:
            for px, py in scaled:
                etree.SubElement(element, self.tag("Point"), {"x": str(px), "y": str(py)})
        else:
            element.set("points", listed(scaled))
        self.changed = True

    def child(self, parent: Any, name: str) -> Any:
        found = parent.find(f"{{*}}{name}")
        return self.add(parent, name) if found is None else found

    def set_text(self, element: Any, text: str, confidence: float | None) -> None:
        """The transcript that counts: the first, or the one with the lowest index. Others stay."""
        versions = sorted(element.iterfind("{*}TextEquiv"), key=lambda one: xml.number(one.get("index")) or 0)
        equivalent = versions[0] if versions else self.add(element, "TextEquiv")
        unicode = equivalent.find("{*}Unicode")
        if unicode is None:
            unicode = etree.SubElement(equivalent, self.tag("Unicode"))
        said = "".join(unicode.itertext())
        if said != text:
            for child in list(unicode):
                unicode.remove(child)
            unicode.text = clean(text)
            if (plain_text := equivalent.find("{*}PlainText")) is not None:
                equivalent.remove(plain_text)
        if confidence is not None:
            equivalent.set("conf", number(confidence))
        elif "conf" in equivalent.attrib:
            del equivalent.attrib["conf"]
