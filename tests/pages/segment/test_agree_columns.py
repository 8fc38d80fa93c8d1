"""Where a column begins, all lines nearby end or none: property by property, on drawn rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.pages.segment.agree_columns import MARK, agree_on_columns

HEIGHT, WIDTH, SIZE = 300, 400, 10.0
EDGE = 200  # where the second column begins


def run_of(left: int, right: int, y: float) -> np.ndarray:
    xs = np.arange(left, right, dtype=float)
    return np.stack([xs, np.full(len(xs), y), np.ones(len(xs))], 1)


def rows(whole: int, parted: int) -> list[np.ndarray]:
    ys = 20 + 2 * SIZE * np.arange(whole + parted)
    runs = [run_of(20, 380, y) for y in ys[:whole]]
    for y in ys[whole:]:
        runs += [run_of(20, EDGE - 3, y), run_of(EDGE, 380, y)]
    return runs


def agreed(chains, marked=0.0):
    ends = np.zeros((HEIGHT, WIDTH), np.float32)
    ends[:, EDGE - 1 : EDGE + 2] = marked
    return agree_on_columns(chains, ends, np.full((HEIGHT, WIDTH), SIZE, np.float32), 2.5)


def spans(chains):
    return sorted((round(chain[0, 1]), int(chain[0, 0]), int(chain[-1, 0])) for chain in chains)


def test_few_parted_rows_are_joined():
    out = agreed(rows(whole=5, parted=2))
    assert spans(out) == [(round(20 + 2 * SIZE * n), 20, 379) for n in range(7)]


def test_few_whole_rows_are_cut_where_an_end_is_likely():
    out = agreed(rows(whole=1, parted=5), marked=MARK + 0.1)
    assert len(out) == 12
    assert {(left, right) for _, left, right in spans(out)[:2]} == {(20, EDGE - 2), (EDGE - 1, 379)}


def test_a_heading_over_columns_stays_whole_where_nothing_says_that_it_ends():
    chains = rows(whole=1, parted=5)
    assert spans(agreed(chains)) == spans(chains)


def test_columns_with_a_wide_gap_are_not_joined():
    ys = 20 + 2 * SIZE * np.arange(7)
    chains = [run_of(20, 380, y) for y in ys[:5]]
    chains += [part for y in ys[5:] for part in (run_of(20, EDGE - 40, y), run_of(EDGE, 380, y))]
    assert spans(agreed(chains)) == spans(chains)


@given(
    st.lists(
        st.tuples(st.integers(0, 150), st.integers(30, 200), st.integers(1, 12)),
        max_size=12,
        unique_by=lambda run: run[2],
    )
)
def test_lines_of_one_column_are_left_alone(runs):
    chains = [run_of(left, left + long, 2 * SIZE * row) for left, long, row in runs]
    assert spans(agreed(chains, marked=0.9)) == spans(chains)


@given(st.integers(0, 6), st.integers(0, 6), st.floats(0, 1))
def test_nothing_is_lost_or_read_twice(whole, parted, marked):
    chains = rows(whole, parted)
    out = agreed(chains, marked)
    points = np.concatenate([np.zeros((0, 3)), *out])
    given_points = np.concatenate([np.zeros((0, 3)), *chains])
    assert sorted(map(tuple, points)) == sorted(map(tuple, given_points))
