"""The append-only log of everything that was done to pages and to the project, in SQLite, and what follows from it.

An event is a patch (`documents.difference`) with its number, which grows over the whole project. Nothing is ever
changed or taken out: undo and redo are events, too. The current state of each page is kept beside the log, written in
the same transaction, and equals what the replay of its events gives (`replayed`).

Undo goes by steps: an edit and the readings that followed from it are one, also where other edits came before the
reading. The history of a page is a line: undo takes back the last step that is not undone, whoever did it, and a new
step forgets what could be redone. The project (its settings; which pages it has, in which order) has a line of its own,
in the place of page 0.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spikehtr.serve import project_tables
from spikehtr.serve.database import Database
from spikehtr.serve.documents import (
    ORDER,
    PARTS,
    PageState,
    Patch,
    ProjectState,
    State,
    apply,
    inverse,
    overlap,
    touched,
)
from spikehtr.serve.event_steps import MACHINE, Author, Stacks, Step, timestamp
from spikehtr.serve.page_errors import expected_error

PROJECT = 0  # in the place of a page's number
_COMPRESSED_FROM = 1024  # bytes of a patch or value


def packed(value: object) -> str | bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text if len(text) < _COMPRESSED_FROM else zlib.compress(text.encode(), 1)


def unpacked(value: str | bytes) -> Any:
    return json.loads(value if isinstance(value, str) else zlib.decompress(value))


class EventLog(Database):
    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._states: dict[int, State] = {}
        self._stacks: dict[int, Stacks] = {}

    def forget(self) -> None:
        self._states.clear()
        self._stacks.clear()

    @property
    def last(self) -> int:
        found = self.row("SELECT max(seq) FROM events")
        return int(found[0] or 0) if found else 0

    def state(self, page: int) -> PageState:
        """The page as it is now. Not to be changed."""
        state = self._state(page)
        assert isinstance(state, PageState)
        return state

    @property
    def project(self) -> ProjectState:
        """The project as it is now. Not to be changed."""
        state = self._state(PROJECT)
        assert isinstance(state, ProjectState)
        return state

    def begin_project_with(self, state: ProjectState) -> None:
        """Take this for the project as it is; what the tables hold besides is noted next."""
        self._states[PROJECT] = state

    def _state(self, page: int) -> State:
        with self.lock:
            if page not in self._states:
                self._states[page] = project_tables.stored(self) if page == PROJECT else self._stored(page)
                while len(self._states) > 64:
                    self._states.pop(next(iter(self._states)))
            return self._states[page]

    def _stored(self, page: int) -> PageState:
        state = PageState()
        for row in self.rows("SELECT part, id, version, value FROM entities WHERE page = ?", page):
            value = unpacked(row["value"])
            if row["part"] == ORDER:
                state.order = value
            else:
                state.part(row["part"])[row["id"]] = value
            state.versions[row["part"], row["id"]] = row["version"]
        return state

    def append(
        self,
        page: int,
        label: str,
        patch: Patch,
        author: Author = MACHINE,
        by_person: bool = True,
        step: int | None = None,
        can_undo: bool = True,
    ) -> int:
        """Note a change; its number. `step`: the step it belongs to, if it can be taken back with that."""
        with self.transaction():
            if not can_undo:  # a page's first event, or one that undo passes over
                return self._insert(page, None, "import", label, patch, author, by_person)
            stacks = self._stacks_of(page)
            events = None if step is None else self._events_to_join(stacks, step, patch)
            now = time.time()
            seq = self._insert(page, None if events is None else step, "edit", label, patch, author, by_person, now)
            if events is not None:
                events.append(seq)
            else:
                made = Step(seq, label, tuple(touched(patch, "lines")), now, *author)
                stacks.undo.append((made, [seq]))
                stacks.redo.clear()
            return seq

    def _events_to_join(self, stacks: Stacks, step: int, patch: Patch) -> list[int] | None:
        """The events of a step, if a change can be one of them: those that came since, and those that can be brought
        again, must be about other things."""
        place = stacks.place(step)
        if place is None:
            return None
        others = [event for _, events in [*stacks.undo[place + 1 :], *stacks.redo] for event in events]
        return None if any(overlap(patch, self._patch(event)) for event in others) else stacks.undo[place][1]

    def _patch(self, seq: int) -> Patch:
        found = self.row("SELECT patch FROM events WHERE seq = ?", seq)
        assert found is not None
        patch: Patch = unpacked(found["patch"])
        return patch

    def undo(self, page: int, author: Author = MACHINE) -> tuple[int, Patch]:
        return self._turn(page, "undo", author)

    def redo(self, page: int, author: Author = MACHINE) -> tuple[int, Patch]:
        return self._turn(page, "redo", author)

    def _turn(self, page: int, kind: str, author: Author) -> tuple[int, Patch]:
        """Take the last step back, or bring the last one that was taken back; the new event's number, and its patch."""
        with self.transaction():
            stacks = self._stacks_of(page)
            source, target = (stacks.undo, stacks.redo) if kind == "undo" else (stacks.redo, stacks.undo)
            if not source:
                raise IndexError(kind)
            step, events = source[-1]
            seq = 0
            merged: Patch = {}
            for event in reversed(events) if kind == "undo" else events:
                patch = inverse(self._patch(event)) if kind == "undo" else self._patch(event)
                seq = self._insert(page, step.seq, kind, step.label, patch, author, True)
                merged = _both(merged, patch)
            target.append(source.pop())
            return seq, merged

    def next_steps(self, page: int) -> tuple[Step | None, Step | None]:
        """What undo and redo would do."""
        with self.lock:
            stacks = self._stacks_of(page)
            return stacks.undo[-1][0] if stacks.undo else None, stacks.redo[-1][0] if stacks.redo else None

    def undone(self, page: int) -> set[int]:
        """The events that are taken back at present."""
        with self.lock:
            return {event for _, events in self._stacks_of(page).redo for event in events}

    def _insert(
        self,
        page: int,
        step: int | None,
        kind: str,
        label: str,
        patch: Patch,
        author: Author,
        by_person: bool,
        now: float | None = None,
    ) -> int:
        cursor = self.db.execute(
            "INSERT INTO events (page, step, kind, label, by_person, time, client, user, patch) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (page, step or 0, kind, label, by_person, now or time.time(), *author, packed(patch)),
        )
        seq = cursor.lastrowid
        assert seq is not None
        if step is None:
            self.db.execute("UPDATE events SET step = seq WHERE seq = ?", (seq,))
        state = self._state(page)
        apply(state, patch, seq if by_person else None)
        if isinstance(state, PageState):
            self._store(page, state, patch)
            self._summarise(page, state, seq)
        elif isinstance(state, ProjectState):
            project_tables.store(self, state, patch)
        return seq

    def _store(self, page: int, state: PageState, patch: Patch) -> None:
        for part in PARTS:
            for name in touched(patch, part):
                value = state.part(part).get(name)
                if value is None:
                    self.db.execute("DELETE FROM entities WHERE page = ? AND part = ? AND id = ?", (page, part, name))
                else:
                    facts = [value.get(key) for key in ("text", "by", "confidence")]
                    self._put(page, part, name, state.version(part, name), value, *facts)
        if ORDER in patch:
            self._put(page, ORDER, "", state.version(ORDER, ""), state.order, None, None, None)

    def _put(self, page: int, part: str, name: str, version: int, value: object, *facts: object) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO entities VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (page, part, name, version, packed(value), *facts),
        )

    def _summarise(self, page: int, state: PageState, seq: int) -> None:
        """The numbers that lists of pages show."""
        lines = state.lines.values()
        read = [line for line in lines if line["by"] is not None or line["reading"] is not None]
        corrected = sum(line["by"] == "person" for line in lines)
        self.db.execute(
            "UPDATE pages SET seq = ?, lines = ?, read = ?, corrected = ?, expected = ? WHERE id = ?",
            (seq, len(state.lines), len(read), corrected, expected_error(lines), page),
        )

    def _stacks_of(self, page: int) -> Stacks:
        if page not in self._stacks:
            self._stacks[page] = self._rebuilt(page)
        return self._stacks[page]

    def _rebuilt(self, page: int) -> Stacks:
        """The stacks from the log alone."""
        stacks = Stacks()
        sql = (
            "SELECT seq, step, kind, label, time, client, user, patch FROM events "
            "WHERE page = ? AND kind != 'import' ORDER BY seq"
        )
        turned: tuple[str, int] | None = None  # the undo or redo whose events are being passed
        for row in self.rows(sql, page):
            if row["kind"] == "edit":
                turned = None
                place = None if row["step"] == row["seq"] else stacks.place(row["step"])
                if place is not None:
                    stacks.undo[place][1].append(row["seq"])
                    continue
                lines = tuple(touched(unpacked(row["patch"]), "lines"))
                step = Step(row["seq"], row["label"], lines, row["time"], row["client"], row["user"])
                stacks.undo.append((step, [row["seq"]]))
                stacks.redo.clear()
                continue
            # A step of several events is turned by as many; an undo is never followed by another of the same step.
            if turned != (row["kind"], row["step"]):
                turned = row["kind"], row["step"]
                source, target = (stacks.undo, stacks.redo) if row["kind"] == "undo" else (stacks.redo, stacks.undo)
                target.append(source.pop())
        return stacks

    def state_at(self, page: int, seq: int) -> PageState:
        """The page as it was after the event `seq`, without versions."""
        with self.lock:
            *_, (_, state) = self.back_to(page, seq)
            return state

    def back_to(self, page: int, seq: int) -> Iterator[tuple[int, PageState]]:
        """The page after each event, from the last back to `seq`: one state, which goes back in time; no versions."""
        state = self.state(page).copy()
        sql = "SELECT seq, patch FROM events WHERE page = ? AND seq > ? ORDER BY seq DESC"
        for row in self.rows(sql, page, seq):
            yield row["seq"], state
            apply(state, inverse(unpacked(row["patch"])), None)
        yield seq, state

    def seen_at(self, page: int, part: str, name: str, version: int) -> PageState:
        """The page as someone saw it who knows a thing in this version: before the next change by a person to it."""
        sql = "SELECT seq, patch FROM events WHERE page = ? AND seq > ? AND by_person ORDER BY seq"
        for row in self.rows(sql, page, version):
            if name in unpacked(row["patch"]).get(part, {}):
                return self.state_at(page, row["seq"] - 1)
        return self.state(page)

    def replayed(self, page: int) -> PageState:
        """The page from its events alone, from nothing; what `state` must be equal to."""
        state = PageState()
        self._replay(page, state)
        return state

    def replayed_project(self) -> ProjectState:
        """The project from its events alone; what `project` must be equal to."""
        state = ProjectState()
        self._replay(PROJECT, state)
        return state

    def _replay(self, page: int, state: State) -> None:
        for row in self.rows("SELECT seq, by_person, patch FROM events WHERE page = ? ORDER BY seq", page):
            apply(state, unpacked(row["patch"]), row["seq"] if row["by_person"] else None)

    def events(self, page: int, before: int | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest events, or those before `before`, newest first."""
        undone, about = self.undone(page), ProjectState.parts if page == PROJECT else ("lines",)
        sql = "SELECT * FROM events WHERE page = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
        return [
            {
                "seq": row["seq"],
                "time": timestamp(row["time"]),
                "user": row["user"],
                "client": row["client"],
                "label": row["kind"] if row["kind"] in ("undo", "redo") else row["label"],
                **{part: touched(patch, part) for part in about},
                "undone": row["seq"] in undone,
            }
            for row in self.rows(sql, page, before or 1 << 62, limit)
            for patch in (unpacked(row["patch"]),)
        ]

    def texts_of_line(self, page: int, line: str, limit: int = 200) -> list[dict[str, Any]]:
        """The texts a line has had, newest first."""
        out: list[dict[str, Any]] = []
        here: dict[str, Any] = {}
        for row in self.rows("SELECT * FROM events WHERE page = ? ORDER BY seq", page):
            pair = unpacked(row["patch"]).get("lines", {}).get(line)
            if pair is None:
                continue
            new = pair[1] or {}
            if "text" in new or "by" in new:
                here = here | {key: new[key] for key in ("text", "by") if key in new}
                if not out and not here.get("text") and here.get("by") is None:
                    continue  # found or drawn, not written yet
                label = row["kind"] if row["kind"] in ("undo", "redo") else row["label"]
                about = {"seq": row["seq"], "time": timestamp(row["time"]), "user": row["user"]}
                out.append(about | {"by": here.get("by"), "text": here.get("text", ""), "label": label})
        return out[::-1][:limit]


def _both(first: Patch, second: Patch) -> Patch:
    """What is touched by two patches, one after the other; only the names count to the caller."""
    parts = (first.keys() | second.keys()) - {ORDER}
    merged: Patch = {part: first.get(part, {}) | second.get(part, {}) for part in parts}
    return merged | {key: patch[key] for patch in (first, second) for key in (ORDER,) if key in patch}
