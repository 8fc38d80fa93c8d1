"""How well are hands read that training never saw? Whole sets are left out, two at a time, and read afterwards."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spikehtr.config import Config
from spikehtr.config.parsing import parse_override
from spikehtr.config.presets import FINE_TUNING
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.lm_tuning import NO_HELP
from spikehtr.evaluation.rate_tables import columns
from spikehtr.files import make_folder, read_json, write_json
from spikehtr.studies.command_chains import Chain, Step

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
_DRAWN = "drawn lines"  # the chain that makes a network of them
_OURS = {
    "training.epochs": "--epochs",
    "training.seed": "--seed",
    "data.balance": "the study",
    "data.transcripts": "a recipe",
}


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

    def __post_init__(self) -> None:
        named = [name for fold in self.folds for name in fold]
        if missing := sorted(self.left_out - set(self.sets)):
            others = ", ".join(self.sets) or "there is none"
            raise SpikeHTRError(f"no set {', '.join(missing)} to leave out; --without names others: {others}")
        if not all(self.folds) or not named:
            raise SpikeHTRError("--without: name at least one set")
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise SpikeHTRError(f"--without: {', '.join(twice)} is left out twice")
        if len({_folder(fold) for fold in self.folds}) < len(self.folds):
            raise SpikeHTRError("--without: the folders of two parts would be called the same; rename a set")
        if not set(self.sets) - self.left_out:
            raise SpikeHTRError("every set is left out: none is left to draw lines like")
        if unknown := [name for name in self.recipes if name not in RECIPES]:
            raise SpikeHTRError(f"no recipe {', '.join(unknown)}: {', '.join(RECIPES)}")
        if not self.recipes or len(set(self.recipes)) < len(self.recipes):
            raise SpikeHTRError(f"--recipes: each once, of {', '.join(RECIPES)}")
        keys = [parse_override(text)[0] for text in self.overrides]
        if taken := [f"{key} is set by {_OURS[key]}" for key in keys if key in _OURS]:
            raise SpikeHTRError(f"--set: {'; '.join(taken)}")
        _ = self.config  # an unknown preset or setting is told here

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(name for fold in self.folds for name in fold)

    @property
    def config(self) -> Config:
        return Config.preset(self.preset).with_overrides(self.overrides)

    def check(self) -> None:
        """Writes what the folder is of; an error where it is of something else."""
        make_folder(self.output)
        mine = {
            "folds": [list(fold) for fold in self.folds],
            "sets": {name: _bytes(path) for name, path in sorted(self.sets.items())},
            "texts": {path.name: _bytes(path) for path in self.texts},
            "fonts": None if self.fonts is None else _bytes(self.fonts),
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
        return self.output / _folder(fold)

    def chains(self) -> list[Chain]:
        """All there is to do; chains go on side by side, those that wait for drawn lines last."""
        found = []
        if set(self.recipes) - {"real"}:
            found.append(Chain(_DRAWN, list(self._before())))
        for recipe in sorted(self.recipes, key=RECIPES.index):
            for fold in self.folds:
                name = f"without {', '.join(fold)}: {recipe}"
                found.append(Chain(name, list(self._steps(fold, recipe)), None if recipe == "real" else _DRAWN))
        return found

    def _before(self) -> Iterator[Step]:
        """Drawn lines have texts and paper of the sets that no fold leaves out: all folds go on from one network."""
        store, run = self.output / _STORE, self.output / _BEFORE
        others = [path for name, path in self.sets.items() if name not in self.left_out]
        drawn = [*_flags("--text", self.texts), *_flags("--like", others)]
        drawn += _flags("--fonts", [self.fonts] if self.fonts else [])
        height = str(self.config.model.height)
        count = ["-n", str(self.drawn), "--validation", str(min(512, self.drawn)), "--seed", str(self.seed)]
        yield Step(store, ["data", "synth", *drawn, *count, "--height", height, "-o", str(store)])
        yield Step(
            run / REPORT,
            _train(run, [store], [*self._settings(), "-s", "training.epochs=1", "-s", "training.warmup_epochs=0.05"]),
        )

    def _settings(self, start: Path | None = None) -> list[str]:
        """Of a training from nothing, or of one from a model, which trains as the preset does all the same."""
        ours = [f"training.seed={self.seed}", f"training.batch_size={self.config.training.batch_size}"]  # on CPUs, too
        begin = ["-p", self.preset] if start is None else [*as_preset(self.preset), "--from", str(start)]
        return [*begin, *_flags("-s", self.overrides), *_flags("-s", ours), "--allow-unknown"]

    def _steps(self, fold: Fold, recipe: str) -> Iterator[Step]:
        others = [path for name, path in self.sets.items() if name not in fold]
        folder = self.folder(fold)
        run = folder / recipe
        settings = self._settings(None if recipe == "real" else self.output / _BEFORE / BEST)
        if recipe == "plain":
            settings += ["-s", "data.transcripts=plain"]
        settings += ["-s", "data.balance=0.5", "-s", f"training.epochs={self.epochs}"]
        yield Step(run / REPORT, _train(run, others, settings))
        model = run / BEST
        for name in fold:
            place = folder / f"{recipe}-{name}"
            yield Step(place / RATES, _evaluate(model, self.sets[name], "all", place))
        if self.lm and recipe != "plain":  # the language model's texts are as they are written
            lm = folder / f"{recipe}-lm.safetensors"
            yield Step(lm, ["lm", "train", *map(str, others), "-o", str(lm)])
            tune = ["lm", "tune", str(lm), *_flags("-d", others), "-m", str(model)]
            yield Step(lm.with_suffix(".tuned"), tune, (NO_HELP,))
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
            logs = [math.log(mine / other) for mine, other in pairs if mine and other]  # of 0 there is none
            if logs and recipe != first:
                found[column] = (math.exp(sum(logs) / len(logs)), len(logs))
        return found

    def table(self) -> list[str]:
        rates = self.rates()
        names = list(next(iter(rates.values())))
        if not names:
            return ["", "nothing has been read yet"]
        rows = [[name, *("-" if row[c] is None else f"{row[c]:.2%}" for c in names)] for name, row in rates.items()]
        lines = list(columns(["left out", *(_title(name) for name in names)], rows))
        for column, (ratio, count) in self.ratios(rates).items():
            lines.append(f"{_title(column)}: {ratio:.3f} of {self.recipes[0]}, geometric mean of {count} sets")
        if self.left_out & NOT_COUNTED:
            lines.append(f"(without {', '.join(sorted(self.left_out & NOT_COUNTED))}, the only one of its script)")
        return lines


def _place(column: str, name: str) -> str:
    """The folder of a set's evaluation: the set's name stands behind the recipe's."""
    recipe, _, way = column.partition("-")
    return f"{recipe}-{name}" + (f"-{way}" if way else "")


def _title(column: str) -> str:
    return column.removesuffix("-read").replace("-lm", " with lm").replace("-", " after lines: ")


def _folder(fold: Fold) -> str:
    return f"without-{'-'.join(fold)}"


def sets_in(folders: Sequence[Path]) -> dict[str, Path]:
    """Name and place of each set: a folder or a store in one of the folders."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise SpikeHTRError(f"{folder}: no such folder; give one with a folder or a store for each set")
        for path in sorted(folder.iterdir()):
            name = path.name if path.is_dir() else path.stem
            if name.startswith(".") or (path / PLAN).exists() or not (path.is_dir() or path.suffix == ".arrow"):
                continue
            if name in found:
                raise SpikeHTRError(f"{path}: there is another set of that name, {found[name]}")
            found[name] = path
    return found


def _bytes(path: Path) -> int:
    """Of a file, or of all files in a folder: enough to tell one set, text or font collection from another."""
    if not path.exists():
        raise SpikeHTRError(f"{path}: no such file or folder")
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())


def as_preset(preset: str) -> list[str]:
    """How the preset trains, in place of what `train --from` does with the few lines of a fine-tuning."""
    values = Config.preset(preset).flat() | {"training.freeze": "nothing"}
    return [word for key in FINE_TUNING for word in ("-s", f"{key}={json.dumps(values[key])}")]


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
