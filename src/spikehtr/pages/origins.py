"""Which source each result in a folder is of, so that two scans of one name never share a result."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Literal, NamedTuple

FILE = ".spikehtr-origins.jsonl"  # in the folder of results: a row for each
Format = Literal["text", "json", "page", "alto", "hocr"]
SUFFIX: dict[Format, str] = {"text": ".txt", "json": ".json", "page": ".xml", "alto": ".xml", "hocr": ".html"}


class _Note(NamedTuple):
    path: str
    digest: str  # of the file's content; empty where it could not be read


class Origins:
    """What earlier runs noted in a folder, and this one adds. Results without a note may be anyone's.

    A source is known by its path, or by its content where it has been moved.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.trouble: str | None = None  # why notes cannot be kept, which is no reason not to read
        self._notes: dict[str, _Note] = {}
        self._digests: dict[Path, str] = {}
        file = None if folder is None else folder / FILE
        try:
            rows = file.read_text(encoding="utf-8", errors="replace").splitlines() if file and file.is_file() else []
        except OSError as error:
            rows, self.trouble = [], f"{file}: cannot be read ({error.strerror}); results may replace those of others"
        for row in rows:
            try:
                name, path, digest = json.loads(row)
            except (ValueError, TypeError):  # a kill may leave half a row
                continue
            self._notes[str(name).lower()] = _Note(str(path), str(digest))  # on some disks A and a are one file

    def another(self, name: str, source: Path) -> bool:
        """Whether there is a result of this name, and another source's."""
        noted = self._notes.get(name.lower())
        return noted is not None and not self._is(noted, source) and self._has(name)

    def noted(self, name: str) -> bool:
        return name.lower() in self._notes

    def owns(self, name: str, source: Path) -> bool:
        """Whether this name was given to the source before."""
        noted = self._notes.get(name.lower())
        return noted is not None and self._is(noted, source)

    def note(self, name: str, source: Path) -> None:
        noted = _Note(str(source.resolve()), self._digest(source))
        if self.folder is None or self._notes.get(name.lower()) == noted:
            return
        self._notes[name.lower()] = noted
        try:
            with (self.folder / FILE).open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps([name, *noted]))  # a half row before it stays alone
        except OSError as error:
            self.trouble = (
                f"{self.folder / FILE}: cannot be written ({error.strerror}); later results may replace these"
            )

    def _is(self, noted: _Note, source: Path) -> bool:
        return noted.path == str(source.resolve()) or ("" != noted.digest == self._digest(source))

    def _has(self, name: str) -> bool:
        assert self.folder is not None
        return any((self.folder / f"{name}{suffix}").is_file() for suffix in SUFFIX.values())

    def _digest(self, source: Path) -> str:
        if source not in self._digests:
            try:
                with source.open("rb") as file:
                    self._digests[source] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
            except OSError:
                self._digests[source] = ""
        return self._digests[source]
