"""From maps to lines: what is drawn into them is found, once."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from spikehtr.pages.segment.decode_maps import Probabilities, decode

HEIGHT, WIDTH = 240, 480  # of the network's input
TALL = 24.0  # of the lines
Row = tuple[float, float, float]  # y, first x, last x, pixels of the input


def maps(rows: list[Row], ends: bool = True, across: bool = False) -> Probabilities:
    """Maps that say of each row that a baseline runs there."""
    fine = np.zeros((4, HEIGHT // 2, WIDTH // 2), np.float32)
    for y, first, last in rows:
        columns = slice(round(first / 2), round(last / 2))
        for off, probability in ((-1, 0.5), (0, 0.95), (1, 0.5)):
            row = fine[0, round(y / 2) + off, columns]
            np.maximum(row, probability, out=row)
        if ends:
            fine[1, round(y / 2) - 1 : round(y / 2) + 2, columns.start] = 0.9
            fine[2, round(y / 2) - 1 : round(y / 2) + 2, columns.stop - 1] = 0.9
    coarse = HEIGHT // 4, WIDTH // 4
    heights = np.stack([np.full(coarse, 0.7 * TALL, np.float32), np.full(coarse, 0.3 * TALL, np.float32)])
    turn = np.zeros((4, *coarse), np.float32)
    turn[1 if across else 0] = 1
    found = Probabilities(fine, np.ones(coarse, np.float32), heights, turn)
    if not across:
        return found
    return Probabilities(*(np.ascontiguousarray(part.swapaxes(-1, -2)) for part in found))


def extents(rows: list[Row], **how: bool) -> list[NDArray[np.float64]]:
    return [line.points[[0, -1]] for line in decode(maps(rows, **how))]


def test_a_line_is_found_where_it_is() -> None:
    ((start, end),) = extents([(100, 40, 400)])
    assert start == pytest.approx((40, 100), abs=4)
    assert end == pytest.approx((400, 100), abs=4)


def test_a_gap_is_closed_unless_an_end_stands_at_it() -> None:
    rows = [(100.0, 40.0, 200.0), (100.0, 220.0, 400.0)]
    assert len(extents(rows, ends=False)) == 1
    assert len(extents(rows)) == 2


def test_the_same_line_found_twice_is_one_and_the_next_row_is_another() -> None:
    long, beside, below = (100.0, 40.0, 400.0), (106.0, 60.0, 250.0), (122.0, 40.0, 400.0)
    assert len(extents([long, beside])) == 1
    assert len(extents([long, below])) == 2
    assert len(extents([long, (110.0, 60.0, 250.0)])) == 2


def test_lines_that_run_down_the_page_are_found_as_others_are() -> None:
    ((start, end),) = extents([(100, 40, 400)], across=True)
    assert start == pytest.approx((100, 40), abs=4)
    assert end == pytest.approx((100, 400), abs=4)
    assert len(extents([(100, 40, 400), (106, 60, 250)], across=True)) == 1
