"""What is expected to be wrong: in words, and fitted on hands that a model does not know."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.fit_expected_error import PAGE, ReadLine, error_rate, fit, leave_one_out
from spikehtr.results.expected_error import FEWEST, ErrorEstimate, UnsureCount, in_words, log_odds
from spikehtr.results.line import Character, Line

shares = st.floats(0, 1)


def line(confidences: list[float]) -> Line:
    return Line("x" * len(confidences), 0.5, [Character("x", one, 0, 1) for one in confidences])


@given(shares, shares)
def test_the_less_sure_the_more_is_expected_to_be_wrong(one, other):
    estimate = ErrorEstimate(0.97, -0.68)
    low, high = sorted((one, other))
    assert 0 <= estimate.of_share(low) <= estimate.of_share(high) <= 1


def test_an_estimate_is_noted_and_found_again():
    estimate = ErrorEstimate(0.9, -0.5)
    assert ErrorEstimate.noted(estimate.note() | {"temperature": 1.2}) == estimate
    assert ErrorEstimate.noted({"temperature": 1.2}) is None


def test_few_characters_tell_nothing():
    estimate = ErrorEstimate(1, 0)
    half = [0.95, 0.5] * (FEWEST // 2)
    assert estimate.of([line(half[1:])]) is None
    assert estimate.of([line(half[:10]), line(half[10:])]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.9, "most characters are wrong"),
        (0.5, "about one character in two is wrong"),
        (0.21, "about one character in five is wrong"),
        (0.07, "about one character in 14 is wrong"),
        (0.021, "about one character in 50 is wrong"),
        (0.0, "about one character in 1000 is wrong"),
    ],
)
def test_an_expectation_in_words(share, said):
    assert in_words(share) == said


def drawn(seed: int, slope: float, bias: float, unsure: float) -> list[ReadLine]:
    """Lines of a hand on which this is how errors go with confidences."""
    rng = np.random.default_rng(seed)
    wrong = 1 / (1 + np.exp(-(slope * log_odds(unsure) + bias)))
    sure = [np.where(rng.random(200) < unsure, 0.5, 0.99).tolist() for _ in range(3 * PAGE)]
    return [ReadLine(one, int(rng.binomial(200, wrong)), 200) for one in sure]


def test_the_fit_finds_how_errors_go_with_confidences_and_holds_for_a_set_left_out():
    sets = {str(unsure): drawn(round(100 * unsure), 0.9, -0.4, unsure) for unsure in (0.05, 0.1, 0.2, 0.4, 0.6)}
    found = fit(sets)
    assert found.slope == pytest.approx(0.9, abs=0.05)
    assert found.bias == pytest.approx(-0.4, abs=0.05)
    for expected, true in leave_one_out(sets).values():
        assert expected == pytest.approx(true, abs=0.02)


def test_no_page_to_fit_on_is_an_error():
    with pytest.raises(SpikeHTRError, match="no set has 10 lines or more"):
        fit({"a": [ReadLine([0.5], 1, 1)] * 9})


def test_shares_and_rates_of_nothing_are_0():
    assert UnsureCount.of([]).share == 0
    assert error_rate([]) == 0
