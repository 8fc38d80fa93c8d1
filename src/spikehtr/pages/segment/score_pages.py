"""A segmenter on pages whose lines are known: a row of figures for each page, and tables of them."""

from __future__ import annotations

import statistics
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats import xml
from spikehtr.data.images import open_gray
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLayout, Segmenter
from spikehtr.pages.given import read_given
from spikehtr.pages.inputs import ROOTS
from spikehtr.pages.quarter_turns import quarter
from spikehtr.pages.segment.labels import labels_of
from spikehtr.pages.segment.measures import page_score
from spikehtr.pages.segment.packed_pages import INDEX, PackedPage, folds, unpack
from spikehtr.pages.segment.photographed import SeenPage, View, views

Row = dict[str, Any]
SCORES = ("recall", "precision", "f", "whole", "split", "merged", "missed", "false", "disorder", "jumps")
FOLDS = 5


class KnownPage(NamedTuple):
    """A page and its baselines, in reading order."""

    name: str  # "collection/page"
    collection: str
    image: NDArray[np.uint8]
    lines: list[NDArray[np.float64]]


class Result(NamedTuple):
    """What was found on a page, beside what is there."""

    row: Row
    page: SeenPage
    found: list[NDArray[np.float64]]


def known_pages(sources: Sequence[Path], collections: Sequence[str] | None, problems: list[str]) -> Iterator[KnownPage]:
    """Pages of packed folders, and of folders with PAGE or ALTO files at their own size; of some collections only.

    What cannot be used is noted in `problems`.
    """
    for source in sources:
        packed = (source / INDEX).is_file()
        for page in map(_of_packed, unpack(source)) if packed else _of_files(source, problems):
            if collections is None or page.collection in collections:
                yield page


def _of_packed(page: PackedPage) -> KnownPage:
    return KnownPage(page.name, page.collection, page.image, [line.points for line in page.labels.lines])


def _of_files(folder: Path, problems: list[str]) -> Iterator[KnownPage]:
    files = sorted(file for file in folder.rglob("*.xml") if xml.sniff(file) in ROOTS)
    if not files:
        raise SpikeHTRError(f"{folder}: no PAGE or ALTO files in it; give a folder with XML files and their images")
    for file in files:
        try:
            given = read_given(file)
            image = np.asarray(open_gray(given.image, given.frame))
        except SpikeHTRError as error:
            problems.append(f"{file}: {error}")
            continue
        lines = [line.points for line in labels_of(given).lines]
        yield KnownPage(f"{file.parent.name}/{file.stem}", file.parent.name, image, lines)


def left_out(pages: Iterable[Any], fold: int | None, named: Sequence[str]) -> set[str]:
    """The collections of a fold (of FOLDS), and those that are named."""
    every = [page.collection for page in pages]
    if unknown := set(named) - set(every):
        raise SpikeHTRError(
            f"no collection {', '.join(sorted(unknown))}: there are {', '.join(sorted(set(every))) or 'none'}"
        )
    return set(named) | (set() if fold is None else set(folds(every, FOLDS)[fold]))


def evaluate(find: Segmenter, pages: Iterable[KnownPage], view: View = "plain") -> Iterator[Result]:
    """Every page, seen in one of the ways that people have them."""
    for page in pages:
        seed = zlib.crc32(page.name.encode())
        for seen in views(page.image, page.lines, view, seed):
            yield _result(find, page, seen)


def _result(find: Segmenter, page: KnownPage, seen: SeenPage) -> Result:
    start = time.perf_counter()
    layout = find(Image.fromarray(seen.image))
    seconds = time.perf_counter() - start
    layout = layout if isinstance(layout, FoundLayout) else FoundLayout(layout)
    found = [np.array(line.baseline, np.float64) for region in layout.regions for line in region.lines]
    turns = [quarter(line[[0, -1]].tolist()) for line in found]
    lies = statistics.mode(turns) if turns else 0
    row = {
        "page": page.name + f" turned {90 * seen.turns}" * bool(seen.turns),
        "collection": page.collection,
        **{name: round(value, 4) for name, value in page_score(seen.lines, found)._asdict().items()},
        "found": len(found),
        "lies right": float(lies == seen.turns),
        "cut in two": float(any(remark.startswith("two pages") for remark in layout.remarks)),
        "seconds": round(seconds, 3),
        "remarks": layout.remarks,
    }
    return Result(row, seen, found)


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Of the pages; of scores that ask for lines, of the pages that have some."""
    out = {}
    for name in (*SCORES, "lies right", "cut in two", "seconds"):
        counted = rows if name in ("precision", "false", "seconds", "cut in two") else [r for r in rows if r["lines"]]
        out[name] = statistics.fmean(row[name] for row in counted) if counted else 0.0
    return out


def by_collection(rows: Sequence[Row]) -> list[tuple[str, int, dict[str, float]]]:
    """(collection, pages, means), all pages together at the end."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["collection"]].append(row)
    out = [(name, len(groups[name]), means(groups[name])) for name in sorted(groups)]
    return [*out, ("all", len(rows), means(rows))]


def table(rows: Sequence[Row]) -> list[str]:
    """Means over pages, a line for each collection and one for all."""
    names = (*SCORES, "lies right", "seconds")
    out = [f"{'collection':20} pages " + " ".join(f"{name[:9]:>9}" for name in names)]
    for group, count, mean in by_collection(rows):
        out.append(f"{group[:20]:20} {count:5} " + " ".join(f"{mean[name]:9.3f}" for name in names))
    return out
