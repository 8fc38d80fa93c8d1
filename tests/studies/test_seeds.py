import math

import numpy as np
import pytest
from hypothesis import given
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
    low, high = mean_interval([0.01, 0.03], spread)
    assert math.sqrt(low * high) == pytest.approx(0.02)
    assert math.log(high / 0.02) == pytest.approx(4.3027 / math.sqrt(2), abs=1e-3)
    assert mean_interval([0.1, 0.9], spread)[1] == 1.0  # a rate has an end
    assert mean_interval([0.9, 1.1], spread)[1] == 1.1  # the cut is not below a seed


def test_no_error_at_all_counts_as_next_to_none():
    spread = pooled([[0.0, 0.0], [0.1, 0.2]])
    low, high = difference_interval([0.0, 0.0], [0.1, 0.2], spread)
    assert low < 0.15 < high <= 1.0
    low, high = mean_interval([0.0, 0.0], spread)
    assert 0 < low < 1e-4 < high
    wild = pooled([[0.0, 1.0]])
    assert mean_interval([0.0, 1.0], wild)[1] == 1.0


@given(
    st.lists(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=4), min_size=2, max_size=5),
)
def test_a_difference_is_the_same_whichever_way_it_is_taken(groups):
    spread = pooled(groups)
    a, b = groups[:2]
    low, high = difference_interval(a, b, spread)
    assert low - 1e-12 <= np.mean(b) - np.mean(a) <= high + 1e-12
    assert difference_interval(b, a, spread) == pytest.approx((-high, -low))


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng, truths = np.random.default_rng(0), [0.02, 0.08, 0.2, 0.33, 0.4]
    held = {"mean": [], "down": [], "far down": [], "up": []}
    for _ in range(400):
        groups = [list(values) for values in np.array(truths)[:, None] * np.exp(rng.normal(0, 0.1, (5, 2)))]
        spread = pooled(groups)
        low, high = mean_interval(groups[2], spread)
        held["mean"].append(low <= 0.2 <= high)
        for name, a, b in (("down", 3, 1), ("far down", 4, 0), ("up", 1, 2)):
            low, high = difference_interval(groups[a], groups[b], spread)
            held[name].append(low <= truths[b] - truths[a] <= high)
    assert all(0.92 <= np.mean(values) <= 0.98 for values in held.values()), held
