from __future__ import annotations

import pytest

from spikehtr.pages.score_lines import score

LINES = [((0.0, 100.0 * row), (500.0, 100.0 * row)) for row in range(1, 5)]


def moved(down: float) -> list[tuple[tuple[float, float], ...]]:
    return [tuple((x, y + down) for x, y in line) for line in LINES]


def test_the_same_lines_score_one() -> None:
    result = score(LINES, LINES)
    assert (result.recall, result.precision, result.whole, result.f_value) == (1, 1, 1, 1)
    assert sorted(result.matches) == [(row, row) for row in range(4)]


@pytest.mark.parametrize(("up", "expected"), [(20, 1.0), (25, 1.0), (50, 0.5), (74, 0.02), (80, 0.0)])
def test_tolerance_is_a_quarter_of_the_distance_and_fades_to_three_times_that(up: float, expected: float) -> None:
    result = score(LINES, [moved(-up)[0]])
    assert result.precision == pytest.approx(expected, abs=0.001)
    assert result.recall == pytest.approx(expected / 4, abs=0.001)


def test_a_split_line_keeps_its_recall_but_not_its_precision() -> None:
    halves = [((0.0, 100.0), (245.0, 100.0)), ((255.0, 100.0), (500.0, 100.0))]
    result = score(LINES, [*halves, *LINES[1:]])
    assert result.recall == pytest.approx(1)
    assert result.precision == pytest.approx(4 / 5)
    assert result.whole == 3 / 4


def test_a_merged_line_is_not_whole() -> None:
    long = ((0.0, 100.0), (1100.0, 100.0))
    true = [LINES[0], ((600.0, 100.0), (1100.0, 100.0)), *LINES[1:]]
    result = score(true, [long, *LINES[1:]])
    assert result.recall == pytest.approx(1)
    assert result.whole == 3 / 5


def test_nothing_found_and_nothing_there() -> None:
    assert score(LINES, [])[:3] == (0, 1, 0)
    assert score([], LINES)[:3] == (1, 0, 1)
