"""Writing a page's state into its PAGE file: only what changed is touched, all that other programs wrote stays.

What is not known here (other regions, attributes, styles, further transcripts, comments) is left as it is. Where a
line's text or outline changes, its words go: they would contradict it.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from lxml import etree

from spikehtr.data.formats import xml
from spikehtr.data.formats.machine import page_note
from spikehtr.data.samples import ImportReport
from spikehtr.results.page import Page
from spikehtr.results.write_page import page_xml
from spikehtr.results.xml_text import clean, now
from spikehtr.serve.documents import Entity, PageState
from spikehtr.serve.line_shapes import Points
from spikehtr.serve.page_document import PageDocument
from spikehtr.serve.page_parsing import parse_root

_SEAL = "spikehtr:digest="
_OURS = re.compile(r"\s*\b(?:machine|confirmed)\s*\{[^}]*\}")
_INDEX = re.compile(r"(\breadingOrder\s*\{[^}]*\bindex:\s*)\d+")


def new_document(image: str, width: int, height: int) -> bytes:
    """A PAGE file without regions."""
    return page_xml(Page(image, width, height, ())).encode()


def patched(data: bytes | None, state: PageState, file: Path, image: Path, size: tuple[int, int]) -> bytes | None:
    """The document with the state in it; None where it says the same already. The seal is not part of it.

    Without `data` a new document is begun.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    root = etree.fromstring(new_document(image.name, *size) if data is None else data, parser)
    _drop_seal(root)
    document = _Patcher(parse_root(root, file, image, ImportReport()), image, is_new=data is None)
    if not document.take_over(state):
        return None
    document.note_change()
    text = etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True)
    return bytes(text).rstrip() + b"\n"


def _drop_seal(root: xml.Element) -> None:
    """Our digest, which stands behind the root element."""
    for sibling in list(root.itersiblings()):
        if isinstance(sibling, etree._Comment) and _SEAL in (sibling.text or ""):
            root.append(sibling)  # a node behind the root can only be taken out from within it
            root.remove(sibling)


class _Patcher(PageDocument):
    def take_over(self, state: PageState) -> bool:
        here = self.parsed.state
        for name in [name for name in self.parsed.lines if name not in state.lines]:
            self.remove(self.parsed.lines.pop(name))
        for name in state.order:
            self._region(name, state.regions[name], here.regions.get(name), state)
        for name, line in state.lines.items():
            self._line(name, line, here.lines.get(name))
        for name in state.order:
            self._arrange(name, state)
        for name in [name for name in here.regions if name not in state.regions]:
            self._drop_region(name)
        self._reading_order(state)
        if self.changed:
            self._region_texts(state)
        return self.changed

    def _region(self, name: str, region: Entity, before: Entity | None, state: PageState) -> None:
        element = self.parsed.regions.get(name)
        if element is None:
            element = etree.Element(self.tag("TextRegion"), {"id": name, "type": region["kind"]})
            last = next(reversed(list(self.page.iterchildren("{*}TextRegion"))), None)
            if last is not None:
                last.addnext(element)
            else:
                self.insert(self.page, element, "TextRegion")
            element.tail = "\n"
            self.parsed.regions[name] = element
            self.set_points(self.add(element, "Coords"), region["polygon"] or _box(region, state, self.image))
        elif element.get("id") != name:
            element.set("id", name)
            self.changed = True
        if before is None:
            return
        if region["kind"] != before["kind"]:
            element.set("type", region["kind"])
            self.changed = True
        if region["polygon"] != before["polygon"] and region["polygon"]:
            self.set_points(self.child(element, "Coords"), region["polygon"])

    def _line(self, name: str, line: Entity, before: Entity | None) -> None:
        element = self.parsed.lines.get(name)
        if element is None:
            element = etree.Element(self.tag("TextLine"), {"id": name})
            self.parsed.lines[name] = element
            self.insert(self.parsed.regions[line["region"]], element, "TextLine")
        elif element.get("id") != name:
            element.set("id", name)
            self.changed = True
        moved = before is None or before["polygon"] != line["polygon"]
        if moved:
            self.set_points(self.child(element, "Coords"), line["polygon"])
        if before is None or before["baseline"] != line["baseline"]:
            self._baseline(element, line["baseline"])
        said_otherwise = before is None or before["text"] != line["text"]
        if said_otherwise or moved or (before is not None and before["by"] != line["by"]):
            self._text(element, line, said_otherwise or moved)

    def _baseline(self, element: Any, points: Points) -> None:
        if points:
            self.set_points(self.child(element, "Baseline"), points)
        elif (found := element.find("{*}Baseline")) is not None:
            self.remove(found)

    def _text(self, element: Any, line: Entity, words_differ: bool) -> None:
        reading = line["reading"]
        fits = reading is not None and reading["text"] == line["text"] and not line["stale"]
        if words_differ:
            for word in list(element.iterfind("{*}Word")):
                self.remove(word)
            if fits and reading["characters"]:
                self._words(element, reading["characters"])
        confidence = line["confidence"] if line["by"] == "machine" else None
        self.set_text(element, line["text"], confidence)
        custom = _OURS.sub("", element.get("custom") or "").strip()
        mark = {"machine": page_note(clean(line["text"])), "person": "confirmed {}"}.get(line["by"] or "", "")
        custom = f"{custom} {mark}".strip()
        if custom:
            element.set("custom", custom)
        elif "custom" in element.attrib:
            del element.attrib["custom"]
        self.changed = True

    def _words(self, element: Any, characters: list[list[Any]]) -> None:
        words = [list(group) for is_space, group in groupby(characters, lambda c: c[0].isspace()) if not is_space]
        name = element.get("id")
        for index, word in enumerate(words):
            inner = self.add(element, "Word", id=f"{name}_w{index}")
            left, top = (min(c[place] for c in word) for place in (2, 3))
            right, bottom = (max(c[place] for c in word) for place in (4, 5))
            self.set_points(self.add(inner, "Coords"), [[left, top], [right, top], [right, bottom], [left, bottom]])
            sure = 1.0
            for character in word:
                sure *= character[1]
            self.set_text(inner, "".join(character[0] for character in word), sure)

    def _arrange(self, name: str, state: PageState) -> None:
        """The lines of a region as children of its element, in order."""
        parent = self.parsed.regions[name]
        wanted = [self.parsed.lines[line] for line in state.regions[name]["lines"]]
        known = set(self.parsed.lines.values())
        if [child for child in parent.iterchildren("{*}TextLine") if child in known] != wanted:
            if wanted:
                first = next((child for child in parent.iterchildren("{*}TextLine") if child in known), None)
                place = parent.index(first) if first is not None else None
                for element in wanted:
                    if element.getparent() is not None:
                        element.getparent().remove(element)
                if place is None or place > len(parent):
                    for element in wanted:
                        self.insert(parent, element, "TextLine")
                else:
                    for offset, element in enumerate(wanted):
                        parent.insert(min(place + offset, len(parent)), element)
            self.changed = True
        for index, element in enumerate(wanted):
            custom = element.get("custom") or ""
            if _INDEX.search(custom) and (now_at := _INDEX.sub(rf"\g<1>{index}", custom, count=1)) != custom:
                element.set("custom", now_at)
                self.changed = True

    def _drop_region(self, name: str) -> None:
        """A region that is gone; its element stays where it holds what is none of our business."""
        element = self.parsed.regions.pop(name, None)
        if element is None or any(
            xml.name_of(child).endswith("Region") or child in self.parsed.left_out
            for child in element
            if isinstance(child.tag, str)
        ):
            return
        for reference in list(self.parsed.root.iter("{*}RegionRefIndexed", "{*}RegionRef")):
            if reference.get("regionRef") == element.get("id"):
                self.remove(reference)
        self.remove(element)

    def _reading_order(self, state: PageState) -> None:
        """The order of the regions, written down anew where the file would give another one."""
        found = parse_root(self.parsed.root, Path(self.image.stem), self.image, ImportReport()).state
        ours = [name for name in state.order if name in found.regions]
        is_right = [name for name in found.order if name in state.regions] == ours and _lines(found) == _lines(state)
        if is_right and not (self.is_new and state.order):
            return
        group = next(self.parsed.root.iter("{*}ReadingOrder"), None)
        named = (
            []
            if group is None
            else [part.get("regionRef") for part in group.iter("{*}RegionRefIndexed", "{*}RegionRef")]
        )
        others = [name for name in named if name and name not in state.regions and name not in self.parsed.lines]
        if group is not None:
            for child in list(group):
                group.remove(child)
        else:
            group = etree.Element(self.tag("ReadingOrder"))
            kinds = [xml.name_of(child) if isinstance(child.tag, str) else "" for child in self.page]
            first = ("AlternativeImage", "Border", "PrintSpace")
            self.page.insert(max((i + 1 for i, kind in enumerate(kinds) if kind in first), default=0), group)
            group.tail = "\n"
        inner = etree.SubElement(group, self.tag("OrderedGroup"), {"id": "reading_order"})
        for index, name in enumerate([*state.order, *others]):
            etree.SubElement(inner, self.tag("RegionRefIndexed"), {"index": str(index), "regionRef": name})
        self.changed = True

    def _region_texts(self, state: PageState) -> None:
        """A region's own transcript, where it has one, is that of its lines."""
        for name in state.order:
            element = self.parsed.regions[name]
            if element.find("{*}TextEquiv") is not None:
                text = "\n".join(state.lines[line]["text"] for line in state.regions[name]["lines"])
                self.set_text(element, text, None)

    def note_change(self) -> None:
        metadata = self.parsed.root.find("{*}Metadata")
        change = metadata.find("{*}LastChange") if metadata is not None else None
        if change is not None:
            change.text = now()


def _lines(state: PageState) -> list[str]:
    return [name for name, _ in state.ordered()]


def _box(region: Entity, state: PageState, image: Path) -> Points:
    """The box around a region's lines."""
    points = [point for line in region["lines"] for point in state.lines[line]["polygon"]] or [[0, 0], [1, 1]]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return [[min(xs), min(ys)], [max(xs), min(ys)], [max(xs), max(ys)], [min(xs), max(ys)]]
