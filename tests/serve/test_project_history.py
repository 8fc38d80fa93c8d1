"""What is done to the project as a whole is in the log, too: it is undone, redone, and not lost."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from editing_help import ADA, BOB, PROJECT_KINDS, project_step
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_help import Browser, draw_page, opened, served

from spikehtr.serve import project_tables
from spikehtr.serve.event_log import PROJECT
from spikehtr.serve.http_errors import RequestError
from spikehtr.serve.project import Project


def with_pages(project: Project, count: int = 4) -> list[int]:
    pages = []
    for number in range(count):
        draw_page(project.folder / f"page-{number}.png", texts=())
        pages.append(project.add_page(project.folder / f"page-{number}.png", None))
    return [page for page in pages if page is not None]


def looks(project: Project) -> tuple[object, object]:
    """All that a person sees of the project."""
    rows = project.log.rows("SELECT id, removed FROM pages ORDER BY position, id")
    return [tuple(row) for row in rows], project.settings


@settings(max_examples=25)
@given(st.lists(st.sampled_from(PROJECT_KINDS), max_size=30), st.integers(0, 1 << 30))
def test_the_replay_of_random_changes_gives_the_project_and_undo_goes_to_the_beginning(
    kinds: list[str], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with opened(Path(folder)) as project:
            with_pages(project)
            beginning, rng = looks(project), random.Random(seed)
            for kind in kinds:
                before = project.log.last
                _, patch = project_step(project, kind, rng)
                assert (project.log.last > before) == bool(patch), "a change is an event, and no change is none"
                assert project.log.replayed_project() == project.log.project == project_tables.stored(project.log)
            now, steps, last = looks(project), project.history.steps(), project.log.last
        with opened(Path(folder)) as project:  # as after a restart
            assert (looks(project), project.history.steps(), project.log.last) == (now, steps, last)
            undone = 0
            while (step := project.history.steps()["undo"]) is not None:
                project.history.turn("undo", step["seq"])
                undone += 1
            pages, values = looks(project)
            kept = {"language", "ui.zoom"}  # of the looks alone: undo passes over them
            assert pages == beginning[0]
            assert isinstance(values, dict)
            assert isinstance(beginning[1], dict)
            assert {k: v for k, v in values.items() if k not in kept} == {
                k: v for k, v in beginning[1].items() if k not in kept
            }
            for _ in range(undone):
                project.history.turn("redo", project.history.steps()["redo"]["seq"])
            assert looks(project) == now


def test_a_project_of_before_opens_as_it_was_and_its_steps_begin_there(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        pages = with_pages(project)
        project.log.execute("DELETE FROM events")
        project.log.execute("UPDATE pages SET position = 9, removed = 1 WHERE id = ?", pages[0])
        project.log.execute("INSERT INTO settings VALUES ('threshold', '0.5'), ('ui.zoom', '3'), ('tune.x', '1')")
    with opened(tmp_path) as project:
        assert project.page_ids() == pages[1:]
        assert (project.settings["threshold"], project.settings["ui.zoom"]) == (0.5, 3)
        assert "tune.x" not in project.settings
        assert project.history.steps() == {"undo": None, "redo": None}
        assert project.log.replayed_project() == project_tables.stored(project.log)
        project.history.remove([pages[0]], removed=False)
        assert project.page_ids() == [*pages[1:], pages[0]]
        last = project.log.last
    with opened(tmp_path) as project:
        assert project.log.last == last, "what is in the log is not noted again"
        project.history.turn("undo", project.history.steps()["undo"]["seq"])
        assert project.page_ids() == pages[1:]


def test_what_a_program_that_knows_no_such_log_changed_is_a_step(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        pages = with_pages(project)
        project.history.change_settings({"threshold": 0.5})
        project.log.execute("UPDATE settings SET value = '0.6' WHERE key = 'threshold'")
        project.log.execute("UPDATE pages SET removed = 1 WHERE id = ?", pages[0])
    with opened(tmp_path) as project:
        assert project.settings["threshold"] == 0.6
        for wanted in (0.5, 0.8):
            project.history.turn("undo", project.history.steps()["undo"]["seq"])
            assert project.settings["threshold"] == wanted
            assert project.page_ids() == pages


def test_undo_of_what_somebody_else_did_to_the_project_meanwhile_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        pages = with_pages(project)
        seen, _ = project.history.remove(pages[:1], True, ADA)
        project.history.remove(pages[1:2], True, BOB)
        with pytest.raises(RequestError, match="meanwhile") as caught:
            project.history.turn("undo", seen, ADA)
        assert caught.value.more["undo"]["user"] == "Bob"
        assert project.page_ids() == pages[2:]


def test_pages_that_come_later_stay_where_an_order_is_undone(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        one, two, three = with_pages(project, 3)
        project.history.order([three, one])
        assert project.page_ids() == [three, two, one]
        draw_page(tmp_path / "later.png", texts=())
        later = project.add_page(tmp_path / "later.png", None)
        project.history.turn("undo", project.history.steps()["undo"]["seq"])
        assert project.page_ids() == [one, two, three, later]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    for number in range(3):
        draw_page(tmp_path / f"page-{number}.png")
    with served(tmp_path) as one:
        yield one


def test_a_browser_undoes_removal_order_and_settings_and_every_other_hears_of_it(browser: Browser) -> None:
    told: list[tuple[str, object]] = []
    bench = browser.client.app.state.bench  # type: ignore[attr-defined]
    bench.project.broadcast.tell = lambda event, data: told.append((event, data))

    def listed() -> list[int]:
        return [page["id"] for page in browser.get("/api/pages")["pages"]]

    def turn(kind: str, status: int = 200) -> object:
        seq = (browser.get("/api/project")[kind] or {"seq": None})["seq"]
        return browser.send(f"/api/project/{kind}", {"expect": seq}, status)

    change = browser.send("/api/pages", {"pages": [1, 3], "removed": True}, method="PATCH")
    assert (listed(), change["pages"], change["undo"]["label"]) == ([2], [1, 3], "remove_pages")
    assert [event for event, _ in told] == ["page", "page", "project"]
    browser.send("/api/settings", {"direction": "rtl", "language": "fr"}, method="PATCH")
    assert told[-2][0] == "settings"
    turn("undo")
    assert (browser.get("/api/settings")["direction"], browser.get("/api/settings")["language"]) == ("auto", "fr")
    turn("undo")
    assert listed() == [1, 2, 3]
    assert turn("undo", 409)["error"]["code"] == "nothing_to_undo"  # type: ignore[index]
    turn("redo")
    assert listed() == [2]
    turn("undo")
    browser.send("/api/pages/order", {"pages": [3, 2, 1]}, method="PUT")
    assert listed() == [3, 2, 1]
    labels = [event["label"] for event in browser.get("/api/project/history")["events"]]
    assert labels[:4] == ["order_pages", "undo", "redo", "undo"]
    for wrong in ({"pages": [1]}, {"pages": ["1"], "removed": True}, {"pages": [True], "removed": True}):
        browser.send("/api/pages", wrong, 422, "PATCH")
    browser.send("/api/pages", {"pages": [99], "removed": True}, 404, "PATCH")
    assert browser.get(f"/api/project/history?limit=1&before={change['seq'] + 1}")["events"][0]["pages"] == ["1", "3"]
    assert bench.project.log.events(PROJECT)[-1]["label"] == "add_page"
