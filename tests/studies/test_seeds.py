import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spikehtr.studies.seeds import difference_interval, mean_interval, pooled, t_quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (30, 2.0423), (1000, 1.9623)]
)
def test_students_t(freedom, value):
    assert t_quantile(freedom) == pytest.approx(value, abs=2e-4)


def test_the_spread_is_pooled_within_variants():
    e = math.e
    spread = pooled([[0.1, 0.1 * e**2], [0.3, 0.3], [0.5], []])
    assert spread.freedom == 2
    assert spread.deviation == pytest.approx(1.0)  # squares 2 and 0 over 2 degrees of freedom
    assert pooled([[0.1], [0.2]]) is None
    low, high = mean_interval([0.1, 0.3], spread)
    assert math.sqrt(low * high) == pytest.approx(0.2)
    assert math.log(high / 0.2) == pytest.approx(4.3027 / math.sqrt(2), abs=1e-3)
    low, high = difference_interval([0.1, 0.3], [0.4, 0.4], spread)
    assert math.log((high + 0.2) / 0.4) == pytest.approx(4.3027, abs=1e-3)
    assert math.log((low + 0.2) / 0.4) == pytest.approx(-4.3027, abs=1e-3)


def test_no_error_at_all_counts_as_next_to_none():
    spread = pooled([[0.0, 0.0], [0.1, 0.2]])
    low, high = difference_interval([0.0, 0.0], [0.1, 0.2], spread)
    assert low < high < math.inf
    assert mean_interval([0.0, 0.0], spread) == (0.0, 0.0)


@given(
    st.lists(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=4), min_size=2, max_size=5),
)
def test_a_difference_is_clear_of_zero_whichever_way_it_is_taken(groups):
    spread = pooled(groups)
    assume(spread.deviation > 1e-6)
    assume(spread.reach < 100)
    a, b = groups[:2]
    low, high = difference_interval(a, b, spread)
    back, forth = difference_interval(b, a, spread)
    assert low <= np.mean(b) - np.mean(a) <= high
    assert (low > 0) == (forth < 0)
    assert (high < 0) == (back > 0)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        groups = np.array([[0.05], [0.1], [0.2], [0.3], [0.4]]) * np.exp(rng.normal(0, 0.1, (5, 2)))
        low, high = mean_interval(list(groups[2]), pooled([list(values) for values in groups]))
        held.append(low <= 0.2 <= high)
    assert 0.92 <= np.mean(held) <= 0.98
