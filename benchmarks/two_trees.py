"""Two checkouts of this repository side by side: losses of a seeded training, or reading speed in interleaved rounds.

python benchmarks/two_trees.py train OTHER --data LINES          # the same lines, settings and seed, on the CPU, fp32
python benchmarks/two_trees.py read OTHER --data LINES.parquet   # the bundled model of each, 16 lines at a time

OTHER is the other checkout's folder. An engine that was built in place (by an editable install, `pip install -e`) is
used there; what each tree reads with is printed. A speed is worth something on an idle machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parents[1]
# A network that learns in seconds. `plain`: the paper's neurons, AdamW; `swift`: what that preset has of its own.
MICRO = """
model: {dim: 32, height: 32, positions: 64, encoder: {depths: [1, 1, 1], expansion: 2.0, norm_groups: 4},
  mixer: {blocks: [LA, QK, LK], heads: 2, mlp_ratio: 2.0, lk_kernel: 7, lk_expansion: 1.0}}
data: {max_width: 256, workers: 0}
training: {batch_size: 8, warmup_epochs: 1, learning_rate: 0.002, precision: fp32, seed: 7}
"""
SETTINGS = {
    "plain": [],
    "swift": [
        *("model.timesteps=1", "model.in_channels=1", "model.lif.start_bias=-0.5", "data.straighten=true"),
        *("model.encoder.neurons=read", "model.encoder.pw1_burst=8", "model.encoder.pw1_start_bias=0.0"),
        *("model.mixer.neurons=alone", "model.mixer.burst=8", "model.reducer.gamma=0.4", "data.augment.blank=0.02"),
        *("training.optimizer=muon", "training.hold=0.5", "training.firing_penalty=10", "training.firing_target=0.02"),
    ],
    "gelu": ["model.neuron=gelu", "model.entry=repeat", "model.reducer.mode=none"],
}
LOSSES = ("loss", "ctc", "aux", "kl", "gradient")
# Reads the lines anew for each line of its input: seconds, and the texts.
READER = """
import io, json, sys, time
import pyarrow.parquet as pq
from PIL import Image
from spikehtr import Recognizer
path, count = sys.argv[1], int(sys.argv[2])
rows = next(pq.ParquetFile(path).iter_batches(count)).to_pylist()
images = [Image.open(io.BytesIO(row["image"]["bytes"])).convert("L") for row in rows]
recognizer = Recognizer.load(device="cpu", precision="fp32")
print(type(recognizer.reader).__name__, flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    texts = [line.text for line in recognizer.transcribe(images, batch_size=16)]
    print(json.dumps([time.perf_counter() - start, texts]), flush=True)
"""


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree / "src")}


def losses(tree: Path, folder: Path, data: str, steps: int, settings: list[str]) -> list[dict[str, float]]:
    """Of every step."""
    (folder / "micro.yaml").write_text(MICRO)
    command = [sys.executable, "-m", "spikehtr", "train", "-d", data, "-c", folder / "micro.yaml", "-o", folder / "run"]
    command += ["--max-steps", steps, "--save-every", 1, "--device", "cpu", "--worst", 0, "--allow-unknown"]
    command += [word for setting in settings for word in ("-s", setting)]
    cache = {"SPIKEHTR_CACHE": str(folder / "cache")}  # each tree prepares the lines itself
    subprocess.run([*map(str, command)], check=True, env=environment(tree) | cache, stdout=subprocess.DEVNULL)
    with (folder / "run" / "log.csv").open() as file:
        return [{name: float(row[name]) for name in LOSSES} for row in csv.DictReader(file)]


def train(trees: list[Path], data: str, steps: int) -> None:
    for name, settings in SETTINGS.items():
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            ours, theirs = (
                losses(tree, Path(folder), data, steps, settings)
                for tree, folder in zip(trees, (one, other), strict=True)
            )
        differ = [
            max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-12) for key in LOSSES)
            for a, b in zip(ours, theirs, strict=True)
        ]
        first = next((number for number, found in enumerate(differ, start=1) if found > 0), None)
        said = "all equal" if first is None else f"first at step {first}, largest {max(differ):.1e} of the value"
        print(f"{name}: {len(ours)} steps, loss {theirs[0]['loss']:.4f} to {theirs[-1]['loss']:.4f}; differ: {said}")


def read(trees: list[Path], data: str, lines: int, rounds: int) -> None:
    pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", READER, data, str(lines)]
    processes = [subprocess.Popen(command, env=environment(tree), **pipe) for tree in trees]
    readers = [process.stdout.readline().strip() for process in processes]
    seconds: list[list[float]] = [[] for _ in trees]
    texts: list[list[str]] = [[] for _ in trees]
    for number in range(rounds + 1):
        for place in (0, 1) if number % 2 else (1, 0):  # neither is always the first
            process = processes[place]
            process.stdin.write("go\n")
            process.stdin.flush()
            took, texts[place] = json.loads(process.stdout.readline())
            seconds[place] += [took] if number else []  # the first round warms up
    for process in processes:
        process.stdin.close()
        process.wait()
    rates = [[len(texts[0]) / took for took in one] for one in seconds]
    for tree, reader, one in zip(trees, readers, rates, strict=True):
        print(f"{tree}: {reader}, median {median(one):.2f} lines/s ({min(one):.2f} to {max(one):.2f})")
    same = sum(a == b for a, b in zip(*texts, strict=True))
    print(f"this to the other: {median(rates[0]) / median(rates[1]):.3f}; same text in {same} of {len(texts[0])} lines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "read"))
    parser.add_argument("other", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lines", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    trees = [HERE, options.other.resolve()]
    if options.what == "train":
        train(trees, options.data, options.steps)
    else:
        read(trees, options.data, options.lines, options.rounds)


if __name__ == "__main__":
    main()
