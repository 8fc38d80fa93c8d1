"""How well are hands read that training never saw? Whole sets are left out, two at a time, and read afterwards.

    python benchmarks/unseen.py SETS -o unseen --fonts FONTS --texts TEXTS -p swift --minutes 6 --drawn 300000
    python benchmarks/unseen.py SETS -o unseen --folds 0 --recipes real,drawn        # one fold
    python benchmarks/unseen.py SETS -o unseen --table                                # what there is so far

SETS is a folder with a line set in each of its folders (or a store in each file NAME.arrow). For every fold two
recipes are trained on all other sets: `real` on their lines alone, `drawn` before that on synthetic lines, whose texts
and paper are of these other sets, too, so that a left-out set lends neither; `plain` is `drawn` taught plain
transcripts. Sets are shown by the square root of their size. The best weights are chosen on validation lines of the
sets trained on. Then the left-out sets are read whole, all their lines, without and with a language model of the other
sets' training lines; and with --few N,N the model goes on with N training lines of a left-out set, and reads its test
lines. Everything is done by `spikehtr` commands; those that are done are not done again, and trainings go on.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spikehtr.config import Config
from spikehtr.config.presets import FINE_TUNING
from spikehtr.training.checkpoint import has_checkpoint

FOLDS = (("bronod", "cds-salm"), ("transcriboquest", "htrogene-it"), ("fondue-de18", "memorials-stanford"))
RECIPES = ("real", "drawn", "plain")
BEST = "best.safetensors"
NOT_COUNTED = "fondue-de18"  # the one Kurrent: nothing like it is left to learn from


class Step(NamedTuple):
    """A command and the file that is there once it is done."""

    done: Path
    command: list[str]
    note: bool = False  # the command makes no file of its own, so that one is made; it may say that nothing was gained


def sets_in(folder: Path) -> dict[str, Path]:
    """Name and place of each set."""
    return {path.stem: path for path in sorted(folder.iterdir()) if path.is_dir() or path.suffix == ".arrow"}


def flags(name: str, values: list[Path]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def fold_folder(chosen: argparse.Namespace, fold: tuple[str, ...]) -> Path:
    folder: Path = chosen.output / f"without-{'-'.join(fold)}"
    return folder


def steps(chosen: argparse.Namespace, fold: tuple[str, ...], recipe: str) -> Iterator[Step]:
    """What a recipe takes in a fold, one after the other."""
    known = sets_in(chosen.sets)
    others = [path for name, path in known.items() if name not in fold]
    folder = fold_folder(chosen, fold)
    run = folder / recipe
    settings = ["-p", chosen.preset, "-s", "data.balance=0.5", *flags("-s", chosen.set), "--allow-unknown"]
    start: list[str] = []
    if recipe != "real":
        store = folder / "drawn.arrow"
        texts = sorted(chosen.texts.glob("*.txt*")) if chosen.texts else []
        made = [
            *flags("--text", texts),
            *flags("--like", others),
            *(["--fonts", str(chosen.fonts)] if chosen.fonts else []),
        ]
        count = [
            "-n",
            str(chosen.drawn),
            "--validation",
            str(min(512, chosen.drawn)),
            "--seed",
            str(chosen.seed),
            "--height",
            str(chosen.height),
        ]
        yield Step(store, ["data", "synth", *made, *count, "-o", str(store)])
        before = folder / "before"
        yield Step(before / "report.html", train(before, [store], settings, chosen.drawn_minutes))
        start = ["--from", str(before / BEST)]
        settings = [*as_preset(chosen.preset), *settings[2:]]  # the network is the model's
    if recipe == "plain":
        settings = [*settings, "-s", "data.transcripts=plain"]
    yield Step(run / "report.html", train(run, others, [*settings, *start], chosen.minutes))
    model = run / BEST
    for name in fold:
        yield Step(
            folder / f"{recipe}-{name}" / "evaluation.json",
            evaluate(model, known[name], "all", folder / f"{recipe}-{name}"),
        )
    if chosen.lm:
        lm = folder / f"{recipe}-lm.safetensors"
        yield Step(lm, ["lm", "train", *map(str, others), "-o", str(lm)])
        tune = ["lm", "tune", str(lm), *flags("-d", others), "-m", str(model)]
        yield Step(lm.with_suffix(".tuned"), tune, note=True)
        for name in fold:
            place = folder / f"{recipe}-{name}-lm"
            yield Step(place / "evaluation.json", [*evaluate(model, known[name], "all", place), "--lm", str(lm)])
    for name in fold:
        for count in chosen.few:
            tuned, place = folder / f"{recipe}-{name}-{count}", folder / f"{recipe}-{name}-{count}-read"
            if count:
                few = ["--from", str(model), "-s", f"data.train_lines={count}", "--allow-unknown"]
                yield Step(tuned / "report.html", train(tuned, [known[name]], few, chosen.few_minutes))
            yield Step(
                place / "evaluation.json", evaluate(tuned / BEST if count else model, known[name], "test", place)
            )


def as_preset(preset: str) -> list[str]:
    """How the preset trains, in place of what `train --from` does with the few lines of a fine-tuning."""
    values = Config.preset(preset).flat()
    return [word for key in FINE_TUNING for word in ("-s", f"{key}={json.dumps(values[key])}")]


def train(folder: Path, data: list[Path], settings: list[str], minutes: float) -> list[str]:
    return ["train", *flags("-d", data), *settings, "--max-minutes", str(minutes), "-o", str(folder)]


def evaluate(model: Path, data: Path, split: str, folder: Path) -> list[str]:
    return ["evaluate", str(model), "-d", str(data), "--split", split, "--batch-size", "256", "-o", str(folder)]


def carry_out(step: Step) -> None:
    if step.done.exists():
        return
    command = step.command
    if command[0] == "train" and has_checkpoint(step.done.parent):
        command = ["train", "--resume", "-o", str(step.done.parent)]
    print("spikehtr", " ".join(command), flush=True)
    step.done.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "spikehtr", *command], check=not step.note)
    if step.note:
        step.done.touch()


def error_rate(file: Path) -> float | None:
    """Characters wrong, of all lines of an evaluation, as a share of the reference's."""
    if not file.exists():
        return None
    lines = json.loads(file.read_text(encoding="utf-8"))["predictions"]
    return sum(line["errors"] for line in lines) / sum(line["length"] for line in lines)


def table(chosen: argparse.Namespace) -> None:
    """Error rates of each left-out set, and the geometric mean of their ratios to the first recipe."""
    ways = ["", *(["-lm"] if chosen.lm else []), *(f"-{count}-read" for count in chosen.few)]
    rows: dict[str, dict[str, float | None]] = {}
    for fold in FOLDS:
        for name in fold:
            rows[name] = {
                recipe + way: error_rate(fold_folder(chosen, fold) / f"{recipe}-{name}{way}" / "evaluation.json")
                for way in ways
                for recipe in chosen.recipes
            }
    columns = [column for column in next(iter(rows.values())) if any(row[column] is not None for row in rows.values())]
    print("set".ljust(20), *(column.replace("-read", " lines").rjust(14) for column in columns))
    for name, row in rows.items():
        print(name.ljust(20), *(("-" if row[c] is None else f"{row[c]:.2%}").rjust(14) for c in columns))
    for column in columns:
        way = column.removeprefix(next(r for r in chosen.recipes if column.startswith(r)))
        pairs = [(row[column], row[chosen.recipes[0] + way]) for name, row in rows.items() if name != NOT_COUNTED]
        logs = [math.log(mine / first) for mine, first in pairs if mine and first]
        if logs and not column.startswith(chosen.recipes[0]):
            ratio = math.exp(sum(logs) / len(logs))
            print(f"{column}: {ratio:.3f} of {chosen.recipes[0]}{way}, geometric mean of {len(logs)} sets")


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("-p", "--preset", default="swift")
    parser.add_argument("-s", "--set", action="append", default=[])
    parser.add_argument("--fonts", type=Path)
    parser.add_argument("--texts", type=Path, help="folder of .txt and .txt.gz files")
    parser.add_argument("--drawn", type=int, default=300_000, help="synthetic lines a fold")
    parser.add_argument("--drawn-minutes", type=float, default=6)
    parser.add_argument("--minutes", type=float, default=6, help="of training on real lines")
    parser.add_argument("--few", type=lambda t: [int(n) for n in words(t)], default=[], help="as 0,20,50,200")
    parser.add_argument("--few-minutes", type=float, default=2)
    parser.add_argument("--folds", type=lambda t: [FOLDS[int(n)] for n in words(t)], default=list(FOLDS))
    parser.add_argument("--recipes", type=words, default=list(RECIPES[:2]), help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--lm", action="store_true", help="read with a language model, too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--height", type=int, default=64)
    parser.add_argument("--table", action="store_true", help="train nothing")
    chosen = parser.parse_args()
    known = sets_in(chosen.sets)
    missing = [name for fold in chosen.folds for name in fold if name not in known]
    if missing:
        raise SystemExit(f"{chosen.sets}: no {', '.join(missing)} there; it has {', '.join(known)}")
    if not chosen.table:
        for fold in chosen.folds:
            for recipe in chosen.recipes:
                for step in steps(chosen, fold, recipe):
                    carry_out(step)
    table(chosen)


if __name__ == "__main__":
    main()
