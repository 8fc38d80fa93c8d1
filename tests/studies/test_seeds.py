import math

import numpy as np
import pytest

from spikehtr.studies.seeds import difference_interval, mean_interval, pooled, t_quantile


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (30, 2.0423), (1000, 1.9623)]
)
def test_students_t(freedom, value):
    assert t_quantile(freedom) == pytest.approx(value, abs=2e-4)


def test_the_spread_is_pooled_within_variants():
    spread = pooled([[1.0, 3.0], [10.0, 10.0], [5.0], []])
    assert spread.freedom == 2
    assert spread.deviation == pytest.approx(1.0)  # squares 2 and 0 over 2 degrees of freedom
    assert pooled([[1.0], [2.0]]) is None
    low, high = mean_interval([1.0, 3.0], spread)
    assert (low + high) / 2 == pytest.approx(2)
    assert high - 2 == pytest.approx(4.3027 / math.sqrt(2), abs=1e-3)
    low, high = difference_interval([1.0, 3.0], [10.0, 10.0], spread)
    assert (low + high) / 2 == pytest.approx(8)
    assert high - 8 == pytest.approx(4.3027, abs=1e-3)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        groups = rng.normal(np.arange(5)[:, None], 0.3, (5, 2))
        low, high = mean_interval(list(groups[2]), pooled([list(values) for values in groups]))
        held.append(low <= 2 <= high)
    assert 0.92 <= np.mean(held) <= 0.98
