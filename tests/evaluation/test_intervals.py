import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation import intervals
from spikehtr.evaluation.intervals import Interval, bootstrap_interval, paired_bootstrap
from spikehtr.evaluation.rates import Edits, total

RATE = 0.1
REPETITIONS = 400


def simulate(seed, documents=40, lines=6, rates=(RATE,), spread=True):
    """One corpus read by systems of the given true rates, and each line's document.

    With `spread` every document is hard or easy as a whole, and hard or easy for one system more than for another.
    """
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 61, (documents, lines))
    shared = rng.gamma(3, 1 / 3, (documents, 1)) if spread else 1
    systems = []
    for rate in rates:
        own = rng.gamma(10, 1 / 10, (documents, 1)) if spread else 1
        errors = rng.binomial(lengths, np.minimum(np.broadcast_to(rate * shared * own, lengths.shape), 1))
        systems.append([Edits(int(e), 0, 0, int(n)) for e, n in zip(errors.flat, lengths.flat, strict=True)])
    return *systems, np.repeat(np.arange(documents), lines).tolist()


def coverage(by_document, **corpus):
    covered = 0
    for seed in range(REPETITIONS):
        edits, documents = simulate(seed, **corpus)
        covered += RATE in bootstrap_interval(edits, documents if by_document else None, samples=800)
    return covered / REPETITIONS


def test_intervals_over_documents_cover_the_truth():
    assert 0.91 <= coverage(by_document=True) <= 0.98


def test_intervals_over_independent_lines_cover_the_truth():
    assert 0.91 <= coverage(by_document=False, documents=200, lines=1, spread=False) <= 0.98


def test_ignoring_documents_gives_intervals_that_are_too_narrow():
    assert coverage(by_document=False) < 0.8


def found_real(rates, by_document=True):
    real = 0
    for seed in range(REPETITIONS):
        a, b, documents = simulate(seed, rates=rates)
        real += paired_bootstrap(a, b, documents if by_document else None, samples=800).real
    return real / REPETITIONS


def test_equal_systems_seldom_seem_to_differ():
    assert 0.02 <= found_real((RATE, RATE)) <= 0.09


def test_ignoring_documents_finds_differences_that_are_not_there():
    assert found_real((RATE, RATE), by_document=False) > 0.15


def test_a_real_difference_is_found():
    assert found_real((RATE, 0.7 * RATE)) > 0.9


def test_pairing_is_sharper_than_two_separate_intervals():
    a, b, documents = simulate(0, rates=(RATE, 0.7 * RATE))
    first, second = bootstrap_interval(a, documents), bootstrap_interval(b, documents)
    assert second.high > first.low  # they overlap,
    comparison = paired_bootstrap(a, b, documents)
    assert comparison.real  # and yet every hard document is hard for both
    assert comparison.interval.high < 0


def test_comparison_speaks():
    a, b, documents = simulate(1, rates=(RATE, RATE / 2))
    better = paired_bootstrap(a, b, documents, names=("old", "new"))
    assert better.difference == total(b).rate - total(a).rate
    assert better.difference in better.interval
    assert better.p_value == 2 / 2001  # no resample goes the other way: the smallest value there is
    assert better.verdict.startswith("new is better than old: new minus old is -")
    assert "95 % interval -" in better.verdict
    assert json.loads(json.dumps(asdict(better)))["real"] is True  # plain numbers, ready for a report
    worse = paired_bootstrap(b, a, documents, names=("old", "new"))
    assert worse.verdict.startswith("old is better than new: new minus old is +")
    assert worse.interval == Interval(pytest.approx(-better.interval.high), pytest.approx(-better.interval.low))

    same = paired_bootstrap(a, a, documents)
    assert (same.difference, same.interval, same.p_value, same.real) == (0, Interval(0, 0), 1, False)
    assert same.verdict.startswith("No real difference shown: B minus A is +0.00 points")


@pytest.mark.parametrize("samples", [1, 38, 39, 40, 79, 200, 801])
def test_a_real_difference_leaves_zero_out(samples):
    """The p-value and the interval never contradict each other, also where the difference is borderline."""
    real = 0
    for seed in range(60):
        a, b, documents = simulate(seed, documents=12, rates=(RATE, 0.8 * RATE))
        comparison = paired_bootstrap(a, b, documents, samples=samples, seed=seed)
        assert not (comparison.real and 0 in comparison.interval)
        real += comparison.real
    assert (real > 0) == (samples >= 39)  # p = 2 / (samples + 1) is the least there is


def test_the_seed_decides_and_nothing_else(monkeypatch):
    edits, documents = simulate(3)
    first = bootstrap_interval(edits, documents)
    assert first == bootstrap_interval(edits, documents)
    assert first != bootstrap_interval(edits, documents, seed=1)
    assert first == bootstrap_interval(edits, [f"page {d}" for d in documents])
    monkeypatch.setattr(intervals, "_CELLS", 1000)  # drawn in many small blocks
    assert first == bootstrap_interval(edits, documents)


def test_interval_holds_the_rate_and_widens_with_the_level():
    edits, documents = simulate(4)
    wide, narrow = bootstrap_interval(edits, documents, level=0.99), bootstrap_interval(edits, documents, level=0.5)
    assert wide.low < narrow.low < total(edits).rate < narrow.high < wide.high


def test_interval_is_that_of_resampled_corpora():
    """The sums by cluster stand for whole corpora put together from drawn documents."""
    edits, documents = simulate(5, documents=15)
    rng = np.random.default_rng(9)
    rates = [total(e for d in rng.integers(15, size=15) for e in edits[6 * d : 6 * d + 6]).rate for _ in range(3000)]
    ours = bootstrap_interval(edits, documents, samples=20000)
    assert [ours.low, ours.high] == pytest.approx(np.quantile(rates, [0.025, 0.975]), abs=0.003)


def test_lines_of_no_known_document_stand_alone():
    edits, _ = simulate(6)
    assert bootstrap_interval(edits, [None] * len(edits)) == bootstrap_interval(edits)
    assert bootstrap_interval(edits, ["one"] * 60 + [None] * (len(edits) - 60)) != bootstrap_interval(edits)


@pytest.mark.parametrize(
    ("edits", "documents"),
    [
        ([], None),
        ([Edits(1, 0, 0, 10)], None),
        ([Edits(1, 0, 0, 10), Edits(2, 0, 0, 10)], ["one", "one"]),
        ([Edits(1, 0, 0, 10), Edits(0, 0, 3, 0)], None),  # only one line has a reference
        ([Edits(0, 0, 1, 0), Edits(0, 0, 3, 0)], None),
    ],
)
def test_one_document_allows_no_interval(edits, documents):
    assert not bootstrap_interval(edits, documents).possible
    comparison = paired_bootstrap(edits, [Edits(length=e.length) for e in edits], documents)
    assert not comparison.interval.possible
    assert not comparison.real
    assert math.isnan(comparison.p_value)
    assert "cannot be compared" in comparison.verdict


def test_empty_references_count_their_insertions():
    edits = [Edits(1, 0, 0, 10), Edits(2, 0, 0, 10), Edits(0, 0, 4, 0)]
    interval = bootstrap_interval(edits)
    assert interval.possible
    assert interval.high > total(edits).rate  # a resample of line 3, 3, 1 has nine errors in ten characters
    assert math.isfinite(interval.high)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": ["a"]}, "2 lines but 1 clusters"),
        ({"level": 95}, "between 0 and 1"),
        ({"samples": 0}, "at least one sample"),
    ],
)
def test_wrong_use_is_named(options, message):
    lines = [Edits(1, 0, 0, 10), Edits(0, 0, 0, 10)]
    with pytest.raises(SpikeHTRError, match=message):
        bootstrap_interval(lines, **options)
    with pytest.raises(SpikeHTRError, match=message):
        paired_bootstrap(lines, lines, **options)


@pytest.mark.parametrize("other", [[Edits(length=10)], [Edits(length=10), Edits(length=11)]])
def test_only_the_same_lines_can_be_compared(other):
    with pytest.raises(SpikeHTRError, match="different reference lengths"):
        paired_bootstrap([Edits(length=10), Edits(length=10)], other)


@pytest.mark.parametrize(("documents", "real"), [(2, False), (5, False), (6, True), (12, True)])
def test_few_documents_cannot_be_sure(documents, real):
    """However alike they are: a test of signs on n of them gives 2 / 2^n at the least."""
    clusters = [number % documents for number in range(60)]
    worse, better = [Edits(3, length=10)] * 60, [Edits(1, length=10)] * 60
    found = paired_bootstrap(worse, better, clusters)
    assert found.p_value == pytest.approx(max(2.0 ** (1 - documents), 2 / 2001))
    assert found.real is real
