"""What is expected to be wrong on a page of the workbench is what `spikehtr transcribe` tells of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from serve_help import draw_page, served, small_model

from spikehtr.recognizer import Recognizer
from spikehtr.results import Character, Line
from spikehtr.results.expected_error import ErrorEstimate
from spikehtr.serve.documents import NEW_LINE
from spikehtr.serve.page_errors import expected_error, judged
from spikehtr.weights import update_notes

ESTIMATE = ErrorEstimate(0.9, -0.5)


def line_of(unsure: int, sure: int) -> Line:
    confidences = [0.5] * unsure + [0.99] * sure
    return Line("a" * len(confidences), 0.9, [Character("a", one, i, i + 1) for i, one in enumerate(confidences)])


def read(line: Line, estimate: ErrorEstimate | None = ESTIMATE, by: str = "machine") -> dict[str, Any]:
    reading = {"text": line.text, "judged": judged(line, estimate)}
    return {**NEW_LINE, "text": line.text, "by": by, "reading": reading}


def test_it_is_the_estimate_of_the_lines_that_nobody_has_corrected() -> None:
    lines = [line_of(10, 50), line_of(0, 60), line_of(30, 30)]
    assert expected_error(map(read, lines)) == pytest.approx(ESTIMATE.of(lines))
    corrected = [read(lines[2], by="person")]
    assert expected_error([*map(read, lines[:2]), *corrected]) == pytest.approx(ESTIMATE.of(lines[:2]))


def test_where_it_cannot_be_told_there_is_none() -> None:
    assert expected_error([]) is None
    assert expected_error([dict(NEW_LINE)]) is None
    assert expected_error([read(line_of(10, 80))]) is None  # too few characters
    assert expected_error([read(line_of(10, 200), None)]) is None  # of a model that tells nothing
    assert expected_error([read(line_of(10, 200)) | {"text": "of another program"}]) is None
    assert expected_error([read(line_of(10, 200)) | {"reading": None}]) is None


def test_lines_of_two_models_count_by_their_characters() -> None:
    first, second = line_of(10, 90), line_of(60, 240)
    other = ErrorEstimate(1.1, 0.3)
    wanted = (ESTIMATE.of_share(0.1) * 100 + other.of_share(0.2) * 300) / 400
    assert expected_error([read(first), read(second, other)]) == pytest.approx(wanted)


def test_a_page_says_what_transcribe_says_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("spikehtr.results.expected_error", "spikehtr.serve.page_errors"):
        monkeypatch.setattr(f"{module}.FEWEST", 1)  # the small model writes little
    model = shutil.copyfile(small_model(), tmp_path / "noted.safetensors")
    update_notes(model, ESTIMATE.note())
    folder = tmp_path / "pages"
    draw_page(folder / "page.png")
    direct = Recognizer.load(model).transcribe_page(folder / "page.png").expected_error
    assert direct is not None
    with served(folder, model=model) as browser:
        assert browser.get("/api/pages")["pages"][0]["expected_error"] == pytest.approx(direct, abs=1e-4)
