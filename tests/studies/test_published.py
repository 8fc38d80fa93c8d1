"""The figures of published tables are those of the runs kept beside them; how the pages put it is their own matter."""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from spikehtr.studies.study_page import MARKDOWN, render
from spikehtr.studies.study_plan import StudyPlan

ROOT = Path(__file__).parents[2]
MAIN = ROOT / "docs" / "results" / "main"
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def figures(page):
    """The decimal numbers of each row of a page's Markdown tables."""
    return [NUMBER.findall(line) for line in page.splitlines() if line.startswith("|") and NUMBER.search(line)]


def test_the_published_table_has_the_figures_of_the_runs_kept_beside_it(tmp_path):
    shutil.copytree(MAIN, tmp_path / "main", ignore=shutil.ignore_patterns(MARKDOWN))
    render(replace(StudyPlan.read(MAIN), folder=tmp_path / "main"))
    published = figures((MAIN / MARKDOWN).read_text())
    assert len(published) > 20
    assert figures((tmp_path / "main" / MARKDOWN).read_text()) == published


def test_the_page_has_the_figures_of_those_runs(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    import accuracy

    page = accuracy.PAGE.read_text()
    parts = [found[0] for found in accuracy.PLACE.finditer(page)]
    made = [found[0] for found in accuracy.PLACE.finditer(accuracy.filled(page, StudyPlan.read(MAIN)))]
    assert parts
    assert [figures(part) for part in made] == [figures(part) for part in parts]
    assert all(map(figures, parts))
