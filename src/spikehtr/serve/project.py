"""A folder of pages: images, their PAGE files, and the log of what was done to them in `.spikehtr`.

The log is the truth of what people did here; the PAGE file beside an image is its result, and the way by which other
programs take part. docs/how-to/workbench.md says which of the two wins when both changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from spikehtr.data.images import ImageError, image_size
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.origins import Origins
from spikehtr.pages.protected_results import ProtectedResults
from spikehtr.serve.broadcast import Broadcast
from spikehtr.serve.documents import PageState, Patch, difference
from spikehtr.serve.draft import Draft
from spikehtr.serve.event_log import EventLog
from spikehtr.serve.event_steps import MACHINE, Author
from spikehtr.serve.http_errors import RequestError, not_found
from spikehtr.serve.operations import label_of, perform
from spikehtr.serve.page_parsing import ParsedPage, parse_file
from spikehtr.serve.project_history import ProjectHistory, check_turn, steps_of
from spikehtr.serve.project_settings import KNOWN

STATE = ".spikehtr"  # the folder of the log, models and caches, within the project's
_ID = "project.id"  # a setting that no browser sees or changes


class Project:
    """Everything that is kept of a folder. Its methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        if not self.folder.is_dir():
            raise SpikeHTRError(f"{folder}: no such folder; make it, or name another one")
        self.private = self.folder / STATE
        try:
            self.private.mkdir(exist_ok=True)
        except OSError as error:
            raise SpikeHTRError(f"{self.private}: cannot be made ({error.strerror}); take another folder") from None
        self._lock = FileLock(self.private / "lock", timeout=0, thread_local=False)
        try:
            self._lock.acquire()
        except Timeout:
            remedy = "open it in the browser, or stop that server first"
            raise SpikeHTRError(f"{self.folder}: a server has this folder open already; {remedy}") from None
        self.log = EventLog(self.private / "workbench.sqlite")
        self.history = ProjectHistory(self.log)
        self.id = self._identity()
        self.broadcast = Broadcast()
        self.results = ProtectedResults(self.folder, Origins(self.folder), overwrite=True)

    def close(self) -> None:
        self.log.close()
        self._lock.release()

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen, else the default."""
        with self.log.lock:
            chosen = {name: setting["value"] for name, setting in self.log.project.settings.items()}
        return {name: default for name, (default, _, _) in KNOWN.items()} | chosen

    def _identity(self) -> str:
        """What tells projects apart for a browser: another one may be served at the same address later."""
        self.log.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", _ID, json.dumps(secrets.token_hex(8)))
        found = self.log.row("SELECT value FROM settings WHERE key = ?", _ID)
        assert found is not None
        return str(json.loads(found["value"]))

    def path(self, name: str) -> Path:
        """A file of the project by its name below the folder; never one outside it."""
        path = (self.folder / name).resolve()
        if not path.is_relative_to(self.folder):
            raise RequestError(403, "forbidden", f"{name} leads out of the project's folder", "take a file within it")
        return path

    def row(self, page: int) -> sqlite3.Row:
        found = self.log.row("SELECT * FROM pages WHERE id = ?", page)
        if found is None:
            raise not_found(f"page {page}")
        return found

    def image(self, row: sqlite3.Row) -> Path:
        return self.path(row["image"])

    def add_page(self, image: Path, file: Path | None) -> int | None:
        """Note a page and what its PAGE or ALTO file says; its number. None where it is known already."""
        name = image.relative_to(self.folder).as_posix()
        known = self.log.row("SELECT id FROM pages WHERE image = ?", name)
        if known is not None:
            return None
        try:
            width, height = image_size(image)
        except ImageError as error:
            raise SpikeHTRError(f"{name}: {error}") from None
        parsed = parse_file(file, image) if file is not None else None
        with self.log.transaction():
            page = self._insert_page(name, (int(width), int(height)), image, file, parsed)
            self.history.note_page(page, self.row(page)["position"])
            if parsed is not None:
                self._first_event(page, parsed)
        return page

    def _insert_page(
        self, image: str, size: tuple[int, int], path: Path, file: Path | None, parsed: ParsedPage | None
    ) -> int:
        name = unique_name(self.log, os.path.splitext(image)[0])  # noqa: PTH122 (a/b.c, not a path)
        found = self.log.row("SELECT max(position) FROM pages")
        position = (found[0] if found and found[0] is not None else 0) + 1
        problem = "; ".join(parsed.problems[:3]) if parsed and parsed.problems else None
        own = file if file is not None and parsed is not None and parsed.kind == "PcGts" else None
        return self.log.execute(
            "INSERT INTO pages (name, image, file, width, height, stamp, position, problem, file_digest, file_stamp) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            name,
            image,
            own.relative_to(self.folder).as_posix() if own else None,
            *size,
            stamp_of(path),
            position,
            problem,
            digest_of_file(own) if own else None,
            stamp_of(own) if own else None,
        )

    def _first_event(self, page: int, parsed: ParsedPage) -> None:
        patch = difference(PageState(), parsed.state)
        if not patch:
            return
        seq = self.log.append(page, "import", patch, can_undo=False)
        if parsed.kind == "PcGts":  # an ALTO file is only read: the result is a PAGE file of its own
            self.log.execute("UPDATE pages SET written = ? WHERE id = ?", seq, page)

    def edit(self, page: int, ops: object, author: Author) -> tuple[int, Patch, Draft]:
        """Do a person's operations: on the disk when this returns. `ConflictError` where something changed."""
        with self.log.transaction():
            row = self.row(page)
            before = self.log.state(page)
            draft = perform(before, ops, row["width"], row["height"])
            assert isinstance(ops, list)
            return (*self._commit(page, label_of(ops), before, draft.state, author), draft)

    def _commit(self, page: int, label: str, before: PageState, after: PageState, author: Author) -> tuple[int, Patch]:
        patch = difference(before, after)
        if not patch:  # a confirmation of what is confirmed
            return int(self.row(page)["seq"]), patch
        return self.log.append(page, label, patch, author), patch

    def change(
        self,
        page: int,
        label: str,
        after: PageState,
        by_person: bool,
        author: Author = MACHINE,
        step: int | None = None,
    ) -> tuple[int, Patch]:
        """Note another state of a page, as a machine or a program from outside made it; within a transaction."""
        patch = difference(self.log.state(page), after)
        if not patch:
            return int(self.row(page)["seq"]), patch
        return self.log.append(page, label, patch, author, by_person, step), patch

    def turn(self, page: int, kind: str, expect: object, author: Author) -> tuple[int, Patch]:
        """Undo or redo the step that the sender saw."""
        with self.log.transaction():
            self.row(page)
            check_turn(self.log, page, kind, expect)
            return self.log.undo(page, author) if kind == "undo" else self.log.redo(page, author)

    def steps(self, page: int) -> dict[str, Any]:
        return steps_of(self.log, page)

    def set_page(self, page: int, **values: object) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        self.log.execute(f"UPDATE pages SET {names} WHERE id = ?", *values.values(), page)

    def page_ids(self, which: Iterable[int] | str = "all") -> list[int]:
        """`all` pages, those without lines (`new`), with lines to read (`unread`), or given ones, in order."""
        conditions = {"all": "1", "new": "lines = 0", "unread": "lines = 0 OR read < lines"}
        if isinstance(which, str):
            sql = f"SELECT id FROM pages WHERE NOT removed AND ({conditions[which]}) ORDER BY position, id"
            return [row["id"] for row in self.log.rows(sql)]
        asked = set(which)
        rows = self.log.rows("SELECT id FROM pages ORDER BY position, id")
        return [row["id"] for row in rows if row["id"] in asked]


def unique_name(log: EventLog, name: str) -> str:
    number, unique = 1, name
    while log.row("SELECT 1 FROM pages WHERE name = ?", unique):
        number += 1
        unique = f"{name}~{number}"
    return unique


def stamp_of(path: Path) -> str:
    """What changes when a file is changed, without reading it; empty where there is none."""
    try:
        info = path.stat()
    except OSError:
        return ""
    text = f"{info.st_mtime_ns}.{info.st_size}.{info.st_ino}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def digest_of_file(path: Path) -> str | None:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return None
