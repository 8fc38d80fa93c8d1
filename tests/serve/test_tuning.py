"""Learning from corrections: what is held out, that a run can be stopped, and that nothing is re-read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from editing_help import ADA, boxes
from serve_help import TEXTS, draw_page, opened, served

from spikehtr.serve.project import Project
from spikehtr.serve.tuning import _remember, choose


def corrected_pages(folder: Path, count: int) -> None:
    """Pages of four lines each, all corrected."""
    with opened(folder) as project:
        for number in range(count):
            draw_page(folder / f"p{number}.png", seed=10 * number)
            page = project.add_page(folder / f"p{number}.png", None)
            assert page is not None
            texts = [{"op": "set_text", "line": f"@{n}", "text": text} for n, text in enumerate(TEXTS)]
            project.edit(page, [*boxes(), *texts], ADA)


class Bench:
    """As much of a workbench as choosing needs."""

    def __init__(self, project: Project) -> None:
        self.project = project


def test_whole_pages_are_held_out_and_keep_that_role(tmp_path: Path) -> None:
    corrected_pages(tmp_path, 3)
    with opened(tmp_path) as project:
        first = choose(Bench(project))  # type: ignore[arg-type]
        assert first.reason is None
        assert not set(first.training) & set(first.heldout)
        assert sum(first.training.values()) + sum(first.heldout.values()) == 12
        _remember(Bench(project), first)  # type: ignore[arg-type]
    corrected = {f"q{number}" for number in range(12)}
    with opened(tmp_path) as project:
        for name in corrected:
            draw_page(tmp_path / f"{name}.png")
            page = project.add_page(tmp_path / f"{name}.png", None)
            assert page is not None
            project.edit(page, [*boxes(), {"op": "set_text", "line": "@0", "text": "more"}], ADA)
        second = choose(Bench(project))  # type: ignore[arg-type]
    assert set(first.training) <= set(second.training)
    assert set(first.heldout) <= set(second.heldout)


@pytest.mark.parametrize(("pages", "heldout"), [(2, 1), (3, 1), (7, 1), (8, 2), (15, 3)])
def test_a_fifth_of_the_pages_is_held_out_and_one_at_least(pages: int, heldout: int, tmp_path: Path) -> None:
    corrected_pages(tmp_path, pages)
    with opened(tmp_path) as project:
        choice = choose(Bench(project))  # type: ignore[arg-type]
    assert (len(choice.training), len(choice.heldout)) == (pages - heldout, heldout)


def test_too_little_is_told_before_anything_begins(tmp_path: Path) -> None:
    corrected_pages(tmp_path, 1)
    with served(tmp_path) as browser:
        overview = browser.get("/api/finetune")
        assert not overview["enough"]
        assert "10 at least" in overview["reason"]
        answer = browser.send("/api/jobs", {"kind": "finetune"}, 422)
        assert answer["error"]["fault"].endswith(overview["reason"])
        for wrong in ({"minutes": 0}, {"steps": "x"}, {"model": 7}, {"minutes": 1, "steps": 1}):
            browser.send("/api/jobs", {"kind": "finetune", **wrong}, 422)


@pytest.mark.slow
def test_a_model_is_tuned_stopped_gone_on_with_compared_and_used_only_when_asked(tmp_path: Path) -> None:
    corrected_pages(tmp_path, 4)
    with served(tmp_path) as browser:
        body = {"kind": "finetune", "name": "mine", "minutes": 0.2}
        job = browser.send("/api/jobs", body, 202)["job"]
        browser.send("/api/jobs", body, 409)
        while not (told := browser.get(f"/api/jobs/{job['id']}")["job"])["done"]:
            assert told["state"] in ("queued", "running"), told
            time.sleep(0.05)
        browser.send(f"/api/jobs/{job['id']}/cancel", {})
        stopped = browser.wait_for_job(job["id"], 300)
        assert (stopped["state"], stopped["can_resume"]) == ("cancelled", True)
        before = browser.page(1)
        browser.send(f"/api/jobs/{job['id']}/resume", {}, 202)
        done = browser.wait_for_job(job["id"], 300)
        assert done["state"] == "done", done
        assert done["done"] > stopped["done"] > 0
        comparison = done["result"]["comparison"]
        assert comparison["lines"] == browser.get("/api/finetune")["heldout_lines"]
        assert comparison["old"]["cer"] is not None
        assert comparison["verdict"]
        assert {e["page"] for e in done["result"]["examples"]} <= set(browser.get("/api/finetune")["heldout_pages"])
        assert browser.page(1) == before
        assert "mine" in [model["name"] for model in browser.get("/api/models")["models"]]
        browser.send("/api/settings", {"model": "mine"}, method="PATCH")
        again = browser.send("/api/jobs", {"kind": "read", "pages": "all", "again": True}, 202)["job"]
        browser.wait_for_job(again["id"])
        assert [line["text"] for line in browser.page(1)["lines"]] == list(TEXTS)  # corrected: never replaced
