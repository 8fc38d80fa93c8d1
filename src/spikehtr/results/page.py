"""What was read on a page: regions, lines, words, characters, each with confidence and place; and how to write it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from spikehtr.data.formats.machine import digest
from spikehtr.data.formats.outlines import Box, Points, bounds
from spikehtr.errors import SpikeHTRError
from spikehtr.results.clipping import inside
from spikehtr.results.line import Alternative
from spikehtr.results.write_alto import alto_xml
from spikehtr.results.write_hocr import hocr
from spikehtr.results.write_iiif import annotation_page
from spikehtr.results.write_page import page_xml

FORMAT = "spikehtr-page-1"
_WORDS, _LEAST = 3, 0.01  # alternatives of a word: how many, and how likely at the least


class Glyph(NamedTuple):
    """A character, the probability that it is right, and its box on the page: left, top, right, bottom."""

    character: str
    confidence: float
    box: Box
    alternatives: tuple[Alternative, ...] = ()  # likeliest first; an empty text: it may well not be there


@dataclass(frozen=True, slots=True)
class Word:
    """Characters between spaces. Its confidence is that all of them are right: their product."""

    characters: tuple[Glyph, ...]

    @property
    def text(self) -> str:
        return "".join(glyph.character for glyph in self.characters)

    @property
    def confidence(self) -> float:
        return math.prod(glyph.confidence for glyph in self.characters)

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """The likeliest words that differ in one character; known where a language model took part in reading."""
        found: dict[str, float] = {}
        for place, glyph in enumerate(self.characters):
            before, after = self.text[:place], self.text[place + 1 :]
            for other, confidence in glyph.alternatives:
                text = before + other + after
                if text and not other.isspace():
                    share = self.confidence / glyph.confidence * confidence if glyph.confidence else 0.0
                    found[text] = max(found.get(text, 0.0), share)
        best = sorted(found.items(), key=lambda pair: -pair[1])[:_WORDS]
        return tuple(Alternative(text, share) for text, share in best if share >= _LEAST)

    def is_doubtful(self, min_confidence: float) -> bool:
        return self.confidence < min_confidence

    @property
    def box(self) -> Box:
        lefts, tops, rights, bottoms = zip(*(glyph.box for glyph in self.characters), strict=True)
        return min(lefts), min(tops), max(rights), max(bottoms)


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line on the page. `baseline` may be empty where a file gave none; `polygon` never is."""

    id: str
    polygon: Points
    baseline: Points = ()
    words: tuple[Word, ...] = ()
    confidence: float = 0.0
    corrected: str | None = None  # a person's text; `words` are then empty, unless they say the same
    alternatives: tuple[Alternative, ...] = ()  # other texts for the line, likeliest first

    @property
    def text(self) -> str:
        return self.corrected if self.corrected is not None else " ".join(word.text for word in self.words)

    def marked_text(self, min_confidence: float) -> str:
        """With `[?]` after each doubtful word."""
        if not self.words:
            return self.text
        return " ".join(word.text + "[?]" * word.is_doubtful(min_confidence) for word in self.words)

    @property
    def is_machines(self) -> bool:
        """Whether it was read, and no person changed or confirmed it."""
        return self.corrected is None and bool(self.words)

    @property
    def box(self) -> Box:
        return bounds(self.polygon)


@dataclass(frozen=True, slots=True)
class Region:
    """Lines that belong together, in reading order. `kind` is a region type of PAGE: paragraph, marginalia, heading."""

    id: str
    lines: tuple[TextLine, ...]
    kind: str = "paragraph"
    polygon: Points = ()  # as a file had it; else the box around the lines
    turns: int = 0  # quarter turns clockwise that its lines lie

    @property
    def outline(self) -> Points:
        if self.polygon:
            return self.polygon
        points = [point for line in self.lines for point in line.polygon]
        left, top, right, bottom = bounds(points or [(0.0, 0.0), (1.0, 1.0)])
        return (left, top), (right, top), (right, bottom), (left, bottom)


@dataclass(frozen=True, slots=True)
class CanvasPlace:
    """Where a page's image lies on a canvas of a IIIF manifest."""

    id: str  # the canvas's address
    manifest: str
    box: Box  # on the canvas, in its own units


@dataclass(frozen=True)
class Page:
    """A page as it was read, in reading order; coordinates are pixels of its image."""

    image: str  # the image's file name
    width: int
    height: int
    regions: tuple[Region, ...]
    model: str = ""  # what read it
    problems: tuple[str, ...] = field(default=(), compare=False)  # what could not be used of a given segmentation
    frame: int | None = None  # which page of the image file, from 1; None where that has but one
    precision: str = ""  # that the model read in: fp32, bf16, fp64
    version: str = ""  # of this package when the page was read
    canvas: CanvasPlace | None = None  # that the image was fetched from
    expected_error: float | None = None  # likely share of wrong characters, where that can be told

    @property
    def lines(self) -> list[TextLine]:
        return [line for region in self.regions for line in region.lines]

    def to_text(self, min_confidence: float = 0.0, confidences: bool = False) -> str:
        """A line of text a line, an empty one between regions; `[?]` follows words below `min_confidence`. Lines in
        which nothing was read are left out.

        `confidences`: each line begins with its own, and a tab.
        """

        def shown(line: TextLine) -> str:
            return f"{line.confidence:.2f}\t" * confidences + line.marked_text(min_confidence)

        regions = ([shown(line) for line in region.lines if line.text] for region in self.regions)
        text = "\n\n".join("\n".join(lines) for lines in regions if lines)
        return text + "\n" if text else ""

    def to_page(self, min_confidence: float = 0.0, glyphs: bool = False) -> str:
        """PAGE XML, version 2019-07-15; with `glyphs` an element for each character, too."""
        return page_xml(self, min_confidence, glyphs)

    def to_alto(self, min_confidence: float = 0.0, glyphs: bool = False) -> str:
        """ALTO XML, version 4; with `glyphs` an element for each character, too."""
        return alto_xml(self, min_confidence, glyphs)

    def to_hocr(self, min_confidence: float = 0.0) -> str:
        """hOCR 1.2, as XHTML."""
        return hocr(self, min_confidence)

    def to_iiif(self, min_confidence: float = 0.0) -> str:
        """A IIIF annotation page (W3C web annotations), an annotation a line."""
        return annotation_page(self, min_confidence)

    def to_json(self, min_confidence: float = 0.0, indent: int | None = 1) -> str:
        """All there is, as JSON; docs/reference/page-formats.md describes it."""
        return json.dumps(_page_dict(self, min_confidence), ensure_ascii=False, indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote. A line that a person changed or confirmed since then has its text in `corrected`."""
        try:
            data = json.loads(text)
            if data.get("format") != FORMAT:
                raise SpikeHTRError(f"not a page of format {FORMAT} (found {data.get('format')!r})")
            regions = tuple(_region(entry) for entry in data["regions"])
            return cls(
                data["image"],
                data["width"],
                data["height"],
                regions,
                data["model"],
                frame=data.get("frame"),
                precision=data.get("precision", ""),
                version=data.get("version", ""),
                canvas=_canvas(data.get("canvas")),
                expected_error=data.get("expected_error"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpikeHTRError(f"not a page as JSON ({error!r})") from None


def _page_dict(page: Page, least: float) -> dict[str, Any]:
    page = inside(page)
    return {
        "format": FORMAT,
        "image": page.image,
        **({} if page.frame is None else {"frame": page.frame}),
        "width": page.width,
        "height": page.height,
        **({} if page.canvas is None else {"canvas": _canvas_dict(page.canvas)}),
        "model": page.model,
        **{key: value for key, value in (("precision", page.precision), ("version", page.version)) if value},
        **({} if page.expected_error is None else {"expected_error": round(page.expected_error, 4)}),
        "regions": [
            {
                "id": region.id,
                "kind": region.kind,
                "polygon": region.outline,
                "lines": [_line_dict(line, least) for line in region.lines],
            }
            for region in page.regions
        ],
    }


def _line_dict(line: TextLine, least: float) -> dict[str, Any]:
    return {
        "id": line.id,
        "text": line.text,
        **({"machine": digest(line.text)} if line.is_machines else {}),
        "confidence": round(line.confidence, 4),
        "baseline": line.baseline,
        "polygon": line.polygon,
        **_alternatives_dict(line.alternatives, "text"),
        "words": [
            {
                "text": word.text,
                "confidence": round(word.confidence, 4),
                "doubtful": word.is_doubtful(least),
                "box": _short(word.box),
                "characters": [
                    {
                        "character": glyph.character,
                        "confidence": round(glyph.confidence, 4),
                        "box": _short(glyph.box),
                        **_alternatives_dict(glyph.alternatives, "character"),
                    }
                    for glyph in word.characters
                ],
            }
            for word in line.words
        ],
    }


def _alternatives_dict(alternatives: Iterable[Alternative], name: str) -> dict[str, Any]:
    listed = [{name: other.text, "confidence": round(other.confidence, 4)} for other in alternatives]
    return {"alternatives": listed} if listed else {}


def _alternatives(entry: dict[str, Any], name: str) -> tuple[Alternative, ...]:
    return tuple(Alternative(str(other[name]), other["confidence"]) for other in entry.get("alternatives", ()))


def _short(box: Iterable[float]) -> list[float]:
    return [round(value, 1) for value in box]


def _canvas_dict(canvas: CanvasPlace) -> dict[str, Any]:
    return {"id": canvas.id, "manifest": canvas.manifest, "box": _short(canvas.box)}


def _canvas(entry: dict[str, Any] | None) -> CanvasPlace | None:
    return None if entry is None else CanvasPlace(str(entry["id"]), str(entry["manifest"]), _box(entry["box"]))


def _region(entry: dict[str, Any]) -> Region:
    lines = tuple(map(_line, entry["lines"]))
    return Region(entry["id"], lines, entry["kind"], tuple((x, y) for x, y in entry["polygon"]))


def _line(entry: dict[str, Any]) -> TextLine:
    words = tuple(
        Word(
            tuple(
                Glyph(c["character"], c["confidence"], _box(c["box"]), _alternatives(c, "character"))
                for c in word["characters"]
            )
        )
        for word in entry["words"]
    )
    text, corrected = str(entry["text"]), None
    if digest(text) != entry.get("machine"):
        corrected = text or None
        words = words if " ".join(word.text for word in words) == text else ()  # else they contradict it
    elif (said := " ".join(str(word["text"]) for word in entry["words"])) != text:
        raise SpikeHTRError(
            f"line {entry['id']}: its words say {said!r}, but the line itself {text!r}, as it was read: "
            "correct the text of the line too"
        )
    polygon, baseline = (tuple((x, y) for x, y in entry[name]) for name in ("polygon", "baseline"))
    alternatives = _alternatives(entry, "text") if corrected is None else ()
    return TextLine(entry["id"], polygon, baseline, words, entry["confidence"], corrected, alternatives)


def _box(values: list[float]) -> Box:
    left, top, right, bottom = values
    return left, top, right, bottom
