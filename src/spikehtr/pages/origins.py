"""What earlier runs wrote into a folder and of which sources: two scans of one name never share a result, and a result
that somebody changed is known to be changed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from filelock import FileLock, Timeout

from spikehtr.data.formats.written import NOTES
from spikehtr.errors import SpikeHTRError

FILE = NOTES
LOCK = ".spikehtr-origins.lock"
_PATIENCE = 120  # seconds; a run holds the lock for as long as it takes to write one page
Format = Literal["text", "json", "page", "alto", "hocr", "iiif"]
# PAGE and ALTO are both XML. PAGE keeps the bare name, under which Transkribus and eScriptorium look for it.
SUFFIX: dict[Format, str] = {
    "text": ".txt",
    "json": ".json",
    "page": ".xml",
    "alto": ".alto.xml",
    "hocr": ".html",
    "iiif": ".iiif.json",
}
Origin = Path | str  # of a result: a file, or an address


class _Note(NamedTuple):
    path: str
    digest: str  # of the file's content; empty where it could not be read


class Origins:
    """What earlier runs noted in a folder, and this one adds. Results without a note may be anyone's.

    A source is known by its path, or by its content where it has been moved. A row is `[name, path, digest]` for the
    source of a result, or `{"file": ..., "digest": ...}` for a file as it was written.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.trouble: str | None = None  # why notes cannot be kept, which is no reason not to read
        self._notes: dict[str, _Note] = {}
        self._written: dict[str, list[str]] = {}  # digests of each file, the last one last
        self._digests: dict[Path, str] = {}
        self._seen = 0  # bytes of the file that have been read
        self._lock = None if folder is None else FileLock(folder / LOCK, timeout=_PATIENCE)
        self.refresh()

    def refresh(self) -> None:
        """Take in what other runs have noted meanwhile."""
        if self.folder is None:
            return
        file = self.folder / FILE
        try:
            with file.open("rb") as rows:
                if os.fstat(rows.fileno()).st_size < self._seen:  # another file than before
                    self._seen = 0
                rows.seek(self._seen)
                data = rows.read()
        except FileNotFoundError:
            self._seen = 0
            return
        except OSError as error:
            self.trouble = f"{file}: cannot be read ({error.strerror}); results of plain text count as not ours"
            return
        self._seen += len(data)
        for row in data.decode("utf-8", errors="replace").splitlines():
            try:
                self._take_in(json.loads(row))
            except (ValueError, TypeError, KeyError):  # a kill may leave half a row
                continue

    def _take_in(self, row: Any) -> None:
        if isinstance(row, dict):
            self._remember(str(row["file"]), str(row["digest"]))
        else:
            name, path, digest = row
            self._notes[str(name).lower()] = _Note(str(path), str(digest))  # on some disks A and a are one file

    @contextmanager
    def lock(self) -> Iterator[None]:
        """No other run writes into the folder within the block. May be nested."""
        if self.folder is None or self._lock is None:
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            reason = f"another run has kept {LOCK} for {_PATIENCE} s"
            raise SpikeHTRError(f"{self.folder}: {reason}; wait for its end, then go on with --resume") from None
        except (OSError, NotImplementedError) as error:
            self.trouble = f"{self.folder / LOCK}: cannot be locked ({error}); run only one command at a time here"
            self._lock = None
        try:  # not within the handler: what fails in the block has nothing to do with the lock
            yield
        finally:
            if self._lock is not None:
                self._lock.release()

    def another(self, name: str, source: Origin) -> bool:
        """Whether there is a result of this name, and another source's."""
        noted = self._notes.get(name.lower())
        return noted is not None and not self._is(noted, source) and self._has(name)

    def noted(self, name: str) -> bool:
        return name.lower() in self._notes

    def owns(self, name: str, source: Origin) -> bool:
        """Whether this name was given to the source before."""
        noted = self._notes.get(name.lower())
        return noted is not None and self._is(noted, source)

    def note(self, name: str, source: Origin) -> None:
        noted = _Note(_place_of(source), self._digest(source))
        if self.folder is None or self._notes.get(name.lower()) == noted:
            return
        self._notes[name.lower()] = noted
        self._append([name, *noted])

    def written(self, file: str) -> list[str]:
        """The digests of a file, by its path below the folder, as we wrote it: the last one last."""
        return self._written.get(file.lower(), [])

    def note_written(self, file: str, digest: str) -> None:
        if self._remember(file, digest):
            self._append({"file": file, "digest": digest})

    def _remember(self, file: str, digest: str) -> bool:
        digests = self._written.setdefault(file.lower(), [])
        if digests[-1:] == [digest]:
            return False
        digests.append(digest)
        return True

    def _append(self, row: object) -> None:
        assert self.folder is not None
        try:
            with (self.folder / FILE).open("a", encoding="utf-8") as file:
                file.write("\n" + json.dumps(row))  # a half row before it stays alone
        except OSError as error:
            self.trouble = (
                f"{self.folder / FILE}: cannot be written ({error.strerror}); later runs may not know these results"
            )

    def _is(self, noted: _Note, source: Origin) -> bool:
        return noted.path == _place_of(source) or ("" != noted.digest == self._digest(source))

    def _has(self, name: str) -> bool:
        assert self.folder is not None
        return any((self.folder / f"{name}{suffix}").is_file() for suffix in SUFFIX.values())

    def _digest(self, source: Origin) -> str:
        if isinstance(source, str):
            return ""
        if source not in self._digests:
            try:
                with source.open("rb") as file:
                    self._digests[source] = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
            except OSError:
                self._digests[source] = ""
        return self._digests[source]


def _place_of(source: Origin) -> str:
    return source if isinstance(source, str) else str(source.resolve())
