from __future__ import annotations

import numpy as np

from spikehtr.pages.order_lines import Placed, in_order


def placed(left: float, right: float, y: float, tilt: float = 0.0) -> Placed:
    baseline = np.array([(left, y), (right, y + tilt * (right - left))], float)
    return Placed(baseline, baseline, 8.0)


def index_order(lines: list[Placed], folds: list[float] | None = None) -> list[list[int]]:
    """Which of the lines stand in each region, when they are handed over backwards."""
    where = {id(line): index for index, line in enumerate(lines)}
    return [[where[id(line)] for line in region] for region, _ in in_order(list(reversed(lines)), folds or [])]


def test_left_page_before_right_page() -> None:
    lines = [placed(50, 450, 100), placed(50, 450, 150), placed(550, 950, 100), placed(550, 950, 150)]
    assert index_order(lines, [500.0]) == [[0, 1], [2, 3]]


def test_columns_with_lines_at_other_heights() -> None:
    left = [placed(50, 450, 100 + 50 * row) for row in range(5)]
    right = [placed(550, 950, 125 + 50 * row) for row in range(5)]
    assert index_order(left + right) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_heading_over_two_columns_comes_first() -> None:
    heading = [placed(50, 950, 100)]
    left = [placed(50, 450, 300 + 50 * row) for row in range(5)]
    right = [placed(550, 950, 325 + 50 * row) for row in range(5)]
    assert index_order(heading + left + right) == [[0], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


def test_rows_of_a_table_are_read_across() -> None:
    lines = [placed(x, x + 200, 100 + 50 * row) for row in range(4) for x in (50, 400, 700)]
    assert index_order(lines) == [list(range(12))]


def test_long_columns_of_one_width_are_read_one_after_the_other_though_their_lines_are_level() -> None:
    lines = [placed(x, x + 400, 100 + 50 * row) for x in (50, 550) for row in range(10)]
    assert index_order(lines) == [list(range(10)), list(range(10, 20))]


def test_long_columns_of_a_table_are_read_across() -> None:
    """Names and dates, too unlike in width for columns of text."""
    lines = [placed(x, x + width, 100 + 50 * row) for row in range(10) for x, width in ((50, 400), (550, 200))]
    assert index_order(lines) == [list(range(20))]


def test_parts_of_a_tilted_row_stay_in_one_row() -> None:
    lines = [placed(x, x + 400, 100 + 60 * row + 0.05 * x, 0.05) for row in range(4) for x in (0, 450, 900)]
    assert index_order(lines) == [list(range(12))]


def test_a_narrow_column_is_a_marginal_note() -> None:
    text = [placed(300, 950, 100 + 50 * row) for row in range(8)]
    note = [placed(50, 200, 220 + 33 * row) for row in range(3)]
    assert sorted(kind for _, kind in in_order(text + note, [])) == ["marginalia", "paragraph"]


def test_nothing() -> None:
    assert in_order([], []) == []
