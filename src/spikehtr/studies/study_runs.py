"""What the runs of a study left in their folders, gathered row by row. Needs no data, no model and no training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spikehtr.evaluation.rates import Edits, total
from spikehtr.evaluation.summary import MAIN
from spikehtr.files import read_json
from spikehtr.studies.seeds import Spread, mean_interval, pooled
from spikehtr.studies.study_overlay import Fact, Metric, Variant
from spikehtr.studies.study_plan import FAILED, RESULT, StudyPlan, run_folder

Key = tuple[str, str]  # a line's set, and its id there
SPLITS = ("validation", "test")
KEPT = "runs.json"  # in a data set's folder
_UNREAD = 0.5  # CER: a run that is above it has hardly begun to read
RATE: dict[Metric, str] = {"cer": "CER, plain", "wer": "WER, whitespace words"}
_EDITS = {metric: MAIN[name] for metric, name in RATE.items()}


class LineErrors(NamedTuple):
    """A line as a run has read it. Of which kind an error was is not told of runs from the archive."""

    set: str
    id: str
    document: str | None
    edits: dict[Metric, Edits]


@dataclass(frozen=True)
class SplitResult:
    """One run on one split, as `evaluate` wrote it, or as the archive keeps it: without any line's text."""

    values: dict[str, Any]
    kept: Sequence[Sequence[Any]] | None = None  # by the archive: set, id, document, and the length by each metric

    def rate(self, metric: Metric) -> float | None:
        rate: float | None = self.values["rates"][RATE[metric]]["rate"]
        return rate

    def interval(self, metric: Metric) -> tuple[float, float] | None:
        bounds = self.values["rates"][RATE[metric]]["interval"]
        return (bounds[0], bounds[1]) if bounds else None

    @cached_property
    def lines(self) -> dict[Key, LineErrors]:
        """By set and id, so that two models' can be matched."""
        if self.kept is None:
            found = [
                LineErrors(p["set"], p["id"], p["document"], {m: _EDITS[m](p["reference"], p["text"]) for m in RATE})
                for p in self.values["predictions"]
            ]
        else:
            errors = zip(*(self.values["errors"][metric] for metric in RATE), strict=True)
            found = [
                LineErrors(
                    of, name, document, {m: Edits(e, length=n) for m, e, n in zip(RATE, wrong, long, strict=True)}
                )
                for (of, name, document, *long), wrong in zip(self.kept, errors, strict=True)
            ]
        return {(line.set, line.id): line for line in found}


@dataclass(frozen=True)
class StudyRun:
    """One finished seed."""

    seed: int
    facts: dict[str, Any]
    readings: dict[str, SplitResult]  # by split
    made: dict[str, Any] = field(default_factory=dict)  # what it was trained with


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, as a share, and its 95 % interval where one is known."""

    mean: float
    interval: tuple[float, float] | None
    values: list[float]  # by seed


@dataclass(frozen=True)
class StudyRow:
    """A variant on one data set."""

    variant: Variant
    runs: list[StudyRun]
    why: str  # there is no run
    asked: bool = True  # or others were, by --only

    @property
    def shown(self) -> bool:
        return self.asked or bool(self.runs)

    def values(self, split: str, metric: Metric) -> list[float]:
        found = (run.readings[split].rate(metric) for run in self.runs if split in run.readings)
        return [value for value in found if value is not None]

    def reads(self, split: str) -> bool:
        """Whether every seed has learned to read: one that has not says nothing about the spread of those that have."""
        return all(value <= _UNREAD for value in self.values(split, "cer"))

    def fact(self, name: Fact) -> float | None:
        """The mean over seeds."""
        if name in ("r", "speed"):
            key = {"r": "keep_ratio", "speed": "lines_per_second"}[name]
            found = [run.readings["validation"].values[key] for run in self.runs if "validation" in run.readings]
        else:
            found = [run.facts["firing_rate" if name == "firing" else name] for run in self.runs]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else None

    def seeds(self, split: str) -> set[int]:
        """Those that have read the split."""
        return {run.seed for run in self.runs if split in run.readings}

    def lines(self, split: str, metric: Metric, seeds: set[int]) -> dict[Key, tuple[LineErrors, Edits]]:
        """Lines that each of these seeds read, with their edits summed over seeds."""
        first, *others = (run.readings[split].lines for run in self.runs if run.seed in seeds)
        return {
            key: (line, total(one[key].edits[metric] for one in (first, *others)))
            for key, line in first.items()
            if all(key in other for other in others)
        }


@dataclass(frozen=True)
class Block:
    """All rows of one data set."""

    data: str
    rows: list[StudyRow]

    def row(self, name: str) -> StudyRow:
        return next(row for row in self.rows if row.variant.name == name)

    def spread(self, split: str, metric: Metric, like: StudyRow | None = None) -> Spread | None:
        """Over seeds, in proportion, pooled over the rows that are alike."""
        return pooled([row.values(split, metric) for row in self._alike(split, like)])

    def _alike(self, split: str, like: StudyRow | None = None) -> list[StudyRow]:
        """The rows that were trained and have learned to read, or all where none has; along an axis those at the same
        place as `like`."""
        rows = [row for row in self.rows if row.variant.begin != "as-is" and row.values(split, "cer")]
        if like is not None and like.variant.at is not None:
            rows = [row for row in rows if row.variant.at == like.variant.at]
        return [row for row in rows if row.reads(split)] or rows

    def comparable(self, split: str, *rows: StudyRow) -> bool:
        """Whether the spread over seeds is these rows' too: not where others read and they do not."""
        return all(any(row is other for other in self._alike(split, row)) for row in rows)

    def estimate(self, row: StudyRow, split: str, metric: Metric) -> Estimate | None:
        """Over seeds where any row has two, else by the run's own bootstrap."""
        values = row.values(split, metric)
        if not values:
            return None
        spread = self.spread(split, metric, row)
        seeded = row.variant.begin != "as-is"  # that is one model, read again with each seed
        if seeded and (spread is not None or len(values) > 1):
            interval = mean_interval(values, spread) if spread and self.comparable(split, row) else None
            return Estimate(float(np.mean(values)), interval, values)
        reading = next(run.readings[split] for run in row.runs if split in run.readings)
        return Estimate(values[0], reading.interval(metric), values)

    def how(self, split: str) -> str:
        """How this block's intervals were made, in a sentence."""
        spread = self.spread(split, "cer")
        if spread is not None:
            most = max(len(row.runs) for row in self.rows)
            pool = f"variants ({spread.freedom} degree{'s' if spread.freedom > 1 else ''} of freedom, Student's t)"
            if any(row.variant.at is not None for row in self.rows):
                pool = "variants at the same place (Student's t)"
            behind = [row.variant.label for row in self.rows if not row.reads(split) and row.variant.begin != "as-is"]
            without = f"; not all runs of {', '.join(behind)} learned to read" if behind else ""
            return (
                f"95 % intervals over {most} seeds; their standard deviation, in proportion, is pooled over the "
                f"{pool}; what other lines would change is not in them{without}"
            )
        reading = next((run.readings[split] for row in self.rows for run in row.runs if split in run.readings), None)
        if reading is None:
            read = any(row.runs for row in self.rows)
            return f"the data set has no {split} lines" if read else "no run has been finished"
        few = ", too few for exact intervals" if reading.values["too_few"] else ""
        return (
            f"95 % intervals by bootstrap over the {reading.values['units']} {reading.values['resampled']}{few}, of "
            "one seed: what another seed would change is not in them"
        )


def gather(plan: StudyPlan) -> list[Block]:
    """A block for each data set, with every row of the overlay."""
    return [_block(plan, data) for data in plan.data]


def _block(plan: StudyPlan, data: str) -> Block:
    kept = kept_runs(plan.folder / data / KEPT)
    return Block(data, [_row(plan, data, variant, why, kept) for variant, why in plan.variants()])


def _row(plan: StudyPlan, data: str, variant: Variant, why: str, kept: Mapping[tuple[str, int], StudyRun]) -> StudyRow:
    folders = [run_folder(plan.folder, data, variant.name, seed) for seed in range(plan.seeds)]
    found = [finished_run(folder, seed) or kept.get((variant.name, seed)) for seed, folder in enumerate(folders)]
    if runs := [run for run in found if run is not None]:
        return StudyRow(variant, runs, "")
    failed = _reason(folders)
    asked = not plan.only or variant.name in plan.only or bool(failed)
    return StudyRow(variant, [], why if variant.why else failed or why or "not run yet", asked)


def finished_run(folder: Path, seed: int) -> StudyRun | None:
    facts = read_json(folder / RESULT)
    if facts is None:
        return None
    read = {split: read_json(folder / split / "evaluation.json") for split in SPLITS}
    made = read_json(folder / "environment.json") or {}
    return StudyRun(seed, facts, {split: SplitResult(values) for split, values in read.items() if values}, made)


def kept_runs(file: Path) -> dict[tuple[str, int], StudyRun]:
    """By variant and seed; none where nothing is kept."""
    values = read_json(file) or {"lines": {}, "runs": []}
    found = {}
    for run in values["runs"]:
        facts = run["facts"]
        readings = {split: SplitResult(read, values["lines"][split]) for split, read in run["readings"].items()}
        found[facts["variant"], facts["seed"]] = StudyRun(facts["seed"], facts, readings, run["made"])
    return found


def _reason(folders: Sequence[Path]) -> str:
    failed = [folder / FAILED for folder in folders if (folder / FAILED).is_file()]
    return f"failed: {failed[0].read_text(encoding='utf-8').strip()}" if failed else ""
