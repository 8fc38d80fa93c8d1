"""How well and how fast pages are divided into lines, and what that costs in reading.

    python benchmarks/pages.py PAGES                                # a folder of PAGE or ALTO files with their images
    python benchmarks/pages.py PAGES --segmenter builtin kraken     # beside kraken's, where it is installed
    python benchmarks/pages.py PAGES --model model.safetensors      # and character error rates, given and found lines

Baselines are scored as spikehtr/pages/scoring.py says. Each page is a sample; figures are means over the pages of a
folder. Seconds are of one page at a time on two threads, image decoding included, the least of --rounds: wall time, and
processor time, which says more on a machine that others use too.
Character error rates: 'given' reads the lines of the file; 'found' reads the lines found that match one of the file's,
and counts the text of lines that were not found as wrong; 'page' compares all that was read on the page, in reading
order, with all its text: lines that the file does not have (print, the facing page) count against it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import cv2
import torch
from rapidfuzz.distance import Levenshtein

from spikehtr.data.formats import xml
from spikehtr.data.images import open_gray
from spikehtr.data.samples import Report
from spikehtr.pages.given import ROOTS, read_given
from spikehtr.pages.reading import assemble, cut_lines, found_sheet, given_sheet
from spikehtr.pages.scoring import Score, score
from spikehtr.pages.segmenting import FoundRegion, Segmenter, segmenter
from spikehtr.pages.tree import Page
from spikehtr.recognizer import Recognizer
from spikehtr.text import normalise


class Truth(NamedTuple):
    file: Path
    image: Path
    baselines: list[tuple[tuple[float, float], ...]]
    texts: list[str]


def truth_of(file: Path) -> Truth:
    """Baselines and texts of a file, in its order."""
    given = read_given(file)
    root = xml.load(file, Report())
    texts = {line.id: normalise(line.text) for line in ROOTS[xml.name_of(root)](root).lines}
    lines = [line for region in given.regions for line in region.lines if len(line.baseline) > 1]
    return Truth(file, given.image, [line.baseline for line in lines], [texts.get(line.id, "") for line in lines])


def timed(find: Segmenter, image: Path, rounds: int) -> tuple[list[FoundRegion], float, float]:
    """Regions, and the least wall and processor seconds of any round."""
    regions: list[FoundRegion] = []
    wall, used = [], []
    for _ in range(rounds):
        start, before = time.perf_counter(), time.process_time()
        regions = find(open_gray(image))
        wall.append(time.perf_counter() - start)
        used.append(time.process_time() - before)
    return regions, min(wall), min(used)


def errors(pairs: list[tuple[str, str]]) -> tuple[int, int]:
    """Edits and characters of (true, read) texts."""
    return sum(Levenshtein.distance(true, read) for true, read in pairs), sum(len(true) for true, _ in pairs)


def read(recognizer: Recognizer, truth: Truth, regions: list[FoundRegion]) -> tuple[Page, float]:
    start = time.perf_counter()
    sheet = found_sheet(truth.image.name, open_gray(truth.image), lambda _: regions)
    places, fitted = cut_lines(recognizer, sheet)
    page = assemble(sheet, places, recognizer.read_many(fitted, 16), recognizer.name)
    return page, time.perf_counter() - start


def reading_errors(recognizer: Recognizer, truth: Truth, regions: list[FoundRegion], found: Score) -> dict[str, object]:
    sheet = given_sheet(truth.file)
    places, fitted = cut_lines(recognizer, sheet)
    given = {line.id: line.text for line in assemble(sheet, places, recognizer.read_many(fitted, 16), "").lines}
    ids = [line.id for region in read_given(truth.file).regions for line in region.lines if len(line.baseline) > 1]
    page, seconds = read(recognizer, truth, regions)
    texts = [normalise(line.text) for line in page.lines]
    partner = dict(found.matches)
    return {
        "given": errors([(true, normalise(given[name])) for true, name in zip(truth.texts, ids, strict=True)]),
        "found": errors([(true, texts[partner[i]] if i in partner else "") for i, true in enumerate(truth.texts)]),
        "page": errors([(" ".join(truth.texts), " ".join(texts))]),
        "seconds": seconds,
    }


def mean(rows: list[dict[str, float]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def rate(rows: list[dict[str, object]], key: str) -> float:
    edits, characters = zip(*(row[key] for row in rows), strict=True)  # type: ignore[misc]
    return sum(edits) / max(1, sum(characters))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, help="a folder with a folder for each document")
    parser.add_argument("--segmenter", nargs="+", default=["builtin"], choices=["builtin", "kraken"])
    parser.add_argument("--model", type=Path, help="a model file, for character error rates")
    parser.add_argument("--rounds", type=int, default=3, help="how often each page is timed; kraken's once")
    parser.add_argument("--verbose", action="store_true", help="a row for each page")
    options = parser.parse_args()
    torch.set_num_threads(2)
    cv2.setNumThreads(2)
    recognizer = Recognizer.load(options.model) if options.model else None
    truths = [truth_of(file) for file in sorted(options.pages.rglob("*.xml")) if xml.sniff(file) in ROOTS]
    for name in options.segmenter:
        find = segmenter(name)
        groups: dict[str, list[dict[str, object]]] = defaultdict(list)
        for truth in truths:
            regions, seconds, used = timed(find, truth.image, options.rounds if name == "builtin" else 1)
            result = score(truth.baselines, [line.baseline for region in regions for line in region.lines])
            row: dict[str, object] = {
                "recall": result.recall,
                "precision": result.precision,
                "f": result.f_value,
                "whole": result.whole,
                "segment": seconds,
                "used": used,
            }
            if recognizer:
                row |= reading_errors(recognizer, truth, regions, result)
            groups[truth.file.parent.name].append(row)
            if options.verbose:
                print(f"  {truth.file.parent.name}/{truth.file.stem}: {describe([row])}", flush=True)
        print(f"\n{name}: means over pages")
        groups["all"] = [row for group in list(groups.values()) for row in group]
        for group, rows in groups.items():
            print(f"  {group:18s} {len(rows):3d} pages  {describe(rows)}", flush=True)


def describe(rows: list[dict[str, object]]) -> str:
    keys = ("recall", "precision", "f", "whole")
    text = "  ".join(f"{key} {mean(rows, key):.3f}" for key in keys)  # type: ignore[arg-type]
    text += f"  {mean(rows, 'segment'):.2f} s, {mean(rows, 'used'):.2f} s of processor"  # type: ignore[arg-type]
    if "given" in rows[0]:
        text += "  CER " + " ".join(f"{key} {rate(rows, key):.1%}" for key in ("given", "found", "page"))
        text += f"  read in {mean(rows, 'seconds'):.1f} s"  # type: ignore[arg-type]
    return text


if __name__ == "__main__":
    main()
