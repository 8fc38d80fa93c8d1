"""A study's results without any line's text: small, and fit to be published where the lines are not.

`FOLDER/DATA/runs.json` has the lines that were read (set, id, document, characters, words) and of each finished run its
settings, what the tables tell of it and how many errors it made on each line: all that tables and paired tests are made
of. Runs of several folders and days come together there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spikehtr.config.retired import config_of_file
from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder, read_json, whole_file
from spikehtr.studies.study_plan import RESULT, STUDY, StudyPlan, Task, asked_together
from spikehtr.studies.study_runs import KEPT, RATE, SplitResult, finished_run

_SHOWN = ("keep_ratio", "lines_per_second", "resampled", "units", "too_few")  # what tables tell of a reading


def keep(plan: StudyPlan, folder: Path) -> int:
    """Put the finished runs of a study into `folder`, in place of those of the same variant and seed; their number.

    What is there already must be of the same study: the same settings of each variant, the same budget, the same lines.
    """
    if not any(plan.folder.glob(f"*/*/*/{RESULT}")):
        raise SpikeHTRError(f"{plan.folder} has no finished run to keep")
    merged = check_target(plan, folder)
    kept = {data: _with_runs(plan, merged, data) for data in plan.data}
    for data in kept:
        make_folder(folder / data)
        _write(folder / data / KEPT, kept[data][0])
    merged.note()
    return sum(number for _, number in kept.values())


def holds_kept(folder: Path) -> bool:
    return any(folder.glob(f"*/{KEPT}"))


def check_target(plan: StudyPlan, folder: Path) -> StudyPlan:
    """The plan of both together, where `folder` can take these results; else an error, before any work is done.

    Where lines and models lay is nobody's business.
    """
    start = Path(plan.start.name) if plan.start else None
    merged = replace(
        plan, folder=folder, data={name: name for name in plan.data}, start=start, command=_placeless(plan.command)
    )
    if folder.resolve() == plan.folder.resolve():
        raise SpikeHTRError(f"{folder} is where the study is trained: name another folder to keep results in")
    if not (folder / STUDY).is_file():
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise SpikeHTRError(
                f"{folder} holds other things than a study's results: name a new folder to keep them in"
            )
        return merged
    if not holds_kept(folder):
        raise SpikeHTRError(f"{folder} is where a study was trained: name another folder to keep results in")
    before = StudyPlan.read(folder)
    merged.check_like(before, but=("study", "data", "seeds", "command", "only"))
    if before.study.name != plan.study.name:
        raise SpikeHTRError(f"{folder} holds the study {before.study.name}, not {plan.study.name}")
    for data in before.data:
        file = folder / data / KEPT
        _check_settings(plan, _kept(file)[1], file)
    asked = asked_together(before.only, plan.only)
    return replace(merged, data=before.data | merged.data, seeds=max(before.seeds, plan.seeds), only=asked)


def _kept(file: Path) -> tuple[dict[str, Any], dict[tuple[str, int], dict[str, Any]]]:
    """What a file holds: its lines by split, its runs by variant and seed."""
    values = read_json(file) or {"lines": {}, "runs": []}
    return values["lines"], {(run["facts"]["variant"], run["facts"]["seed"]): run for run in values["runs"]}


def _with_runs(plan: StudyPlan, merged: StudyPlan, data: str) -> tuple[dict[str, Any], int]:
    """What is kept of a data set, with the plan's runs; and their number."""
    file = merged.folder / data / KEPT
    lines, runs = _kept(file)
    new: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted((plan.folder / data).glob(f"*/*/{RESULT}")):
        task = Task.read(path.parent)
        run = finished_run(path.parent, task.seed)
        assert run is not None
        for split, reading in run.readings.items():
            if lines.setdefault(split, _lines(reading)) != _lines(reading):
                raise SpikeHTRError(f"{path.parent}: read other {split} lines than the runs in {file}")
        new[task.variant, task.seed] = {
            "facts": run.facts,
            "made": run.made | {"command": " ".join(_placeless(run.made.get("command", "").split(" ")))},
            "config": task.config.to_dict(),
            "readings": {split: _counted(reading) for split, reading in run.readings.items()},
        }
    _check_settings(plan, new, plan.folder)
    runs |= new
    order = [variant.name for variant in merged.study.variants]
    ordered = [runs[key] for key in sorted(runs, key=lambda key: (order.index(key[0]), key[1]))]
    return {"lines": lines, "runs": ordered}, len(new)


def _check_settings(plan: StudyPlan, runs: dict[tuple[str, int], dict[str, Any]], file: Path) -> None:
    """A row that means another network than it did would say something untrue of its runs."""
    model, known = plan.model(), {variant.name for variant in plan.study.variants}
    for (variant, seed), run in runs.items():
        if variant not in known:
            raise SpikeHTRError(f"{file} holds runs of {variant}, which {plan.study.name} no longer has")
        now = plan.study.config(plan.study.variant(variant), plan.preset, plan.overrides, plan.epochs, seed, model)
        if config_of_file(run["config"], str(file)) != now:
            raise SpikeHTRError(
                f"{file}: {variant}, seed {seed}, was trained with other settings than {plan.study.name} has now: "
                "keep these results in another folder"
            )


def _placeless(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command, of paths the last part alone."""
    return tuple(word.rsplit("/", 1)[-1] or word for word in (part.rstrip("/") for part in command))


def _lines(reading: SplitResult) -> list[list[Any]]:
    return [
        [line.set, line.id, line.document, *(edits.length for edits in line.edits.values())]
        for line in reading.lines.values()
    ]


def _counted(reading: SplitResult) -> dict[str, Any]:
    rates = {name: reading.values["rates"][name] for name in RATE.values()}
    errors = {metric: [line.edits[metric].errors for line in reading.lines.values()] for metric in RATE}
    return {name: reading.values[name] for name in _SHOWN} | {"rates": rates, "errors": errors}


def _write(path: Path, values: dict[str, Any]) -> None:
    """A split's lines, and a run, to each line of the file, so that a new run is a new line."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    lines = ",\n".join(f"{text(split)}:{text(lines)}" for split, lines in values["lines"].items())
    runs = ",\n".join(text(run) for run in values["runs"])
    with whole_file(path) as temporary:
        temporary.write_text(f'{{"lines":{{\n{lines}\n}},\n"runs":[\n{runs}\n]}}\n', encoding="utf-8")
