"""Which of the paper's orderings hold here: differences between rows, how sure they are, the paper's beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from spikehtr.evaluation.intervals import paired_bootstrap
from spikehtr.evaluation.rates import finite
from spikehtr.evaluation.summary import clusters_of
from spikehtr.studies.seeds import difference_interval
from spikehtr.studies.study_overlay import Metric, Study, Variant
from spikehtr.studies.study_runs import SPLITS, Block, StudyRow


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
    wanted = product(study.comparisons, study.metrics)
    return list(_possible(_compare(study, block, block.row(a), block.row(b), metric) for (a, b), metric in wanted))


def pairs(study: Study, block: Block) -> list[Ordering]:
    """Each of the study's pairs line by line, whatever the number of seeds: which of the two reads better."""
    if study.pair is None:
        return []
    wanted = product(study.pair.each, study.pair.others, SPLITS, study.metrics)
    found = (_line_by_line(study, block.row(b), block.row(a), split, metric) for a, b, split, metric in wanted)
    return list(_possible(found))


def _possible(found: Iterator[Ordering | None]) -> Iterator[Ordering]:
    return (ordering for ordering in found if ordering is not None)


def _compare(study: Study, block: Block, a: StudyRow, b: StudyRow, metric: Metric) -> Ordering | None:
    """Over seeds, where their spread is known for both rows; else line by line."""
    split = study.paper.split
    ours, theirs = a.values(split, metric), b.values(split, metric)
    if not ours or not theirs:
        return None
    spread = block.spread(split, metric, a)
    if spread is None or a.variant.at != b.variant.at or not block.comparable(split, a, b):
        return _line_by_line(study, a, b, split, metric)
    difference = sum(theirs) / len(theirs) - sum(ours) / len(ours)
    return _ordering(study, a, b, split, metric, difference, difference_interval(ours, theirs, spread), None)


def _line_by_line(study: Study, a: StudyRow, b: StudyRow, split: str, metric: Metric) -> Ordering | None:
    """On the lines that both read, with the seeds that both have."""
    seeds = a.seeds(split) & b.seeds(split)
    if not seeds:
        return None
    ours, theirs = a.lines(split, metric, seeds), b.lines(split, metric, seeds)
    common = [key for key in ours if key in theirs]
    if not common:
        return None
    edits = [[lines[key][1] for key in common] for lines in (ours, theirs)]
    result = paired_bootstrap(edits[0], edits[1], clusters_of([ours[key][0] for key in common]))
    interval = (result.interval.low, result.interval.high) if result.interval.possible else None
    return _ordering(study, a, b, split, metric, result.difference, interval, finite(result.p_value))


def _ordering(
    study: Study,
    a: StudyRow,
    b: StudyRow,
    split: str,
    metric: Metric,
    difference: float,
    interval: tuple[float, float] | None,
    p_value: float | None,
) -> Ordering:
    bounds = None if interval is None else (100 * interval[0], 100 * interval[1])
    published = _published(study, a.variant, b.variant, metric) if split == study.paper.split else []
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
    try:
        return float(cell.split("/")[0 if metric == "cer" else 1])
    except (IndexError, ValueError):
        return None


def judge(interval: tuple[float, float] | None, published: Sequence[float], p_value: float | None = None) -> str:
    """What our difference says about the paper's ordering. Interval and p-value, where there is one, must agree that it
    is real: on a handful of lines a bootstrap's interval is too narrow."""
    if interval is None:
        return "No interval is possible, so nothing can be said"
    sure = not interval[0] <= 0 <= interval[1] and (p_value is None or p_value <= 0.05)
    real = "A real difference" if sure else "Within noise"
    signs = {(d > 0) - (d < 0) for d in published} - {0}
    if not published:
        return real
    if len(signs) == 2:
        return f"{real}; the paper's data sets disagree among themselves"
    if not signs:
        return "Contradicted: the paper shows no difference" if sure else "Agrees: no difference shown, as in the paper"
    if not sure:
        return real
    return "Confirmed" if (1 if interval[0] > 0 else -1) in signs else "Contradicted"
