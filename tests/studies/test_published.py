"""The tables that docs show are what the runs kept beside them say."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from spikehtr.studies.rendering import MARKDOWN, render
from spikehtr.studies.tasks import Plan

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "docs" / "results" / "main"


def test_the_published_table_is_that_of_the_runs_kept_beside_it(tmp_path):
    shutil.copytree(MAIN, tmp_path / "main", ignore=shutil.ignore_patterns(MARKDOWN))
    render(replace(Plan.read(MAIN), folder=tmp_path / "main"))
    assert (tmp_path / "main" / MARKDOWN).read_text() == (MAIN / MARKDOWN).read_text()


def test_the_page_has_the_tables_of_those_runs(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    import accuracy

    page = accuracy.PAGE.read_text()
    assert accuracy.PLACE.findall(page)
    assert accuracy.filled(page, Plan.read(MAIN)) == page
    emptied = accuracy.PLACE.sub(lambda place: place[1] + place[3], page)
    assert accuracy.filled(emptied, Plan.read(MAIN)) == page
