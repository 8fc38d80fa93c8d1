"""How well are hands read that training never saw? Whole sets are left out, two at a time, and read afterwards.

Every step is a `spikehtr` command of its own: those that are done are not done again, and trainings go on.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

from spikehtr.config import Config
from spikehtr.config.presets import FINE_TUNING
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rate_tables import columns
from spikehtr.files import make_folder, read_json, write_json
from spikehtr.training.checkpoint import has_checkpoint

Fold = tuple[str, ...]

RECIPES = ("real", "drawn", "plain")
FOLDS: tuple[Fold, ...] = (
    ("bronod", "cds-salm"),
    ("transcriboquest", "htrogene-it"),
    ("fondue-de18", "memorials-stanford"),
)
NOT_COUNTED = frozenset({"fondue-de18"})  # the one Kurrent: nothing like it is left to learn from
PLAN, BEST, REPORT, RATES = "unseen.json", "best.safetensors", "report.html", "evaluation.json"
_STORE, _BEFORE = "drawn.arrow", "before"


class Step(NamedTuple):
    """A command and the file that is there once it is done."""

    done: Path
    command: list[str]
    note: bool = False  # the command makes no file of its own, so that one is made; it may say that nothing was gained


class Chain(NamedTuple):
    """Steps that follow each other."""

    name: str
    steps: list[Step]
    drawn: bool = False  # only after the network has learned from drawn lines


@dataclass(frozen=True)
class UnseenPlan:
    """What is left out, and how the recipes train."""

    sets: Mapping[str, Path]
    output: Path
    folds: tuple[Fold, ...] = FOLDS
    preset: str = "swift"
    overrides: tuple[str, ...] = ()
    epochs: int = 20
    drawn: int = 300_000
    fonts: Path | None = None
    texts: tuple[Path, ...] = ()
    few: tuple[int, ...] = ()
    lm: bool = False
    seed: int = 0
    recipes: tuple[str, ...] = RECIPES[:2]
    left_out: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "left_out", frozenset(name for fold in self.folds for name in fold))
        if missing := sorted(self.left_out - set(self.sets)):
            raise SpikeHTRError(f"no set {', '.join(missing)} to leave out; there are {', '.join(self.sets)}")
        if not set(self.sets) - self.left_out:
            raise SpikeHTRError("every set is left out: none is left to draw lines like")
        if unknown := [name for name in self.recipes if name not in RECIPES]:
            raise SpikeHTRError(f"no recipe {', '.join(unknown)}: {', '.join(RECIPES)}")

    def check(self) -> None:
        """Writes what the folder is of; an error where it is of something else."""
        make_folder(self.output)
        mine = {
            "folds": [list(fold) for fold in self.folds],
            "sets": sorted(self.sets),
            "preset": self.preset,
            "set": list(self.overrides),
            "epochs": self.epochs,
            "drawn": self.drawn,
            "seed": self.seed,
        }
        file = self.output / PLAN
        before = read_json(file) or mine
        if other := [key for key in mine if before.get(key) != mine[key]]:
            raise SpikeHTRError(
                f"{self.output} has another {', '.join(other)} ({', '.join(str(before.get(key)) for key in other)}): "
                "name another folder, or ask for the same"
            )
        write_json(file, mine)

    def folder(self, fold: Fold) -> Path:
        return self.output / f"without-{'-'.join(fold)}"

    def chains(self) -> list[Chain]:
        """All there is to do; chains go on side by side."""
        found = []
        if set(self.recipes) - {"real"}:
            found.append(Chain("drawn lines", list(self._before())))
        for fold in self.folds:
            for recipe in self.recipes:
                name = f"without {', '.join(fold)}: {recipe}"
                found.append(Chain(name, list(self._steps(fold, recipe)), recipe != "real"))
        return found

    def _before(self) -> Iterator[Step]:
        """Drawn lines have texts and paper of the sets that no fold leaves out: all folds go on from one network."""
        store, run = self.output / _STORE, self.output / _BEFORE
        others = [path for name, path in self.sets.items() if name not in self.left_out]
        drawn = [*_flags("--text", self.texts), *_flags("--like", others)]
        drawn += _flags("--fonts", [self.fonts] if self.fonts else [])
        height = str(Config.preset(self.preset).model.height)
        count = ["-n", str(self.drawn), "--validation", str(min(512, self.drawn)), "--seed", str(self.seed)]
        yield Step(store, ["data", "synth", *drawn, *count, "--height", height, "-o", str(store)])
        yield Step(
            run / REPORT,
            _train(run, [store], [*self._settings(), "-s", "training.epochs=1", "-s", "training.warmup_epochs=0.05"]),
        )

    def _settings(self) -> list[str]:
        return ["-p", self.preset, *_flags("-s", self.overrides), "-s", f"training.seed={self.seed}", "--allow-unknown"]

    def _steps(self, fold: Fold, recipe: str) -> Iterator[Step]:
        others = [path for name, path in self.sets.items() if name not in fold]
        folder = self.folder(fold)
        run = folder / recipe
        settings = self._settings()
        if recipe != "real":  # the network is the model's, and trained on as the preset trains
            settings = [*as_preset(self.preset), *settings[2:], "--from", str(self.output / _BEFORE / BEST)]
        if recipe == "plain":
            settings += ["-s", "data.transcripts=plain"]
        settings += ["-s", "data.balance=0.5", "-s", f"training.epochs={self.epochs}"]
        yield Step(run / REPORT, _train(run, others, settings))
        model = run / BEST
        for name in fold:
            place = folder / f"{recipe}-{name}"
            yield Step(place / RATES, _evaluate(model, self.sets[name], "all", place))
        if self.lm:
            lm = folder / f"{recipe}-lm.safetensors"
            yield Step(lm, ["lm", "train", *map(str, others), "-o", str(lm)])
            tune = ["lm", "tune", str(lm), *_flags("-d", others), "-m", str(model)]
            yield Step(lm.with_suffix(".tuned"), tune, note=True)
            for name in fold:
                place = folder / f"{recipe}-{name}-lm"
                yield Step(place / RATES, [*_evaluate(model, self.sets[name], "all", place), "--lm", str(lm)])
        for name in fold:
            for count in self.few:
                tuned, place = folder / f"{recipe}-{name}-{count}", folder / f"{recipe}-{name}-{count}-read"
                if count:
                    few = ["--from", str(model), "-s", f"data.train_lines={count}", "--allow-unknown"]
                    yield Step(tuned / REPORT, _train(tuned, [self.sets[name]], few))
                yield Step(place / RATES, _evaluate(tuned / BEST if count else model, self.sets[name], "test", place))

    def rates(self) -> dict[str, dict[str, float | None]]:
        """By left-out set and column (the recipe and how it was read): the error rate, where it is known."""
        ways = ["", *(["-lm"] if self.lm else []), *(f"-{count}-read" for count in self.few)]
        names = [recipe + way for way in ways for recipe in self.recipes]
        found = {
            name: {column: _error_rate(self.folder(fold) / _place(column, name) / RATES) for column in names}
            for fold in self.folds
            for name in fold
        }
        known = [column for column in names if any(row[column] is not None for row in found.values())]
        return {name: {column: row[column] for column in known} for name, row in found.items()}

    def ratios(self, rates: Mapping[str, Mapping[str, float | None]]) -> dict[str, tuple[float, int]]:
        """Of each column of another recipe than the first: the geometric mean of the ratios to it, of how many sets."""
        first, found = self.recipes[0], {}
        for column in next(iter(rates.values()), {}):
            recipe = next(name for name in self.recipes if column.startswith(name))
            base = first + column.removeprefix(recipe)
            pairs = [(row[column], row.get(base)) for name, row in rates.items() if name not in NOT_COUNTED]
            logs = [math.log(mine / other) for mine, other in pairs if mine and other]
            if logs and recipe != first:
                found[column] = (math.exp(sum(logs) / len(logs)), len(logs))
        return found

    def table(self) -> list[str]:
        rates = self.rates()
        names = list(next(iter(rates.values())))
        rows = [[name, *("-" if row[c] is None else f"{row[c]:.2%}" for c in names)] for name, row in rates.items()]
        lines = list(columns(["left out", *(_title(name) for name in names)], rows))
        for column, (ratio, count) in self.ratios(rates).items():
            lines.append(f"{_title(column)}: {ratio:.3f} of {self.recipes[0]}, geometric mean of {count} sets")
        return lines


def _place(column: str, name: str) -> str:
    """The folder of a set's evaluation: the set's name stands behind the recipe's."""
    recipe, _, way = column.partition("-")
    return f"{recipe}-{name}" + (f"-{way}" if way else "")


def _title(column: str) -> str:
    return column.removesuffix("-read").replace("-lm", " with lm").replace("-", " after lines: ")


def sets_in(folders: Sequence[Path]) -> dict[str, Path]:
    """Name and place of each set: a folder or a store in one of the folders."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise SpikeHTRError(f"{folder}: no such folder; give one with a folder or a store for each set")
        for path in sorted(folder.iterdir()):
            if path.is_dir() or path.suffix == ".arrow":
                if path.stem in found:
                    raise SpikeHTRError(f"{path}: there is another set of that name, {found[path.stem]}")
                found[path.stem] = path
    return found


def as_preset(preset: str) -> list[str]:
    """How the preset trains, in place of what `train --from` does with the few lines of a fine-tuning."""
    values = Config.preset(preset).flat()
    return [word for key in FINE_TUNING for word in ("-s", f"{key}={json.dumps(values[key])}")]


def carry_out(chains: Sequence[Chain], jobs: int, logs: Path, say: Callable[[str], None]) -> None:
    """All chains, so many at a time. What a command says goes into a file of its chain's name."""
    stopped, speaking = Event(), Lock()

    def tell(text: str) -> None:
        with speaking:
            say(text)

    def follow(number: int, chain: Chain, first: Future[None] | None) -> None:
        if chain.drawn and first is not None:
            first.result()
        log = logs / f"{chain.name.replace(': ', '-').replace(', ', '-').replace(' ', '-')}.txt"
        for step in chain.steps:
            if stopped.is_set():
                return
            if not step.done.exists():
                what = f"spikehtr {' '.join(step.command[:2])} -> {step.done.parent}"
                tell(f"[{number}/{len(chains)}] {chain.name}: {what}")
                try:
                    _carry_out(step, log)
                except BaseException:
                    stopped.set()
                    raise

    with ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[None]] = []
        for number, chain in enumerate(chains, 1):
            futures.append(pool.submit(follow, number, chain, futures[0] if futures else None))
        try:
            for future in futures:
                future.result()
        except BaseException:
            stopped.set()
            raise


def _carry_out(step: Step, log: Path) -> None:
    command = step.command
    if command[0] == "train" and has_checkpoint(step.done.parent):
        command = ["train", "--resume", "-o", str(step.done.parent)]
    make_folder(step.done.parent)
    with log.open("a", encoding="utf-8") as said:
        said.write(f"spikehtr {' '.join(command)}\n")
        said.flush()
        done = subprocess.run([sys.executable, "-m", "spikehtr", *command], stdout=said, stderr=said)
    if done.returncode and not step.note:
        raise SpikeHTRError(f"spikehtr {' '.join(command)} failed; what it said is in {log}; the same command goes on")
    if step.note:
        step.done.touch()


def _train(folder: Path, data: Sequence[Path], settings: Sequence[str]) -> list[str]:
    return ["train", *_flags("-d", data), *settings, "-o", str(folder)]


def _evaluate(model: Path, data: Path, split: str, folder: Path) -> list[str]:
    return ["evaluate", str(model), "-d", str(data), "--split", split, "--batch-size", "256", "-o", str(folder)]


def _flags(name: str, values: Sequence[Any]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def _error_rate(file: Path) -> float | None:
    """Characters wrong, of all lines of an evaluation, as a share of the reference's."""
    found = read_json(file)
    if found is None:
        return None
    lines = found["predictions"]
    return float(sum(line["errors"] for line in lines) / sum(line["length"] for line in lines))
