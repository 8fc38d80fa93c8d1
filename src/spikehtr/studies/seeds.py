"""How sure a mean over seeds is. Two seeds alone say little about their spread; all variants of a study together say
more, so the variance between seeds is pooled over them, and Student's t counts its degrees of freedom.

Error rates differ from seed to seed in proportion to what they are, so it is the variance of their logarithms, and an
interval reaches as many times up as down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

LEVEL = 0.95
_LEAST = 1e-4  # rates below count as this one: no error at all has no logarithm
_MOST = 50.0  # of a reach: an exponential has an end


class Spread(NamedTuple):
    """The standard deviation of the logarithm between seeds, and the degrees of freedom it was found with."""

    deviation: float
    freedom: int

    @property
    def reach(self) -> float:
        """Half the width of a 95 % interval for the logarithm of a single value."""
        return t_quantile(self.freedom) * self.deviation


@cache
def t_quantile(freedom: int, level: float = LEVEL) -> float:
    """The value that Student's t stays below, either way, with probability `level`; by integrating its density."""
    # With x = sqrt(n) tan(a) the density becomes cos(a)^(n - 1) on a finite interval.
    angles = np.linspace(0, math.pi / 2, 200_001)
    density = np.cos(angles) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(level, area / area[-1], angles)))


def pooled(groups: Sequence[Sequence[float]]) -> Spread | None:
    """The spread within groups of rates by seed, in proportion alike in all; None where no group has two."""
    freedom = sum(len(values) - 1 for values in groups if values)
    if freedom < 1:
        return None
    squares = sum(float(np.var(_logarithms(values))) * len(values) for values in groups if values)
    return Spread(math.sqrt(squares / freedom), freedom)


def mean_interval(values: Sequence[float], spread: Spread) -> tuple[float, float]:
    """It ends at 1, the rate of a network that reads nothing, or at the highest rate where that is higher."""
    middle, times = _mean(values), math.exp(min(spread.reach / math.sqrt(len(values)), _MOST))
    return middle / times, min(middle * times, max(*values, middle, 1.0))


def difference_interval(a: Sequence[float], b: Sequence[float], spread: Spread) -> tuple[float, float]:
    """Of b's mean minus a's, from how far each mean's own interval reaches (Zou and Donner's method)."""
    difference = _mean(b) - _mean(a)
    (low_a, high_a), (low_b, high_b) = (mean_interval(values, spread) for values in (a, b))
    down, up = math.hypot(_mean(b) - low_b, high_a - _mean(a)), math.hypot(high_b - _mean(b), _mean(a) - low_a)
    return difference - down, difference + up


def _mean(rates: Sequence[float]) -> float:
    return max(float(np.mean(rates)), _LEAST)


def _logarithms(rates: Sequence[float]) -> list[float]:
    return [math.log(max(rate, _LEAST)) for rate in rates]
