"""Which lines are as a model read them, and which a person changed or confirmed.

Every line that is read gets a note with a digest of its text. A line whose text still fits its note is the machine's;
one whose text was changed, whose note was taken out, or that is marked as confirmed is a person's, and so is everything
in a file that never had notes. Programs that write files anew from a database (eScriptorium) drop such notes but keep
line ids, so that the ids which we give hold the digest, too; where ids came from a file and must stay, a hidden file in
the folder of results (`READ`) lists what was read.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from spikehtr.data.formats import xml

By = Literal["machine", "person"]
READ = ".spikehtr-read"  # in a folder of results: a digest for each line whose id could not hold one

# A letter first: programs that take a value for a number would write it in another way. With 32 bits one corrected line
# in four billion is mistaken for an uncorrected one.
_DIGEST = "m[0-9a-f]{8}"
_NOTE = re.compile(rf"\bmachine\s*\{{[^}}]*\btext:\s*({_DIGEST})\b")
_CONFIRMED = re.compile(r"(?:^|[\s}])confirmed\s*(?:\{|\s|$)")
_IN_ID = re.compile(rf"_({_DIGEST})(?:_\d+)?$")  # a number follows where an id was there twice
_TAG = re.compile(rf"\bread_({_DIGEST})\b")
_DONE = {"DONE", "FINAL", "GT"}  # of Transkribus' states of a page; the others are NEW and IN_PROGRESS


def digest(text: str) -> str:
    """Of a line's text. The kind and number of spaces do not count, nor how accents are stored."""
    plain = " ".join(unicodedata.normalize("NFC", text).split())
    return "m" + hashlib.blake2b(plain.encode(errors="replace"), digest_size=4).hexdigest()


def page_note(text: str) -> str:
    """What PAGE has in a line's `custom` attribute."""
    return f"machine {{text:{digest(text)};}}"


def alto_tag(text: str) -> str:
    """The ID of the tag that ALTO has among a line's TAGREFS."""
    return f"read_{digest(text)}"


def noted_id(name: str, text: str) -> str:
    """An id of our own making for a line that was read; of one without text it is `name`."""
    return f"{name}_{digest(text)}" if text.strip() else name


def by_in_page(line: xml.Element, text: str) -> By | None:
    """Whose a line of a PAGE file is; None where nothing is said."""
    above = [line, *line.iterancestors()]
    state = above[-1].find("{*}Metadata/{*}TranskribusMetadata")
    if state is not None and (state.get("status") or "").upper() in _DONE:
        return "person"
    if any(_CONFIRMED.search(element.get("custom") or "") for element in above):
        return "person"
    written_by = above[-1].findtext("{*}Metadata/{*}Creator") or ""
    note = _NOTE.search(line.get("custom") or "")
    return _judge(note, line.get("id"), text, ours=written_by.startswith("spikehtr"))


def by_in_alto(line: xml.Element, text: str) -> By | None:
    """Whose a line of an ALTO file is; None where nothing is said."""
    strings = list(line.iterchildren("{*}String"))
    if any(_is_true(e.get("CS")) for e in (line, *line.iterancestors())) or (
        strings and all(_is_true(e.get("CS")) for e in strings)
    ):
        return "person"
    root = line.getroottree().getroot()
    ours = any(e.text == "spikehtr" for e in root.iterfind("{*}Description//{*}softwareName"))
    return _judge(_TAG.search(line.get("TAGREFS") or ""), line.get("ID"), text, ours)


def _is_true(value: str | None) -> bool:
    return value in ("true", "1")


def _judge(note: re.Match[str] | None, name: str | None, text: str, ours: bool) -> By | None:
    if note is None and ours:  # nobody wrote the file anew: who took the note out meant it
        return "person"
    note = note or _IN_ID.search(name or "")
    if note is None:
        return None
    return "machine" if note[1] == digest(text) else "person"


def list_read(folder: Path, image: str, lines: Iterable[tuple[str, str]]) -> None:
    """Note (id, text) of lines on the page of an image, where their ids do not."""
    rows = [_entry(image, name, text) for name, text in lines if text.strip() and not _IN_ID.search(name)]
    if rows:
        with (folder / READ).open("a", encoding="ascii") as file:
            file.write("\n" + "\n".join(rows))  # a half row that a kill left before it stays alone


class ReadLists:
    """What the lists in a page's folder, and in those above it up to `root`, say was read."""

    def __init__(self, root: Path) -> None:
        self._top = root if root.is_dir() else root.parent
        self._load = cache(self._loaded)

    def holds(self, file: Path, image: str, name: str, text: str) -> bool:
        entry = _entry(image, name, text)
        return any(entry in self._load(folder) for folder in self.folders(file))

    def folders(self, file: Path) -> Iterator[Path]:
        for folder in file.parents:
            yield folder
            if folder == self._top:
                return

    @staticmethod
    def _loaded(folder: Path) -> frozenset[str]:
        try:
            return frozenset((folder / READ).read_text(encoding="ascii", errors="replace").split())
        except OSError:
            return frozenset()


def _entry(image: str, name: str, text: str) -> str:
    """Of an image by its stem: programs that import images may keep them in another format."""
    page = PurePosixPath(image.replace("\\", "/")).stem
    return hashlib.blake2b(f"{page}\0{name}\0{digest(text)}".encode(errors="replace"), digest_size=8).hexdigest()
