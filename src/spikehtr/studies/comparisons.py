"""Which of the paper's orderings hold here: differences between rows, how sure they are, the paper's beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from spikehtr.evaluation.intervals import paired_bootstrap
from spikehtr.evaluation.rates import finite
from spikehtr.evaluation.summary import clusters_of
from spikehtr.studies.seeds import difference_interval
from spikehtr.studies.study_overlay import Metric, Study, Variant
from spikehtr.studies.study_runs import Block, Row


@dataclass(frozen=True)
class Ordering:
    """Row b against row a: b's error rate minus a's, in points."""

    a: str
    b: str
    metric: Metric
    split: str
    difference: float
    interval: tuple[float, float] | None
    p_value: float | None  # of the paired bootstrap; None where the interval is over seeds
    published: list[float]  # the paper's differences, one a data set
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentence(self) -> str:
        bounds = "no interval" if self.interval is None else f"{self.interval[0]:+.2f} to {self.interval[1]:+.2f}"
        p = "" if self.p_value is None else f", p = {self.p_value:.2g}"
        paper = ", ".join(f"{d:+.2f}" for d in self.published) or "none"
        return (
            f"{self.b} against {self.a}, {self.split} {self.metric.upper()}: {self.difference:+.2f} points "
            f"({bounds}{p}); paper: {paper}. {self.verdict}."
        )


def orderings(study: Study, block: Block) -> list[Ordering]:
    """The study's comparisons that can be made, on the paper's split."""
    found = []
    for first, second in study.comparisons:
        for metric in study.metrics:
            ordering = _compare(study, block, block.row(first), block.row(second), metric)
            if ordering is not None:
                found.append(ordering)
    return found


def pairs(study: Study, block: Block) -> list[Ordering]:
    """Each of the study's pairs line by line, whatever the number of seeds: which of the two reads better."""
    if study.pair is None:
        return []
    found = []
    for one in study.pair.each:
        for other in study.pair.others:
            for split, metric in product(("validation", "test"), study.metrics):
                paired = _paired(block.row(other), block.row(one), split, metric)
                if paired is not None:
                    published = _published(study, block.row(other).variant, block.row(one).variant, metric)
                    shown = published if split == study.paper.split else []
                    found.append(_ordering(block.row(other), block.row(one), metric, split, *paired, shown))
    return found


def _compare(study: Study, block: Block, a: Row, b: Row, metric: Metric) -> Ordering | None:
    split = study.paper.split
    ours, theirs = a.values(split, metric), b.values(split, metric)
    if not ours or not theirs:
        return None
    published = _published(study, a.variant, b.variant, metric)
    spread = block.spread(split, metric, a)
    if spread is None or a.variant.at != b.variant.at or not block.comparable(split, a, b):
        paired = _paired(a, b, split, metric)
        return None if paired is None else _ordering(a, b, metric, split, *paired, published)
    difference = sum(theirs) / len(theirs) - sum(ours) / len(ours)
    return _ordering(a, b, metric, split, difference, difference_interval(ours, theirs, spread), None, published)


def _paired(
    a: Row, b: Row, split: str, metric: Metric
) -> tuple[float, tuple[float, float] | None, float | None] | None:
    """Difference, interval and p-value on the lines that both read, with the seeds that both have."""
    seeds = a.seeds(split) & b.seeds(split)
    if not seeds:
        return None
    keys, ours, lines = a.edits(split, metric, seeds)
    others, theirs, _ = b.edits(split, metric, seeds)
    where = {key: place for place, key in enumerate(others)}
    common = [(here, where[key]) for here, key in enumerate(keys) if key in where]
    if not common:
        return None
    result = paired_bootstrap(
        [ours[here] for here, _ in common],
        [theirs[there] for _, there in common],
        clusters_of([lines[here] for here, _ in common]),
    )
    interval = (result.interval.low, result.interval.high) if result.interval.possible else None
    return result.difference, interval, finite(result.p_value)


def _ordering(
    a: Row,
    b: Row,
    metric: Metric,
    split: str,
    difference: float,
    interval: tuple[float, float] | None,
    p_value: float | None,
    published: list[float],
) -> Ordering:
    bounds = None if interval is None else (100 * interval[0], 100 * interval[1])
    verdict = judge(bounds, published, p_value)
    return Ordering(
        a.variant.label, b.variant.label, metric, split, 100 * difference, bounds, p_value, published, verdict
    )


def _published(study: Study, a: Variant, b: Variant, metric: Metric) -> list[float]:
    """The paper's differences in points, for the data sets where it has both rows."""
    if not a.paper or not b.paper:
        return []
    places = [study.paper.columns.index(name) for name in study.paper.rates]
    both = [(number(a.paper[i], metric), number(b.paper[i], metric)) for i in places]
    return [round(y - x, 6) for x, y in both if x is not None and y is not None]


def number(cell: str, metric: Metric) -> float | None:
    """'4.31/16.42' is CER/WER, '4.31' CER alone, '--' nothing."""
    parts = cell.split("/")
    place = 0 if metric == "cer" else 1
    try:
        return float(parts[place])
    except (IndexError, ValueError):
        return None


def judge(interval: tuple[float, float] | None, published: Sequence[float], p_value: float | None = None) -> str:
    """What our difference says about the paper's ordering. Interval and p-value, where there is one, must agree that it
    is real: on a handful of lines a bootstrap's interval is too narrow."""
    if interval is None:
        return "No interval is possible, so nothing can be said"
    sure = not interval[0] <= 0 <= interval[1] and (p_value is None or p_value <= 0.05)
    ours = 1 if sure and interval[0] > 0 else -1 if sure else 0
    signs = {(d > 0) - (d < 0) for d in published} - {0}
    if not published:
        return "A real difference" if sure else "Within noise"
    if len(signs) == 2:
        return f"{'A real difference' if sure else 'Within noise'}; the paper's data sets disagree among themselves"
    if not signs:
        return "Contradicted: the paper shows no difference" if sure else "Agrees: no difference shown, as in the paper"
    if not sure:
        return "Within noise"
    return "Confirmed" if ours in signs else "Contradicted"
