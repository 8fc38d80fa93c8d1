"""How sure an error rate is, and whether two systems really differ: the bootstrap over documents or lines.

Lines of one document share their hand, ink and paper, so they are wrong together; drawing single lines would take them
for independent and give intervals that are too narrow. Whole documents (clusters) are drawn where they are known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rates import Edits, total

LEVEL, SAMPLES = 0.95, 2000
FEW = 20  # clusters: with fewer, percentile intervals are clearly too narrow (see `bootstrap_interval`)
_CELLS = 4_000_000  # clusters drawn at a time: 32 MB a block, whatever the corpus


@dataclass(frozen=True)
class Interval:
    """A confidence interval; both ends are nan where none is possible."""

    low: float
    high: float

    @property
    def possible(self) -> bool:
        return not math.isnan(self.low)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Comparison:
    """System b against system a on the same lines: `difference` is b's error rate minus a's, negative if b is better.

    `real` means p <= 1 - level; the interval then leaves out 0. `verdict` says the same in a sentence.
    """

    difference: float
    interval: Interval
    p_value: float
    real: bool
    verdict: str


def bootstrap_interval(
    edits: Sequence[Edits],
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """The percentile bootstrap interval of the corpus rate `total(edits).rate`.

    `clusters` gives each line's document; a line with None, or every line without `clusters`, stands on its own.
    With a single cluster nothing is known about how documents differ, so no interval is possible (nan, nan): falling
    back on its lines would answer another question. With few clusters intervals come out too narrow:
    on simulated corpora 95 % intervals held the truth in about 91 % of cases at 20 clusters and 87 % at 10.
    """
    sums = _cluster_sums([(e.errors, e.length) for e in edits], 2, clusters)
    return _percentiles(_resampled_rates(sums, samples, seed)[:, 0], level)


def paired_bootstrap(
    a: Sequence[Edits],
    b: Sequence[Edits],
    clusters: Sequence[Hashable] | None = None,
    level: float = LEVEL,
    samples: int = SAMPLES,
    seed: int = 0,
    names: tuple[str, str] = ("A", "B"),
) -> Comparison:
    """Compare two systems on the same lines, each resample drawn for both; clusters as in `bootstrap_interval`.

    The p-value is two-sided: twice the smaller share of resamples in which the difference is at most or at least 0,
    each count and their number raised by one, so that it is never 0. Nor is it below 2 / 2^n of n clusters, which a
    test of signs can give at the least: so few resamples of two or three documents differ that they seem sure of it.
    """
    if [e.length for e in a] != [e.length for e in b]:
        raise SpikeHTRError(
            "the two systems have different reference lengths: score both on the same lines, with the same tokens"
        )
    rows = [(x.errors, y.errors, x.length) for x, y in zip(a, b, strict=True)]
    sums = _cluster_sums(rows, 3, clusters)
    rates = _resampled_rates(sums, samples, seed)
    differences = rates[:, 1] - rates[:, 0]
    interval = _percentiles(differences, level)
    # nan without references at all, where both rates may be infinite
    difference = total(b).rate - total(a).rate if sums[:, -1].any() else math.nan
    p_value = math.nan
    if interval.possible:
        tail = int(min((differences <= 0).sum(), (differences >= 0).sum()))
        least = 2.0 ** (1 - int(np.count_nonzero(sums[:, -1])))
        p_value = min(1.0, max(least, 2 * (tail + 1) / (len(differences) + 1)))
    real = p_value <= round(1 - level, 9)  # 1 - 0.95 is a little more than 0.05, 1 - 0.9 a little less than 0.1
    return Comparison(difference, interval, p_value, real, _verdict(difference, interval, p_value, real, level, names))


def _cluster_sums(
    rows: Sequence[tuple[int, ...]], columns: int, clusters: Sequence[Hashable] | None
) -> NDArray[np.float64]:
    """Rows of counts added up by cluster: [lines, columns] -> [clusters, columns], in order of first appearance."""
    counts = np.array(rows, dtype=np.float64).reshape(-1, columns)  # whole numbers, exact; float for fast products
    if clusters is None:
        return counts
    if len(clusters) != len(rows):
        raise SpikeHTRError(f"{len(rows)} lines but {len(clusters)} clusters: give one for each line")
    index: dict[Hashable, int] = {}
    # A line of no known document gets a key that no document can have.
    where = [index.setdefault(object() if c is None else c, len(index)) for c in clusters]
    sums = np.zeros((len(index), columns))
    np.add.at(sums, where, counts)
    return sums


def _resampled_rates(sums: NDArray[np.float64], samples: int, seed: int) -> NDArray[np.float64]:
    """Rates when as many clusters as there are get drawn with replacement: [clusters, n + 1] -> [samples, n].

    The last column is the reference length, the n before it errors. Resamples that hold no reference have no rate and
    are left out; with fewer than two clusters that have a reference none is drawn.
    """
    if samples < 1:
        raise SpikeHTRError(f"the bootstrap needs at least one sample, not {samples}")
    if np.count_nonzero(sums[:, -1]) < 2:
        return np.zeros((0, sums.shape[1] - 1))
    count = len(sums)
    rng = np.random.default_rng(seed)
    totals = np.zeros((samples, sums.shape[1]))
    step = max(1, _CELLS // count)
    for start in range(0, samples, step):
        block = min(step, samples - start)
        drawn = rng.integers(count, size=(block, count))
        drawn += np.arange(block)[:, None] * count  # one bincount then counts for every resample of the block
        times = np.bincount(drawn.ravel(), minlength=block * count).reshape(block, count)
        totals[start : start + block] = times @ sums
    totals = totals[totals[:, -1] > 0]
    return totals[:, :-1] / totals[:, -1:]


def _percentiles(values: NDArray[np.float64], level: float) -> Interval:
    if not 0 < level < 1:
        raise SpikeHTRError(f"the level of an interval lies between 0 and 1 (0.95, say), not {level}")
    if not len(values):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _verdict(
    difference: float, interval: Interval, p_value: float, real: bool, level: float, names: tuple[str, str]
) -> str:
    a, b = names
    if not interval.possible:
        return f"{a} and {b} cannot be compared: at least two documents (or lines) with a reference are needed."
    evidence = (
        f"({100 * level:g} % interval {100 * interval.low:+.2f} to {100 * interval.high:+.2f}, p = {p_value:.2g})"
    )
    if not real:
        return f"No real difference shown: {b} minus {a} is {100 * difference:+.2f} points {evidence}."
    better, worse = (b, a) if difference < 0 else (a, b)
    return f"{better} is better than {worse}: {b} minus {a} is {100 * difference:+.2f} points {evidence}."
