"""What does fine-tuning on a CPU come to, with so many lines of a hand that the model never saw, in so much time?

    python benchmarks/fine_tuning.py SETS -o tuned --only transcriboquest,htrogene-it --seeds 3
    python benchmarks/fine_tuning.py SETS -o tuned --only cds-salm --ways as-is,whole --minutes 1.5,5 --lines 50
    python benchmarks/fine_tuning.py SETS -o tuned --table                          # what there is so far

SETS is a folder with a line set in each of its folders, as train.parquet and, to be tested on, test.parquet and
validation.parquet. For every seed so many training lines are drawn into a folder in which nothing is marked, as a new
user has them, so that `train` holds some of them out by itself; 120 others of the set are read before and after. A way
is how `spikehtr train --from MODEL` is asked: `as-is` with nothing else, `whole` with all of the network trained,
`large` so in batches of 16, too. Seconds are those of the whole command, with the reading of its lines and its report;
processor seconds count all its threads. Runs that are done are not done again. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WHOLE = ["-s", "training.freeze=nothing"]
WAYS = {
    "as-is": [],
    "whole": WHOLE,
    "large": [*WHOLE, "-s", "training.batch_size=16", "-s", "training.warmup_epochs=3"],
}
NOTE = "tuned.json"


class Case(NamedTuple):
    set: str
    lines: int
    way: str
    minutes: float
    seed: int

    def folder(self, place: Path) -> Path:
        return place / self.set / f"{self.lines}-lines-{self.way}-{self.minutes:g}-minutes-seed-{self.seed}"


def draw(source: Path, place: Path, lines: int, others: int, seed: int) -> tuple[Path, Path]:
    """The folders of the lines to train on, and of the others, the same for every seed."""
    train, test = place / f"{lines}-lines-{seed}", place / "others"
    marked = pq.read_table(source / "train.parquet")
    rest = pa.concat_tables([pq.read_table(source / f"{name}.parquet") for name in ("test", "validation")])
    for folder, table, count, number in ((train, marked, lines, seed), (test, rest, others, 0)):
        if not folder.is_dir():
            if len(table) < count:
                print(f"{source.name}: {len(table)} lines, not {count}")
            chosen = np.sort(np.random.default_rng(number).permutation(len(table))[:count])
            folder.mkdir(parents=True)
            pq.write_table(table.take(chosen), folder / "lines.parquet")
    return train, test


def run(command: list[str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor that a command of ours took."""
    print("spikehtr", " ".join(command), flush=True)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "spikehtr", *command], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def error_rate(model: str, lines: Path, folder: Path) -> float:
    """Characters wrong, as a share of the reference's."""
    file = folder / "evaluation.json"
    if not file.exists():
        run(["evaluate", model, "-d", str(lines), "--split", "all", "-o", str(folder)])
    read = json.loads(file.read_text(encoding="utf-8"))["predictions"]
    return float(sum(line["errors"] for line in read) / sum(line["length"] for line in read))


def carry_out(case: Case, chosen: argparse.Namespace) -> None:
    folder = case.folder(chosen.output)
    if (folder / NOTE).exists():
        return
    place = chosen.output / case.set
    train, others = draw(chosen.sets / case.set, place, case.lines, chosen.others, case.seed)
    before = error_rate(chosen.start, others, place / "before")
    command = ["train", "--from", chosen.start, "-d", str(train), "-o", str(folder), "--max-minutes", str(case.minutes)]
    settings = ["-s", f"training.seed={case.seed}", *WAYS[case.way], "--allow-unknown", "--worst", "0"]
    seconds, processor = run([*command, *settings, "--device", "cpu"])
    after = error_rate(str(folder / "best.safetensors"), others, folder / "read")
    note = {"before": before, "after": after, "seconds": seconds, "processor_seconds": processor}
    (folder / NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")


def done(cases: list[Case], place: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    for case in cases:
        if (file := case.folder(place) / NOTE).exists():
            yield case, json.loads(file.read_text(encoding="utf-8"))


def table(cases: list[Case], place: Path) -> None:
    print(
        "| set | lines | way | minutes | seed | CER before | after | errors taken away | seconds | of the processor |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case, note in done(cases, place):
        gone = 1 - note["after"] / note["before"] if note["before"] else 0.0
        print(
            f"| {case.set} | {case.lines} | {case.way} | {case.minutes:g} | {case.seed} | {note['before']:.1%} | "
            f"{note['after']:.1%} | {gone:.0%} | {note['seconds']:.0f} | {note['processor_seconds']:.0f} |"
        )
    for name, way, minutes in sorted({(case.set, case.way, case.minutes) for case in cases}):
        rates = [n["after"] for c, n in done(cases, place) if (c.set, c.way, c.minutes) == (name, way, minutes)]
        if rates:
            print(f"{name}, {way}, {minutes:g} minutes: {np.mean(rates):.2%}, mean of {len(rates)}")


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--from", dest="start", default="bundled")
    parser.add_argument("--only", type=words, default=["transcriboquest", "htrogene-it"], help="names of sets")
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--others", type=int, default=120, help="lines that are read before and after")
    parser.add_argument("--ways", type=words, default=["as-is", "large"], help=f"of {', '.join(WAYS)}")
    parser.add_argument("--minutes", type=words, default=["1.5", "6"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="train nothing")
    chosen = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(chosen.threads)
    cases = [
        Case(name, chosen.lines, way, float(minutes), seed)
        for name, seed, minutes, way in product(chosen.only, range(chosen.seeds), chosen.minutes, chosen.ways)
    ]
    if not chosen.table:
        for case in cases:
            carry_out(case, chosen)
    table(cases, chosen.output)


if __name__ == "__main__":
    main()
