"""What the XML writers have in common: clean text, whole numbers, names that are unique and valid."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lxml import etree

if TYPE_CHECKING:
    from spikehtr.results.page import Page


_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_NAME = re.compile(r"[^\w.-]")


def clean(text: str) -> str:
    """Text with the few characters that XML cannot hold replaced by U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


def whole(page: Page, points: Iterable[tuple[float, float]]) -> list[tuple[int, int]]:
    """Points in whole pixels of the page, none outside it."""
    right, bottom = max(page.width - 1, 1), max(page.height - 1, 1)
    return [(min(max(round(x), 0), right), min(max(round(y), 0), bottom)) for x, y in points]


def listed(points: Iterable[tuple[int, int]]) -> str:
    """`x,y x,y`; a single point twice, since schemas ask for two."""
    pairs = [f"{x},{y}" for x, y in points]
    return " ".join(pairs * 2 if len(pairs) == 1 else pairs)


def now() -> str:
    """The time in UTC; $SOURCE_DATE_EPOCH, where it is set, gives the same file each time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


def number(value: float) -> str:
    """A confidence, 0 to 1."""
    return f"{min(max(value, 0.0), 1.0):.4f}"


class UniqueIds:
    """Ids for one document: kept as they are if they can be, else made valid and unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        name = _NOT_NAME.sub("_", wanted)
        if not name or not (name[0].isalpha() or name[0] == "_"):
            name = f"_{name}"
        base, count = name, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


def serialised(root: Any) -> str:
    etree.indent(root, space="  ")
    return str(etree.tostring(root, encoding="unicode", xml_declaration=False)).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )
