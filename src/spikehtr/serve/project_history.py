"""What is done to the project as a whole, as events: settings, the order of pages, pages removed and put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spikehtr.serve.documents import Entity, Patch, ProjectState, difference
from spikehtr.serve.event_log import PROJECT, EventLog
from spikehtr.serve.event_steps import MACHINE, Author
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.project_settings import check, default_of, is_of_looks
from spikehtr.serve.project_tables import page_entity


class ProjectHistory:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        with log.transaction():
            self._take_in()

    def _take_in(self) -> None:
        """Note what the tables hold and the log does not: all of a project that an older version kept."""
        known, now = self._log.replayed_project(), self._log.project
        is_first = not known.settings and not known.pages
        new = {name: page for name, page in now.pages.items() if name not in known.pages}
        changed = difference(ProjectState(known.settings, {**known.pages, **new}), now)
        self._log.begin_project_with(known)
        if new:
            self._log.append(
                PROJECT, "add_page", {"pages": {n: [None, page] for n, page in new.items()}}, can_undo=False
            )
        if changed:
            self._log.append(PROJECT, "import" if is_first else "outside", changed, can_undo=not is_first)

    def note_page(self, page: int, position: float) -> None:
        """A page that was put into the table; within the transaction that did it."""
        self._log.project.pages.pop(str(page), None)  # the table may have been read since
        added: Patch = {"pages": {str(page): [None, page_entity(position, removed=False)]}}
        self._log.append(PROJECT, "add_page", added, can_undo=False)

    def change_settings(self, values: object, author: Author = MACHINE) -> tuple[int, Patch]:
        """Check and keep; all or none. The last event's number, and what changed."""
        wanted = check(values)
        with self._log.transaction():
            here = self._log.project.settings
            changed: dict[str, list[Entity | None]] = {
                name: [here.get(name), {"value": value}]
                for name, value in wanted.items()
                if (here[name]["value"] if name in here else default_of(name)) != value
            }
            for of_looks in (True, False):
                pairs = {name: pair for name, pair in changed.items() if is_of_looks(name) == of_looks}
                if pairs:
                    self._log.append(PROJECT, "settings", {"settings": pairs}, author, can_undo=not of_looks)
            return self._log.last, {"settings": changed} if changed else {}

    def remove(self, pages: Iterable[int], removed: bool, author: Author = MACHINE) -> tuple[int, Patch]:
        """Take pages out of the project, or put them back: one step."""
        label = "remove_pages" if removed else "put_back"
        return self._change_pages(label, {str(page): {"removed": removed} for page in pages}, author)

    def order(self, pages: Iterable[int], author: Author = MACHINE) -> tuple[int, Patch]:
        """Put pages into this order, in the places that they hold among all."""
        with self._log.transaction():
            here = self._log.project.pages
            wanted = [name for page in dict.fromkeys(pages) if (name := str(page)) in here]
            moved, chosen = iter(wanted), set(wanted)
            every = sorted(here, key=lambda name: (here[name]["position"], int(name)))
            after = [next(moved) if name in chosen else name for name in every]
            places = {name: {"position": float(place)} for place, name in enumerate(after, start=1)}
            return self._change_pages("order_pages", places, author) if after != every else (self._log.last, {})

    def _change_pages(self, label: str, changes: dict[str, Entity], author: Author) -> tuple[int, Patch]:
        with self._log.transaction():
            here = self._log.project
            after = {name: {**here.pages[name], **change} for name, change in changes.items()}
            patch = difference(here, ProjectState(here.settings, {**here.pages, **after}))
            return (self._log.append(PROJECT, label, patch, author) if patch else self._log.last), patch

    def turn(self, kind: str, expect: object, author: Author = MACHINE) -> tuple[int, Patch]:
        """Undo or redo the step that the sender saw."""
        with self._log.transaction():
            check_turn(self._log, PROJECT, kind, expect)
            return self._log.undo(PROJECT, author) if kind == "undo" else self._log.redo(PROJECT, author)

    def steps(self) -> dict[str, Any]:
        return steps_of(self._log, PROJECT)


def check_turn(log: EventLog, page: int, kind: str, expect: object) -> None:
    """That what undo or redo would do is what the sender saw."""
    steps = log.next_steps(page)
    step = steps[0] if kind == "undo" else steps[1]
    if step is None:
        raise RequestError(
            409,
            "nothing_to_undo",
            f"there is nothing to {'undo' if kind == 'undo' else 'redo'}",
            "",
            **steps_of(log, page),
        )
    if step.seq != expect:
        fault = "somebody else did something meanwhile"
        remedy = f"look at it, then {'undo' if kind == 'undo' else 'redo'} again"
        raise RequestError(409, "conflict", fault, remedy, **steps_of(log, page))


def steps_of(log: EventLog, page: int) -> dict[str, Any]:
    undo, redo = log.next_steps(page)
    return {"undo": undo.to_dict() if undo else None, "redo": redo.to_dict() if redo else None}
