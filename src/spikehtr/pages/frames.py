"""Which page of an image file a PAGE or ALTO file means, where there are several (TIFF)."""

from __future__ import annotations

import re
from typing import Any

from spikehtr.data.formats import alto, page, xml

ROOTS = {"PcGts": page.parse, "alto": alto.parse}
_NOTE = re.compile(r"\bframe\s*\{[^}]*\bnumber:\s*(\d{1,9})\b")


def note(frame: int) -> str:
    """What PAGE has in its page's `custom` attribute."""
    return f"frame {{number:{frame};}}"


def frame_of(root: Any) -> int | None:
    """The page's number within its image file, from 1, as our writers note it; None where nothing is said.

    Every ALTO file numbers its page, most of them within a book of one image a page: that says nothing of a file's
    pages, so the number counts only in what we wrote.
    """
    if xml.name_of(root) == "alto":
        if not any(element.text == "spikehtr" for element in root.iter("{*}softwareName")):
            return None
        sheet = root.find("{*}Layout/{*}Page")
        number = xml.number(sheet.get("PHYSICAL_IMG_NR")) if sheet is not None else None
        return int(number) if number and number >= 1 else None
    sheet = root.find("{*}Page")
    match = _NOTE.search(sheet.get("custom") or "") if sheet is not None else None
    return int(match[1]) or None if match else None
