"""Many pages through `spikehtr transcribe`, some of them broken, once in peace and once killed and resumed.

    python benchmarks/transcribe.py --model model.safetensors [--pages 200]

Pages of a few lines are drawn; every twentieth is broken in one of four ways (cut short, of another type, empty, or
claiming 3.6 billion pixels). Prints whether every good page was transcribed and every bad one listed, peak memory for a
quarter of the pages and for all, and whether a run that was killed half way and resumed ends with the same files; the
exit code is 1 where any of that is not so.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from spikehtr.assets import FONTS

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "and",
    "runs",
    "along",
    "the",
    "river",
    "to",
    "an",
    "old",
    "mill",
    "where",
    "nobody",
    "sees",
    "it",
]


def draw(path: Path, rng: np.random.Generator) -> None:
    font = ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), 40)
    image = Image.new("L", (800, 420), 228)
    pen = ImageDraw.Draw(image)
    for row in range(4):
        text = " ".join(rng.choice(WORDS, 7))
        pen.text((50 + rng.integers(20), 90 + 85 * row), text, font=font, fill=int(rng.integers(30, 90)), anchor="ls")
    noise = rng.normal(0, 4, (420, 800))
    Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8)).save(path)


def spoil(path: Path, way: int) -> None:
    data = path.read_bytes()
    if way == 3:
        header = bytearray(data[:33])
        header[16:24] = (60_000).to_bytes(4, "big") * 2
        header[29:33] = zlib.crc32(bytes(header[12:29])).to_bytes(4, "big")
        data = bytes(header) + data[33:]
    path.write_bytes([data[: len(data) // 3], b"just some words\n", b"", data][way])


def memory(pid: int) -> float:
    """Resident megabytes of a process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run(inputs: Path, output: Path, model: Path, *more: str, kill_at: int = 0) -> tuple[int, str, float, float]:
    """Exit code, stderr, peak memory and seconds; killed without warning once `kill_at` results are there."""
    command = [sys.executable, "-m", "spikehtr", "transcribe", str(inputs), "-o", str(output), "-m", str(model)]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "-f", "alto", *more], stderr=subprocess.PIPE, text=True)
    peak = 0.0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            if kill_at and len(list(output.glob("*.alto.xml"))) >= kill_at:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, errors = process.communicate()
    watcher.join()
    return process.returncode, errors, peak, time.perf_counter() - start


def results_in(folder: Path) -> dict[str, bytes]:
    """Not the note of which file each is of, whose lines are in the order they were made."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=200)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        for place, count in ((few, options.pages // 4), (many, options.pages)):
            place.mkdir()
            for number in range(count):
                draw(place / f"{number:04d}.png", rng)
                if number % 20 == 7:
                    spoil(place / f"{number:04d}.png", number // 20 % 4)
        bad = {f"{number:04d}" for number in range(7, options.pages, 20)}
        _, _, small, _ = run(few, folder / "out-few", options.model)
        code, errors, peak, seconds = run(many, folder / "whole", options.model)
        whole = results_in(folder / "whole")
        listed = {Path(row.strip().split(":")[0]).stem for row in errors.splitlines() if row.startswith("  ")}
        print(f"{options.pages} pages, {len(bad)} of them broken: {seconds:.0f} s, exit code {code}")
        good = {f"{number:04d}.alto.xml" for number in range(options.pages)} - {f"{stem}.alto.xml" for stem in bad}
        print(f"  transcribed {len(whole)}; all good ones: {set(whole) == good}")
        print(f"  listed {len(listed)}; just the broken ones: {listed == bad}")
        print(f"  peak memory {small:.0f} MiB for {options.pages // 4} pages, {peak:.0f} MiB for {options.pages}")
        code, *_ = run(many, folder / "part", options.model, kill_at=options.pages // 3)
        left = len(list((folder / "part").glob("*.alto.xml")))
        code, errors, *_ = run(many, folder / "part", options.model, "--resume")
        same = results_in(folder / "part") == whole
        print(f"  killed after {left} pages, resumed: {errors.splitlines()[0]}; same files: {same}")
    if set(whole) != good or listed != bad or not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
