"""XML from strangers: entities are never resolved, nothing is fetched, and what is broken is reported, not raised."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from lxml import etree

from spikehtr.data.samples import ImportReport

Element = Any  # an lxml element; lxml has no types of its own

MAX_BYTES = 256 << 20  # a page of a thousand lines with a polygon each is about 2 MB

_PROLOGUE = re.compile(rb"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_CAREFUL = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "dtd_validation": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
_FIRST_TAG = re.compile(rb"<(?:[\w.-]+:)?([\w.-]+)")


def load(path: Path, report: ImportReport, dtd_may_be_named: bool = False) -> Element | None:
    """The root element of an XML file; None, and a word in the report, where there is none to be had.

    A file that declares entities is refused, and so is one that names an outside DTD (unless `dtd_may_be_named`, for a
    collection that is known to; the DTD is not loaded even then).
    """
    mend = "mend the file, or export it again from the program that wrote it"
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            report.add("broken XML", path, f"{size:,} bytes is over the limit of {MAX_BYTES:,}", "one file a page")
            return None
        data = path.read_bytes()
        tree = etree.fromstring(data, _parser()).getroottree()
    except OSError as error:
        report.add("broken XML", path, f"cannot be read ({error.strerror})", "make the file readable")
        return None
    except etree.XMLSyntaxError as error:
        if b"<!ENTITY" in data.replace(b"\0", b""):  # without NULs UTF-16 reads as ASCII
            _refuse(path, f"its entities cannot be used ({error.msg})", report)
        elif not size:
            report.add("broken XML", path, "the file is empty (0 bytes)", mend)
        else:
            report.add("broken XML", path, f"not well-formed XML, or not in its stated encoding: {error.msg}", mend)
        return None
    info = tree.docinfo
    if info.internalDTD is not None and any(True for _ in info.internalDTD.iterentities()):
        _refuse(path, "declares entities of its own", report)
        return None
    if (info.system_url or info.public_id) and not dtd_may_be_named:
        _refuse(path, f"names an outside DTD ({info.system_url or info.public_id})", report)
        return None
    return tree.getroot()


def first(path: Path, whole: str, begun: str) -> Element | None:
    """The first element called `whole`, or `begun` with only its attributes; the file is read no further than that."""
    tags = (f"{{*}}{whole}", f"{{*}}{begun}")
    try:
        with path.open("rb") as file:
            for event, element in etree.iterparse(file, ("start", "end"), tag=tags, **_CAREFUL):
                if event == "end" or name_of(element) == begun:
                    return element
    except (OSError, etree.XMLSyntaxError):
        pass
    return None


def _parser() -> Any:
    """A new one each time: a parser keeps what it read."""
    return etree.XMLParser(**_CAREFUL)


def _refuse(path: Path, message: str, report: ImportReport) -> None:
    report.add("unsafe XML", path, message, "take the <!DOCTYPE ...> out, and write entities as plain characters")


def name_of(element: Element) -> str:
    """An element's name without its namespace."""
    return str(etree.QName(element).localname)


def sniff(path: Path) -> str | None:
    """The root element's name from a look at the file's beginning, for telling formats apart; nothing is parsed."""
    try:
        with path.open("rb") as file:
            start = file.read(8192)
    except OSError:
        return None
    match = _FIRST_TAG.search(_PROLOGUE.sub(b"", start.replace(b"\0", b"")))
    return match[1].decode(errors="replace") if match else None


def number(text: str | None) -> float | None:
    """An attribute's number; None where there is none, or none that is finite."""
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
