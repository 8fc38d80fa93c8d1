"""A study's work: one training for each data set, variant and seed, each in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import short_names
from spikehtr.files import make_folder, read_json, write_json
from spikehtr.studies.study_overlay import Study, Variant

STUDY, TASK, RESULT, FAILED, LOG = "study.json", "task.json", "result.json", "error.txt", "run.log"
STOPPED = 3  # exit code of a worker that was stopped and saved


@dataclass(frozen=True)
class Task:
    """One training and what it is measured by."""

    data: str  # short name
    source: str
    variant: str
    label: str
    seed: int  # counted from 0
    config: Config
    folder: Path
    max_minutes: float | None = None
    allow_unknown: bool = False
    command: tuple[str, ...] = ()  # what the user typed, for the run's papers
    start: str | None = None  # a model to go on from
    train: bool = True  # otherwise that model is read as it is

    @property
    def finished(self) -> bool:
        return (self.folder / RESULT).is_file()

    @property
    def title(self) -> str:
        return f"{self.data}, {self.label}, seed {self.seed}"

    def write(self) -> None:
        """Put the task into its folder; a folder that was begun with another task is an error."""
        # As settings, not as text: a field that is new since then has its default, which is what happened before it.
        if (self.folder / TASK).exists() and replace(Task.read(self.folder), command=self.command) != self:
            raise SpikeHTRError(f"{self.folder} was begun with other settings: use those, or name another folder")
        make_folder(self.folder)
        write_json(self.folder / TASK, self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "folder"}
        return values | {"config": self.config.to_dict()}

    @classmethod
    def read(cls, folder: Path) -> Task:
        values = read_json(folder / TASK)
        if values is None:
            raise SpikeHTRError(f"{folder}: no task here")
        config, command = Config.from_dict(values.pop("config")), tuple(values.pop("command"))
        return cls(folder=folder, config=config, command=command, **values)


@dataclass(frozen=True)
class StudyPlan:
    """A study as the user asked for it."""

    study: Study
    folder: Path
    data: dict[str, str]  # short name -> source
    preset: str | None = None
    overrides: tuple[str, ...] = ()
    budget: float | None = None  # minutes of training, each run
    epochs: int | None = None
    seeds: int = 1
    only: tuple[str, ...] = ()
    allow_unknown: bool = False
    command: tuple[str, ...] = ()
    start: Path | None = None  # the model that variants begin with

    def variants(self) -> Iterator[tuple[Variant, str]]:
        """Every variant, and why it does not run (empty where it does)."""
        for name in self.only:
            self.study.variant(name)
        for variant in self.study.variants:
            yield variant, self.study.left_out(variant, self.only, self.preset)

    def tasks(self) -> list[Task]:
        """Seeds outermost, so that a study that is stopped early has compared all variants once."""
        running = [variant for variant, why in self.variants() if not why]
        model = self.model()
        return [
            self._task(data, source, variant, seed, model)
            for seed in range(self.seeds)
            for data, source in self.data.items()
            for variant in running
        ]

    def model(self) -> Config | None:
        """The settings of the model that the study begins with, where it needs one."""
        if self.study.takes_model != (self.start is not None):
            what = "begins with a model: name it by" if self.study.takes_model else "trains from scratch: leave out"
            raise SpikeHTRError(f"{self.study.name} {what} --from")
        if self.start is None:
            return None
        if self.preset:
            raise SpikeHTRError("--from takes its settings from the model file: leave --preset out")
        from spikehtr.weights import load_model  # torch is loaded where it is needed

        return load_model(self.start).config

    def _task(self, data: str, source: str, variant: Variant, seed: int, model: Config | None) -> Task:
        return Task(
            data,
            source,
            variant.name,
            variant.label,
            seed,
            self.study.config(variant, self.preset, self.overrides, self.epochs, seed, model),
            run_folder(self.folder, data, variant.name, seed),
            self.budget,
            self.allow_unknown,
            self.command,
            None if variant.begin == "scratch" else str(self.start),
            variant.begin != "as-is",
        )

    def write(self) -> None:
        """Note the plan in the study's folder; one that holds another study, or other settings, is an error."""
        plan = self
        if (self.folder / STUDY).exists():
            before = StudyPlan.read(self.folder)
            self.check_like(before, but=("seeds", "command", "only"))
            plan = replace(self, seeds=max(self.seeds, before.seeds), only=asked_together(before.only, self.only))
        plan.note()

    def check_like(self, before: StudyPlan, but: Sequence[str]) -> None:
        """An error where what is in the folder was planned otherwise."""
        noted = before._noted()
        for name, value in self._noted().items():
            if name not in but and noted[name] != value:
                other = f"{name} is {noted[name]}, not {value}" if name != "study" else "variants are others"
                raise SpikeHTRError(
                    f"{self.folder} holds a study whose {other}: use the same settings to go on with it, or name "
                    "another folder"
                )

    def note(self) -> None:
        make_folder(self.folder)
        write_json(self.folder / STUDY, self._noted())

    def _noted(self) -> dict[str, Any]:
        """All but the folder, as JSON has it; in the file the overrides go by the name of their option, `set`."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "folder"}
        values |= {"study": self.study.model_dump(mode="json", by_alias=True), "set": values.pop("overrides")}
        values["start"] = str(self.start) if self.start else None
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def read(cls, folder: Path) -> StudyPlan:
        """The plan that was noted in a folder, with everything that has run there."""
        values = read_json(folder / STUDY)
        if values is None:
            raise SpikeHTRError(f"{folder}: no study here; run one into it first (leave --render out)")
        study, start = Study.model_validate(values.pop("study")), values.pop("start", None)
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        overrides = values.pop("set")
        return cls(study, folder, overrides=overrides, start=Path(start) if start else None, **values)


def asked_together(*asked: tuple[str, ...]) -> tuple[str, ...]:
    """The variants that several commands ask for; a command without `--only` asks for all, which is ()."""
    return tuple(dict.fromkeys(name for names in asked for name in names)) if all(asked) else ()


def run_folder(folder: Path, data: str, variant: str, seed: int) -> Path:
    return folder / data / variant / f"seed{seed}"


def name_data(sources: Sequence[str]) -> dict[str, str]:
    """A short name for each source, fit for a folder."""
    short = short_names(list(dict.fromkeys(sources)))
    named = {re.sub(r"[^\w.-]+", "_", name).strip("._") or "data": source for source, name in short.items()}
    if len(named) < len(short):
        raise SpikeHTRError(f"two of the data sets would be called the same: {', '.join(short.values())}")
    return named
