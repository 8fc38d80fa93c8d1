"""The figures of the published accuracy tables are those of the runs kept beside them."""

import re
import sys
from pathlib import Path

import pytest

from spikehtr.studies.study_plan import StudyPlan

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"[-+]?\d+\.\d+")


def figures(page):
    """The decimal numbers of each row of a page's Markdown tables."""
    return [NUMBER.findall(line) for line in page.splitlines() if line.startswith("|") and NUMBER.search(line)]


@pytest.mark.slow
def test_the_page_has_the_figures_of_the_runs_kept_beside_it(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "tools"), *sys.path])
    import write_accuracy

    page = write_accuracy.PAGE.read_text(encoding="utf-8")
    made = write_accuracy.filled(page, StudyPlan.read(write_accuracy.KEPT))
    parts, remade = ([found[0] for found in write_accuracy.PLACE.finditer(text)] for text in (page, made))
    assert len(parts) == 5
    assert [figures(part) for part in remade] == [figures(part) for part in parts]
    assert all(map(figures, parts))
