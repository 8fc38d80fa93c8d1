"""What the endpoints work with: the project, its files and models, the jobs, and what follows from edits."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spikehtr.errors import SpikeHTRError
from spikehtr.serve import page_reading, scanning
from spikehtr.serve.documents import Patch, is_corrected
from spikehtr.serve.event_steps import Author
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.jobs import Jobs
from spikehtr.serve.line_pool import LinePool
from spikehtr.serve.models import Models
from spikehtr.serve.page_files import UNUSABLE, PageFiles
from spikehtr.serve.pictures import Pictures
from spikehtr.serve.project import Project
from spikehtr.serve.views import change_view, project_change_view, sent_to_all, summary_view

if TYPE_CHECKING:
    from spikehtr.recognizer import Recognizer

_log = logging.getLogger("spikehtr.serve")
_MOST_TOLD = 200  # pages of a change that browsers hear of one by one
_SHOWING = 5.0  # seconds in which a browser that is on its way may show the first page before the reader is loaded


class Workbench:
    def __init__(self, folder: Path, model: Path | None = None, device: str = "auto") -> None:
        self.project = Project(folder)
        self.files = PageFiles(self.project)
        self.pictures = Pictures(self.project)
        self.models = Models(self.project.private / "models", model, device)
        self.pool = LinePool()
        self.jobs = Jobs(self.project.log, self.project.broadcast)
        self._stale: queue.Queue[tuple[int, list[str], int] | None] = queue.Queue()
        self._rereading = threading.Thread(target=self._reread, name="reading again", daemon=True)
        self._loading = threading.Thread(target=self._load_reader, name="loading the reader", daemon=True)
        self.shown = threading.Event()  # whether a first picture was sent, or no browser is on its way
        self.shown.set()
        self.stopping = False

    def load_reader_soon(self, browser_comes: bool) -> None:
        """Call before `start`: the reader is loaded before anybody needs it. That takes the processor for seconds, so
        a browser that comes is shown the first page before."""
        if browser_comes:
            self.shown.clear()
        self._loading.start()

    def _load_reader(self) -> None:
        self.wait_until_shown()
        try:
            if not self.stopping:
                self.model()
        except Exception as error:  # whoever needs it is told again
            _log.error("the reader cannot be loaded: %s", error)

    def start(self, scan: bool = True) -> None:
        """`scan`: look through the folder for what is new."""
        self.files.start()
        self._rereading.start()
        if scan:
            self.jobs.add("scan", {}, lambda job: scanning.scan_job(self, job))

    def wait_until_shown(self) -> None:
        if not self.shown.wait(_SHOWING):
            self.shown.set()

    def read_new(self, pages: list[int]) -> None:
        """Read pages that were taken in, where the settings say so."""
        if pages and self.project.settings["read_on_import"]:
            options = {"pages": pages, "lines": None, "find": True, "again": False}
            self.jobs.add("read", options, lambda job: page_reading.read_job(self, job))

    def stop(self) -> None:
        """End in order: nothing acknowledged is lost, every PAGE file is written."""
        self.stopping = True
        self.shown.set()
        self.project.broadcast.close()
        self.jobs.stop()
        self._stale.put(None)
        if self._rereading.is_alive():
            self._rereading.join(timeout=20)
        self.pool.stop()
        if self._loading.is_alive():  # an import that the end of the process cuts off may crash it
            self._loading.join(timeout=20)
        self.files.stop()
        self.project.close()

    def model_named(self, name: str | None = None) -> Recognizer:
        return self.models.get(name or self.current_model)

    def model(self) -> Recognizer:
        return self.model_named()

    @property
    def current_model(self) -> str:
        """The model of the settings; where none was chosen, or it is not there any more, the default one."""
        name = self.project.settings["model"]
        return name if name in self.models.names() else self.models.default

    @property
    def settings(self) -> dict[str, Any]:
        """The project's settings, with the model that is in use."""
        return self.project.settings | {"model": self.current_model}

    def model_name(self, model: Recognizer) -> str:
        return model.name

    def look(self, page: int) -> None:
        """Take in what another program wrote; a broken file is a problem of the page, and no reason not to show it."""
        self.project.row(page)
        try:
            self.files.look(page)
        except (SpikeHTRError, OSError) as error:
            self.project.set_page(page, problem=f"{UNUSABLE}: {error}")

    def edit(self, page: int, ops: object, author: Author) -> dict[str, Any]:
        seq, patch, draft = self.project.edit(page, ops, author)
        label = patch_label(ops)
        change = change_view(self.project, page, seq, patch, label, author, draft.created)
        self.changed(page, change)
        if self.project.settings["reread"]:
            lines = self._to_reread(page, patch)
            if lines:
                self._stale.put((page, lines, seq))
        return change

    def _to_reread(self, page: int, patch: Patch) -> list[str]:
        """The lines whose outline an edit changed, and which no person wrote."""
        with self.project.log.lock:
            here = self.project.log.state(page).lines
            changed = [name for name, (_, new) in patch.get("lines", {}).items() if new and "polygon" in new]
            return [name for name in changed if name in here and not is_corrected(here[name])]

    def _reread(self) -> None:
        while (item := self._stale.get()) is not None:
            page, lines, step = item
            try:
                self.read_lines(page, lines, step)
            except Exception:  # the line stays stale, and is read with the page
                if not self.stopping:
                    _log.exception("lines of page %d cannot be read again", page)
            self._stale.task_done()

    def rest(self) -> None:
        """Wait until no line is to be read again."""
        self._stale.join()

    def read_lines(self, page: int, lines: list[str], step: int | None = None) -> int:
        """Read some lines of a page now."""
        model = self.model()
        begun = page_reading.begin(self, page, lines, model, urgent=True)
        return 0 if begun is None else page_reading.finish(self, begun, model, "reread", step)

    def changed(self, page: int, change: dict[str, Any]) -> None:
        """After an acknowledged change: its file is written soon, and every browser hears of it."""
        self.files.note(page)
        self.project.broadcast.tell("change", sent_to_all(change))

    def project_changed(self, seq: int, patch: Patch, label: str, author: Author) -> dict[str, Any]:
        """After an acknowledged change of the project: what every browser hears of it."""
        change = project_change_view(self.project, seq, patch, label, author)
        if change["settings"]:
            self.project.broadcast.tell("settings", self.settings)
        for page in change["pages"][:_MOST_TOLD]:
            self.project.broadcast.tell("page", summary_view(self.project.row(page)))
        self.project.broadcast.tell("project", change)
        return change

    def tell_change(self, page: int, seq: int, patch: Patch, label: str) -> None:
        self.changed(page, change_view(self.project, page, seq, patch, label))

    def alternatives(self, page: int, line: str) -> dict[str, Any] | None:
        from spikehtr.serve.alternatives import alternatives_of

        if self.stopping:
            raise RequestError(503, "stopping", "the server is stopping", "start it again")
        return alternatives_of(self, page, line)


def patch_label(ops: object) -> str:
    from spikehtr.serve.operations import label_of

    assert isinstance(ops, list)
    return label_of(ops)
