"""How well and how fast pages are divided into lines, and what that costs in reading.

    python benchmarks/pages.py PAGES                                # a folder of PAGE or ALTO files with their images
    python benchmarks/pages.py PAGES --segmenter network rules kraken  # beside each other; kraken where it is installed
    python benchmarks/pages.py PAGES --model model.safetensors      # and character error rates, given and found lines

Baselines are scored as spikehtr/pages/score_lines.py says. Each page is a sample; figures are means over the pages of a
folder. Seconds are of one page at a time on two threads, image decoding included, the least of --rounds: wall time, and
processor time, which says more on a machine that others use too.
Character error rates (all edits over all characters of a folder): 'given' reads the lines of the file, 'own' the
lines that were found. 'lines' compares line by line; of own lines, those that match one of the file's, and the text
of lines that were not found counts as wrong. 'joined' does so too, but where several found lines lie on one of the
file's, as where a row is parted at a ruled column, their texts count from left to right. 'page' compares all that was
read on a page, in reading order, with all its text, in the file's order: lines that the file does not have (print,
the facing page) count against it, and so does another order. Seconds to read: cutting lines out, the network,
decoding; the image is decoded already.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import torch
from rapidfuzz.distance import Levenshtein

from spikehtr.data.formats import xml
from spikehtr.data.images import open_gray
from spikehtr.data.samples import ImportReport
from spikehtr.evaluation.rate_tables import columns
from spikehtr.pages.found import FoundLayout, FoundRegion, Segmenter
from spikehtr.pages.given import ROOTS, read_given
from spikehtr.pages.page_lines import ReadBy, SegmentedPage, assemble, cut_lines, found_sheet, given_sheet
from spikehtr.pages.score_lines import WHOLE, Line, Score, cover_of, resample, score
from spikehtr.pages.segmenters import segmenter
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page
from spikehtr.text import normalise

Row = dict[str, Any]  # the figures of one page: numbers, and (edits, characters) of error rates


class Truth(NamedTuple):
    file: Path
    image: Path
    ids: list[str]
    baselines: list[tuple[tuple[float, float], ...]]
    texts: list[str]


def truth_of(file: Path) -> Truth:
    """Baselines and texts of a file, in its order."""
    given = read_given(file)
    root = xml.load(file, ImportReport())
    texts = {line.id: normalise(line.text) for line in ROOTS[xml.name_of(root)](root).lines}
    lines = [line for region in given.regions for line in region.lines if len(line.baseline) > 1]
    ids = [line.id for line in lines]
    return Truth(file, given.image, ids, [line.baseline for line in lines], [texts.get(name, "") for name in ids])


def timed(find: Segmenter, image: Path, rounds: int) -> tuple[list[FoundRegion], float, float]:
    """Regions, and the least wall and processor seconds of any round."""
    regions: list[FoundRegion] = []
    wall, used = [], []
    for _ in range(rounds):
        start, before = time.perf_counter(), time.process_time()
        found = find(open_gray(image))
        regions = found.regions if isinstance(found, FoundLayout) else found
        wall.append(time.perf_counter() - start)
        used.append(time.process_time() - before)
    return regions, min(wall), min(used)


def errors(pairs: list[tuple[str, str]]) -> tuple[int, int]:
    """Edits and characters of (true, read) texts."""
    return sum(Levenshtein.distance(true, read) for true, read in pairs), sum(len(true) for true, _ in pairs)


def read(recognizer: Recognizer, sheet: SegmentedPage) -> tuple[Page, float]:
    """A page as it is read, and the seconds that took."""
    start = time.perf_counter()
    places, fitted = cut_lines(recognizer.fitting, sheet)
    page = assemble(sheet, places, recognizer.read_lines(fitted), ReadBy.reader(recognizer))
    return page, time.perf_counter() - start


def reading_errors(recognizer: Recognizer, truth: Truth, regions: list[FoundRegion], found: Score) -> Row:
    """Edits and characters for given and own lines, line by line and for the page; seconds to read."""
    given, given_seconds = read(recognizer, given_sheet(truth.file))
    own, own_seconds = read(recognizer, found_sheet(truth.image.name, open_gray(truth.image), lambda _: regions))
    by_id = {line.id: normalise(line.text) for line in given.lines}
    texts = [normalise(line.text) for line in own.lines]
    partner = dict(found.matches)
    parts = parts_of(truth.baselines, [line.baseline for region in regions for line in region.lines])
    whole = " ".join(truth.texts)
    return {
        "lines given": errors([(true, by_id.get(name, "")) for true, name in zip(truth.texts, truth.ids, strict=True)]),
        "lines own": errors([(true, texts[partner[i]] if i in partner else "") for i, true in enumerate(truth.texts)]),
        "joined own": errors([(true, " ".join(texts[j] for j in parts[i])) for i, true in enumerate(truth.texts)]),
        "page given": errors([(whole, " ".join(by_id.get(name, "") for name in truth.ids))]),
        "page own": errors([(whole, " ".join(texts))]),
        "read given": given_seconds,
        "read own": own_seconds,
        "read lines": len(given.lines),
    }


def parts_of(true: Sequence[Line], found: Sequence[Line]) -> list[list[int]]:
    """Of each true line the found ones that lie on it and on no other as much, from left to right."""
    parts: list[list[int]] = [[] for _ in true]
    if parts and found:
        back = cover_of([resample(line) for line in true], [resample(line) for line in found]).back
        for j, i in enumerate(back.argmax(0)):
            if back[i, j] >= WHOLE:
                parts[i].append(j)
    return [sorted(one, key=lambda j: min(x for x, _ in found[j])) for one in parts]


def mean(rows: list[Row], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def rate(rows: list[Row], key: str) -> float:
    edits, characters = zip(*(row[key] for row in rows), strict=True)
    return sum(edits) / max(1, sum(characters))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, help="a folder with a folder for each document")
    parser.add_argument("--segmenter", nargs="+", default=["builtin"], metavar="NAME|FILE")
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
        groups: dict[str, list[Row]] = defaultdict(list)
        for truth in truths:
            regions, seconds, used = timed(find, truth.image, 1 if name == "kraken" else options.rounds)
            result = score(truth.baselines, [line.baseline for region in regions for line in region.lines])
            row: Row = {
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
                name_of = f"{truth.file.parent.name}/{truth.file.stem}"
                print("\n".join(table({name_of: [row]})), flush=True)
        groups["all"] = [row for group in list(groups.values()) for row in group]
        print(f"\nsegmenter {name}" + (f", model {options.model.name}" if options.model else ""))
        print("\n".join(table(groups)), flush=True)


def table(groups: dict[str, list[Row]]) -> list[str]:
    """A row a folder: how lines were found, and where a model was given how they were read."""
    scores, times = ("recall", "precision", "f", "whole"), ("segment", "used")
    head = ["pages of", "pages", *scores, "s to segment", "s of processor"]
    body = [
        [name, len(rows), *(f"{mean(rows, key):.3f}" for key in scores), *(f"{mean(rows, key):.2f}" for key in times)]
        for name, rows in groups.items()
    ]
    out = list(columns(head, body))
    if "page own" in next(iter(groups.values()))[0]:
        rates, spent = ("page given", "page own", "lines given", "lines own", "joined own"), ("read given", "read own")
        head = ["CER", *rates, "s to read given", "own", "lines/s"]
        body = [
            [
                name,
                *(f"{rate(rows, key):.1%}" for key in rates),
                *(f"{mean(rows, key):.1f}" for key in spent),
                f"{mean(rows, 'read lines') / mean(rows, 'read given'):.1f}",
            ]
            for name, rows in groups.items()
        ]
        out += columns(head, body)
    return out


if __name__ == "__main__":
    main()
