"""How fast lines are read, and in how little memory.

    python benchmarks/data.py DATA...      # any sources; without any, lines are synthesised

Prints, from one run: lines per second read, augmented and batched from a compiled store against the same lines as loose
PNG files read with Pillow (interleaved rounds, medians); padding of width buckets against unsorted batches; and the
resident memory of a process that reads a whole store of 10,000 and of 200,000 lines.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from spikehtr.assets import FONTS
from spikehtr.config import AugmentConfig
from spikehtr.data.augment import augment
from spikehtr.data.batching import Lines, load_batches, padding_waste, plan_epoch, to_batch
from spikehtr.data.compiling import open_lines
from spikehtr.data.geometry import fit_line
from spikehtr.data.store import KEY, LineStore
from spikehtr.data.synth import synthesise

BATCH, MAX_WIDTH, WORKERS = 32, 512, 2
STEP = 0.02  # seconds


def loose(files: list[Path], plan: list[np.ndarray], with_augment: bool) -> None:
    """What a plain script does: open each file with Pillow, fit, pad."""
    for batch in plan:
        lines = []
        for index in batch:
            with Image.open(files[index]) as image:
                lines.append(fit_line(image, 64, MAX_WIDTH))
        images, widths = to_batch(lines)
        if with_augment:
            augment(images, widths, AugmentConfig())


def stored(lines: Lines, plan: list[np.ndarray], with_augment: bool, workers: int) -> None:
    for batch in load_batches(lines, plan, workers):
        ready = batch.lines()
        if with_augment:
            augment(ready, batch.widths, AugmentConfig())


def speed(store: LineStore, fitted: LineStore, folder: Path, count: int, rounds: int) -> None:
    rows = store.rows()[:count]
    files = []
    for row in rows:
        files.append(folder / f"{row}.png")
        Image.fromarray(store.line(int(row))).save(files[-1])
    wide = Lines(store, rows, store.charset, MAX_WIDTH)
    cold = Lines(fitted, rows, store.charset, MAX_WIDTH)
    warm = Lines(fitted, rows, store.charset, MAX_WIDTH, cache_mb=4096)
    plan = plan_epoch(cold.widths, BATCH, 0, 0)
    for index in range(len(warm)):
        warm[index]
    for with_augment in (False, True):
        ways: dict[str, Callable[[], None]] = {
            "loose PNG files, Pillow": lambda: loose(files, plan, with_augment),  # noqa: B023
            "store, natural widths": lambda: stored(wide, plan, with_augment, 0),  # noqa: B023
            f"store, natural, {WORKERS} threads": lambda: stored(wide, plan, with_augment, WORKERS),  # noqa: B023
            f"store, --max-width {MAX_WIDTH}": lambda: stored(cold, plan, with_augment, 0),  # noqa: B023
            f"store, {WORKERS} threads": lambda: stored(cold, plan, with_augment, WORKERS),  # noqa: B023
            f"store, {WORKERS} threads, cached": lambda: stored(warm, plan, with_augment, WORKERS),  # noqa: B023
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, run in ways.items():
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
        rates = {name: len(rows) / statistics.median(seconds) for name, seconds in times.items()}
        base = rates["loose PNG files, Pillow"]
        print(
            f"\nread, batched{' and augmented' if with_augment else ''}: {len(rows)} lines, median of {rounds} rounds"
        )
        for name, rate in rates.items():
            print(f"  {name:32s} {rate:8.0f} lines/s  {rate / base:5.2f}x")


def overlap(store: LineStore, count: int, rounds: int) -> None:
    """What threads are for: reading goes on while a device works. The device is a sleep here."""
    lines = Lines(store, store.rows()[:count], store.charset, MAX_WIDTH)
    plan = plan_epoch(lines.widths, BATCH, 0, 0)
    seconds: dict[int, list[float]] = {0: [], WORKERS: []}
    for _ in range(rounds):
        for workers, times in seconds.items():
            start = time.perf_counter()
            for _batch in load_batches(lines, plan, workers):
                time.sleep(STEP)
            times.append(time.perf_counter() - start)
    alone, ahead = (count / statistics.median(times) for times in seconds.values())
    print(f"\nnatural widths, beside a device that takes {STEP * 1e3:.0f} ms a batch of {BATCH}:")
    print(f"  no threads {alone:.0f} lines/s, {WORKERS} threads {ahead:.0f} lines/s, {ahead / alone:.2f}x")


def waste(name: str, store: LineStore) -> None:
    for most in (512, 4096):
        widths = np.minimum(store.widths[store.rows("train")] if "train" in store.splits else store.widths, most)
        order = np.random.default_rng(0).permutation(len(widths))
        plain = padding_waste(widths, [order[i : i + BATCH] for i in range(0, len(order), BATCH)])
        bucketed = padding_waste(widths, plan_epoch(widths, BATCH, 0, 0))
        print(f"  {name:28s} max width {most:5d}: {bucketed:6.1%} in buckets, {plain:6.1%} unsorted")


def repeat_store(store: LineStore, count: int, path: Path) -> None:
    """A store of `count` lines, by writing the first lines of another again and again."""
    with pa.memory_map(str(store.path)) as source:
        batch = pa.ipc.open_file(source).get_batch(0)
        batch = batch.slice(0, min(250, batch.num_rows))
        meta = json.dumps(store.meta | {"lines": {"train": count}}).encode()
        schema = batch.schema.with_metadata({KEY: meta})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for _ in range(count // batch.num_rows):
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def read_all(path: Path) -> None:
    """In a process of its own: open, read every line in shuffled order, say how much memory that took."""
    start = time.perf_counter()
    store = LineStore(path)
    opened = time.perf_counter() - start
    for row in np.random.default_rng(0).permutation(len(store)):
        store.line(int(row))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {len(store):7d} lines, {path.stat().st_size / 2**20:6.0f} MiB on disk: opened in {opened * 1e3:.0f} ms, "
        f"peak resident {peak:.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="sources, each compiled into the cache; the first is timed")
    parser.add_argument("--lines", type=int, default=1000, help="lines to time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--read-all", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read_all:
        read_all(options.read_all)
        return
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = options.data
        if not sources:
            made = folder / "made"
            made.mkdir()
            synthesise(["a quick brown fox jumps over", "the lazy dog and runs away", "so"] * 100, FONTS, 1000, made)
            sources = [str(made)]
        stores = {source: open_lines(source.split("+")) for source in sources}
        (folder / "png").mkdir()
        fitted = open_lines(sources[0].split("+"), max_width=MAX_WIDTH)
        speed(next(iter(stores.values())), fitted, folder / "png", options.lines, options.rounds)
        overlap(next(iter(stores.values())), options.lines, options.rounds)
        print(f"\npadding, batches of {BATCH}")
        for source, store in stores.items():
            waste("+".join(Path(part).name for part in source.split("+")), store)
        print("\nmemory while reading a whole store")
        for count in (10_000, 200_000):
            path = folder / f"{count}.arrow"
            repeat_store(next(iter(stores.values())), count, path)
            subprocess.run([sys.executable, __file__, "--read-all", str(path)], check=True)


if __name__ == "__main__":
    main()
