from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pages_help import draw_page
from spikehtr.pages.find_ink import find_ink

ROWS = range(60, 300, 55)
LOW = "our rumour means more arms as sure as an auroran sun sees us move  "  # no tall letters


def small_writing(times: int, ruling: int = 255) -> NDArray[np.uint8]:
    """Rows of small low letters, each on a ruling of that level."""
    page = np.asarray(draw_page([(60.0, float(y), LOW * times) for y in ROWS], (1600, 300), 22)).copy()
    for y in ROWS:
        page[y : y + 2] = np.minimum(page[y : y + 2], ruling)
    return page


def ink_of(page: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray(find_ink(page)[0]) > 0


def test_dense_writing_on_a_wide_picture_is_no_fold() -> None:
    """Nearly every column of it is dark for most of the way; a fold is so in one place alone."""
    rows = [(10.0, float(y), LOW * 4) for y in range(14, 290, 12)]
    page = np.asarray(draw_page(rows, (800, 290), 24)).copy()
    assert find_ink(page)[2] is None
    book = np.full_like(page, 235)
    book[:, 380:392] = 90
    fold = find_ink(book)[2]
    assert fold is not None
    assert 370 < fold < 402


@pytest.mark.parametrize("level", [178, 60])
def test_a_ruling_takes_no_row_of_small_letters_with_it(level: int) -> None:
    before, after = ink_of(small_writing(3)), ink_of(small_writing(3, level))
    assert after[before].mean() > 0.9


def test_a_dark_ruling_goes_where_nothing_is_written_on_it() -> None:
    before, after = ink_of(small_writing(1)), ink_of(small_writing(1, 60))
    assert after[before].mean() > 0.9
    assert not after[:, 750:].any()
