"""In which format a page is written, with what it may be told: plain values, so that any process can do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from spikehtr.pages.origins import Format
from spikehtr.results import Page


@dataclass(frozen=True)
class PageFormat:
    form: Format
    min_confidence: float = 0.0
    confidences: bool = False  # text: each line's before it
    glyphs: bool = False  # PAGE and ALTO: an element for each character
    compact: bool = False  # JSON: a page a line, for programs that read as we go

    def shown(self, page: Page) -> str:
        if self.form == "json" and self.compact:
            return page.to_json(self.min_confidence, indent=None) + "\n"
        if self.form == "text":
            return page.to_text(self.min_confidence, self.confidences)
        write: dict[Format, Callable[[float], str]] = {
            "json": page.to_json,
            "page": partial(page.to_page, glyphs=self.glyphs),
            "alto": partial(page.to_alto, glyphs=self.glyphs),
            "hocr": page.to_hocr,
            "iiif": page.to_iiif,
        }
        return write[self.form](self.min_confidence)
