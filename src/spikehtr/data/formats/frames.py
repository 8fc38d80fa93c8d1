"""Which page of an image file a PAGE or ALTO file means, where there are several (TIFF)."""

from __future__ import annotations

import re
from pathlib import Path

from spikehtr.data.formats import xml
from spikehtr.data.images import ImageError, count_frames
from spikehtr.data.samples import ImportReport

_NOTE = re.compile(r"\bframe\s*\{[^}]*\bnumber:\s*(\d{1,9})\b")


def note(frame: int) -> str:
    """What PAGE has in its page's `custom` attribute."""
    return f"frame {{number:{frame};}}"


def frame_of(root: xml.Element) -> int | None:
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


def frame_meant(file: Path, frame: int | None, image: Path, report: ImportReport) -> int | None:
    """Which page of its image an XML file means that says `frame` or nothing, from 1; None where there is but one.

    Where nothing is said it is the first, and a word in the report. A page that is not there is an ImageError.
    """
    try:
        count = count_frames(image)
    except ImageError:  # its first page may be sound; if not, that is told when it is opened
        return None
    if count == 1:
        return None
    if frame is None:
        message = f"its image {image.name!r} has {count} pages, and which one is meant is not said: the first is taken"
        report.add("several pages", file, message, "make an image of the page, and name that", "warning")
        return 1
    if frame > count:
        raise ImageError(f"made for page {frame} of its image {image.name!r}, which has {count}")
    return frame
