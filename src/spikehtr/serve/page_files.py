"""The PAGE files beside the images: written soon after each change, and looked at for edits by other programs."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

from lxml import etree

from spikehtr.data.formats import xml
from spikehtr.data.formats.written import digest_of
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.digests import is_intact, sealed
from spikehtr.serve.documents import PageState
from spikehtr.serve.http_errors import as_request_error
from spikehtr.serve.merging import merge, say_the_same
from spikehtr.serve.page_parsing import parse_file, parse_root
from spikehtr.serve.page_patching import patched
from spikehtr.serve.project import Project, stamp_of
from spikehtr.serve.views import change_view, summary_view

UNUSABLE = "its PAGE file was changed outside and cannot be used"
_DELAY = 0.25  # seconds from a change to its file: several edits in a row are written at once
_RETRY = 5.0  # after a failure
_TRIES = 3  # of a file that is changed while it is written


class PageFiles:
    """Writes in a thread of its own. `flush` at the end waits for all of it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._lock = threading.RLock()  # of files: one is read, merged and written at a time
        self._flushing = threading.Lock()
        self._dirty: set[int] = set()
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="page files", daemon=True)

    def start(self) -> None:
        """Begin, with what a kill left unwritten."""
        for row in self.project.log.rows("SELECT id FROM pages WHERE written < seq"):
            self._dirty.add(row["id"])
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        self.flush()

    def note(self, page: int) -> None:
        """A page has changed."""
        with self._wake:
            self._dirty.add(page)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._dirty and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    return
            time.sleep(_DELAY)
            if not self.flush():
                with self._wake:
                    self._wake.wait_for(lambda: self._stopping, _RETRY)

    def flush(self) -> bool:
        """Write every page that has changed; False where one could not be written, which is then tried again."""
        with self._flushing:  # what another thread is writing is waited for, too
            with self._wake:
                pages, self._dirty = self._dirty, set()
            failed = [page for page in pages if not self._try_to_write(page)]
            with self._wake:
                self._dirty |= set(failed)
        return not failed

    def _try_to_write(self, page: int) -> bool:
        try:
            self.write(page)
        except Exception as error:  # one page must not stop the others; it is told, and tried again
            known = as_request_error(error)
            reason = str(known or getattr(error, "strerror", None) or error) or repr(error)
            self._note_problem(page, f"its PAGE file cannot be written: {reason}")
            return False
        return True

    def _note_problem(self, page: int, problem: str | None) -> None:
        try:
            if self.project.row(page)["problem"] != problem:
                self.project.set_page(page, problem=problem)
                self.project.broadcast.tell("page", summary_view(self.project.row(page)))
        except sqlite3.Error:
            return  # the database has the same trouble

    def write(self, page: int) -> None:
        """Put the page's state into its PAGE file, after taking in what another program wrote there."""
        with self._lock:
            for _ in range(_TRIES):
                self.look(page)
                if self._write_once(page):
                    return
        raise SpikeHTRError("another program keeps writing it; close the page there")

    def content(self, page: int) -> bytes:
        """What the page's file would say, where it cannot be written; begun anew where what is there is broken."""
        with self._lock:
            with self.project.log.lock:
                row, state = self.project.row(page), self.project.log.state(page).copy()
            image, size = self.project.image(row), (row["width"], row["height"])
            file = self.project.path(row["file"]) if row["file"] else image.with_suffix(".xml")
            try:
                data = file.read_bytes() if row["file"] and file.is_file() else None
                content = patched(data, state, file, image, size)
            except (SpikeHTRError, etree.LxmlError, OSError):
                data, content = None, patched(None, state, file, image, size)
        return sealed(content.decode(), "page") if content is not None else data or b""

    def _write_once(self, page: int) -> bool:
        project = self.project
        with project.log.lock:
            row, state = project.row(page), project.log.state(page).copy()
        if row["written"] == row["seq"] and (row["file"] is None or project.path(row["file"]).is_file()):
            return True
        file = project.path(row["file"]) if row["file"] else self._free_name(row)
        data = file.read_bytes() if file.is_file() else None
        content = patched(data, state, file, project.image(row), (row["width"], row["height"]))
        whole = data
        if content is not None:
            whole = sealed(content.decode(), "page")
            backups = len(project.results.backups)
            is_known = bool(project.results.origins.written(file.relative_to(project.folder).as_posix()))
            with project.results.writing(file) as temporary:
                temporary.write_bytes(whole)
            for _, backup in project.results.backups[backups:]:
                if not self._settle_backup(page, backup, data, is_known):
                    return False
        name = file.relative_to(project.folder).as_posix()
        digest = digest_of(whole) if whole is not None else None
        problem = None if (row["problem"] or "").startswith("its PAGE file cannot") else row["problem"]
        project.set_page(
            page, written=row["seq"], file=name, file_digest=digest, file_stamp=stamp_of(file), problem=problem
        )
        if row["problem"] != problem:
            project.broadcast.tell("page", summary_view(project.row(page)))
        return True

    def _settle_backup(self, page: int, backup: Path, data: bytes | None, is_known: bool) -> bool:
        """What stood in the file's place. A file from elsewhere is kept as it was; what has been taken into the log is
        not needed twice; an edit that came while we wrote is taken in from where it is now."""
        there = backup.read_bytes()
        if data is not None and there == data:
            if is_known:
                backup.unlink()
            return True
        self._take_in(page, backup)
        return False

    def _free_name(self, row: sqlite3.Row) -> Path:
        """Where the PAGE file of an image goes that has none."""
        image = self.project.image(row)
        for suffix in (".xml", ".page.xml"):
            file = image.with_suffix(suffix)
            taken = self.project.log.row(
                "SELECT 1 FROM pages WHERE file = ? AND id != ?",
                file.relative_to(self.project.folder).as_posix(),
                row["id"],
            )
            if not taken and (not file.exists() or self._is_result(row, file)):
                return file
        return image.with_name(f"{image.name}.page.xml")

    def _is_result(self, row: sqlite3.Row, file: Path) -> bool:
        """Whether a PAGE file without a page is of this one: a kill came between writing and noting it."""
        if xml.sniff(file) != "PcGts":
            return False
        try:
            theirs = parse_file(file, self.project.image(row))
        except SpikeHTRError:
            return False
        named = theirs.root.find("{*}Page")
        return named is not None and (named.get("imageFilename") or "").endswith(Path(row["image"]).name)

    def look(self, page: int) -> bool:
        """Take in what another program wrote into the page's file; whether there was anything."""
        with self._lock:
            row = self.project.row(page)
            if row["file"] is None:
                return False
            file = self.project.path(row["file"])
            stamp = stamp_of(file)
            if stamp in ("", row["file_stamp"]):
                self._note_usable(row)
                return False
            if (digest := digest_of(file.read_bytes())) == row["file_digest"]:
                self.project.set_page(page, file_stamp=stamp)
                self._note_usable(row)
                return False
            if not self._take_in(page, file):
                return False
            self.project.set_page(page, file_stamp=stamp, file_digest=digest)
            return True

    def _note_usable(self, row: sqlite3.Row) -> None:
        """A file that was broken is as it was before, or gone."""
        if (row["problem"] or "").startswith(UNUSABLE):
            self._note_problem(row["id"], None)

    def _take_in(self, page: int, file: Path) -> bool:
        """Merge a file's content into the log as one event."""
        project = self.project
        row = project.row(page)
        try:
            report = ImportReport()
            root = xml.load(file, report)
            if root is None:
                raise SpikeHTRError(report.problems[0].message)
            if (kind := xml.name_of(root)) != "PcGts":
                raise SpikeHTRError(f"{file.name} is no PAGE file: its root element is <{kind}>")
            theirs = parse_root(root, file, project.image(row), report).state
        except (SpikeHTRError, etree.LxmlError) as error:
            raise SpikeHTRError(f"{error}; mend it, or move it away: what was done here is kept") from None
        with project.log.transaction():
            row = project.row(page)
            if is_intact(file.read_bytes()) and (said := self._said_at(page, row["written"], theirs)) is not None:
                project.set_page(page, written=said, problem=None)
                return True
            base = project.log.state_at(page, row["written"])
            ours = project.log.state(page)
            merged = merge(base, ours, theirs)
            merged.state.check()
            seq, patch = project.change(page, "outside", merged.state, by_person=True)
            if row["written"] == row["seq"] and not merged.conflicts:
                project.set_page(page, written=seq)
            problem = None
            if merged.conflicts:
                names = ", ".join(merged.conflicts[:5])
                problem = (
                    f"{Path(row['file'] or file.name).name} was changed outside in lines that were changed here, "
                    f"too ({names}): what was written here stands, the other is kept in a .bak file"
                )
                self._keep_copy(file)
            project.set_page(page, problem=problem)
        if patch:
            project.broadcast.tell("change", change_view(project, page, seq, patch, "outside"))
        return True

    def _said_at(self, page: int, written: int, theirs: PageState) -> int | None:
        """After which event the log said what this file says: then it is ours, and a kill came between writing and
        noting it. Taken for an edit from outside, it would undo what was done since, such as a deleted line.
        """
        history = self.project.log.back_to(page, written)
        return next((seq for seq, state in history if say_the_same(state, theirs)), None)

    def _keep_copy(self, file: Path) -> None:
        if ".bak" in file.suffix:
            return
        number = 1
        while (copy := file.with_name(f"{file.name}.bak{number if number > 1 else ''}")).exists():
            number += 1
        copy.write_bytes(file.read_bytes())
