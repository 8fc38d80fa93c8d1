"""Fitting `ErrorEstimate` on hands that a model has not seen, and how right it is on those it was not fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spikehtr.errors import SpikeHTRError
from spikehtr.results.expected_error import ErrorEstimate, UnsureCount, log_odds

PAGE = 20  # lines: about a page, for which estimates are made
_STIFFNESS = 0.3  # keeps the slope near 1 where few pages say what it is


class ReadLine(NamedTuple):
    """A line whose text is known."""

    confidences: Sequence[float]  # of the characters read
    edits: int  # between what was read and what stands there
    characters: int  # that stand there


class Judged(NamedTuple):
    """An estimate for a set that it was not fitted on, and the truth."""

    expected: float
    true: float


def fit(sets: Mapping[str, Sequence[ReadLine]]) -> ErrorEstimate:
    """By least squares of log-odds over pages; each set counts by the square root of its pages."""
    x, y, weights = [], [], []
    for lines in sets.values():
        pages = list(_pages(lines))
        for page in pages:
            x.append(log_odds(UnsureCount.of(_confidences(page)).share))
            y.append(log_odds(error_rate(page)))
            weights.append(len(pages) ** -0.5)
    if not x:
        raise SpikeHTRError(f"no set has {PAGE // 2} lines or more to fit the expected error on: name larger sets")
    given, wanted, by = np.array(x), np.array(y) - np.array(x), np.array(weights)
    rows = np.stack([given, np.ones(len(given))], 1)
    normal = (rows * by[:, None]).T @ rows + np.diag([_STIFFNESS, 0.0])
    slope, bias = np.linalg.solve(normal, (rows * by[:, None]).T @ wanted)
    return ErrorEstimate(float(slope) + 1, float(bias))


def leave_one_out(sets: Mapping[str, Sequence[ReadLine]]) -> dict[str, Judged]:
    """Each set by an estimate that was fitted on the others."""
    out = {}
    for name, lines in sets.items():
        estimate = fit({other: rest for other, rest in sets.items() if other != name})
        out[name] = Judged(estimate.of_share(UnsureCount.of(_confidences(lines)).share), error_rate(lines))
    return out


def error_rate(lines: Iterable[ReadLine]) -> float:
    known = list(lines)
    return sum(line.edits for line in known) / max(1, sum(line.characters for line in known))


def _confidences(lines: Iterable[ReadLine]) -> list[float]:
    return [confidence for line in lines for confidence in line.confidences]


def _pages(lines: Sequence[ReadLine]) -> Iterable[Sequence[ReadLine]]:
    """So many lines together as a page has; what is left over, if it is half of that."""
    for start in range(0, len(lines), PAGE):
        page = lines[start : start + PAGE]
        if len(page) >= PAGE // 2:
            yield page
