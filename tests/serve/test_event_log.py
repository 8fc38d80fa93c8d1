"""The log: whatever is done, undone, redone and read in between, nothing is lost and the replay says the same."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from editing_help import ADA, BOB, KINDS, step
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_help import draw_page, opened, page_with_lines

from spikehtr.errors import SpikeHTRError
from spikehtr.serve.documents import PageState, difference
from spikehtr.serve.draft import ConflictError
from spikehtr.serve.event_log import EventLog
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.project import Project


@settings(max_examples=15)
@given(st.lists(st.sampled_from(KINDS), max_size=30), st.integers(0, 1 << 30))
def test_the_replay_of_random_edits_gives_the_state_and_undoing_all_gives_the_beginning(
    kinds: list[str], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        draw_page(Path(folder) / "page.png")
        with opened(Path(folder)) as project:
            page, _ = page_with_lines(project)
            rng = random.Random(seed)
            for kind in kinds:
                step(project, page, kind, rng)
                project.log.state(page).check()
            state, steps = project.log.state(page).copy(), project.log.next_steps(page)
            replayed = project.log.replayed(page)
            assert replayed == state
            assert replayed.versions == state.versions
            project.log._states.clear()
            project.log._stacks.clear()
            assert project.log.state(page) == state
            assert project.log.state(page).versions == state.versions
            assert [s and (s.seq, s.label, s.lines) for s in project.log.next_steps(page)] == [
                s and (s.seq, s.label, s.lines) for s in steps
            ]
            undone = 0
            while (last := project.log.next_steps(page)[0]) is not None:
                project.turn(page, "undo", last.seq, ADA)
                undone += 1
            assert project.log.state(page) == PageState()
            for _ in range(undone):
                redo = project.log.next_steps(page)[1]
                assert redo is not None
                project.turn(page, "redo", redo.seq, ADA)
            assert project.log.state(page) == state


def test_a_failed_edit_leaves_no_trace(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page, lines = page_with_lines(project)
        before, last = project.log.state(page).copy(), project.log.last
        good = {"op": "set_text", "line": lines[0], "version": project.log.state(page).version("lines", lines[0])}
        with pytest.raises(ConflictError):
            project.edit(page, [good | {"text": "new"}, {"op": "confirm", "line": lines[1], "version": 10**6}], ADA)
        assert project.log.state(page) == before
        assert project.log.last == last


def test_a_person_sees_what_the_sender_saw_of_a_line_that_changed(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page, lines = page_with_lines(project)
        version = project.log.state(page).version("lines", lines[0])
        op = {"op": "set_text", "line": lines[0], "version": version}
        seq, *_ = project.edit(page, [op | {"text": "mine"}], ADA)
        project.edit(page, [op | {"text": "later", "version": seq}], ADA)
        seen = project.log.seen_at(page, "lines", lines[0], seq)
        assert seen.lines[lines[0]]["text"] == "mine"
        assert [v["text"] for v in project.log.texts_of_line(page, lines[0])] == ["later", "mine"]


def test_undo_of_what_somebody_else_did_meanwhile_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page, lines = page_with_lines(project)
        seen = project.log.next_steps(page)[0]
        assert seen is not None
        version = project.log.state(page).version("lines", lines[0])
        project.edit(page, [{"op": "confirm", "line": lines[0], "version": version}], BOB)
        with pytest.raises(RequestError, match="meanwhile") as caught:
            project.turn(page, "undo", seen.seq, ADA)
        assert caught.value.status == 409
        assert caught.value.more["undo"]["user"] == "Bob"


def test_a_reading_that_comes_after_other_edits_is_taken_back_with_its_own(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page, (first, second, third, _) = page_with_lines(project)
        states = [project.log.state(page).copy()]

        def send(op: dict[str, object]) -> int:
            op["version"] = project.log.state(page).version("lines", str(op["line"]))
            return project.edit(page, [op], ADA)[0]

        def turn(kind: str) -> None:
            step = project.log.next_steps(page)[kind == "redo"]
            assert step is not None
            project.turn(page, kind, step.seq, ADA)

        shape = [[x + 3, y] for x, y in states[0].lines[first]["polygon"]]
        moved = send({"op": "reshape", "line": first, "polygon": shape})
        deleted = send({"op": "delete", "line": second})
        send({"op": "confirm", "line": third})
        turn("undo")
        after = project.log.state(page).copy()
        after.lines[first] = {**after.lines[first], "text": "read", "by": "machine", "confidence": 0.5, "stale": False}
        project.change(page, "reread", after, by_person=False, step=moved)
        for again in range(2):
            undo, redo = project.log.next_steps(page)
            assert (undo and undo.seq, redo and redo.label) == (deleted, "confirm"), "the reading is no step of its own"
            turn("undo")
            assert second in project.log.state(page).lines
            assert project.log.state(page).lines[first]["text"] == "read"
            turn("undo")
            assert project.log.state(page) == states[0]
            for _ in range(2):
                turn("redo")
            assert project.log.state(page) == after
            if not again:
                project.log.forget()  # from the log alone it is the same
        turn("redo")
        assert project.log.state(page).lines[third]["by"] == "person"


def test_a_page_s_import_cannot_be_undone(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page, _ = page_with_lines(project)
        state = project.log.state(page).copy()
        other = project.log.execute(
            "INSERT INTO pages (name, image, width, height, stamp, position) VALUES ('o', 'o.png', 400, 300, '', 2)"
        )
        project.log.append(other, "import", difference(PageState(), state), can_undo=False)
        assert project.log.next_steps(other) == (None, None)


def test_a_damaged_log_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "log.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    with pytest.raises(SpikeHTRError, match="restore it from a backup"):
        EventLog(tmp_path / "log.sqlite")


def test_a_folder_is_open_in_one_server_only(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(SpikeHTRError, match="has this folder open already"):
        Project(tmp_path)
