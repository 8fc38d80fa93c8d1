"""Pages with their lines in one compact folder, to train a segmenter from: grey WebP images and one index."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats import xml
from spikehtr.data.images import open_gray
from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.pages.given import read_given
from spikehtr.pages.inputs import ROOTS
from spikehtr.pages.segment.compose_pages import ComposedPage
from spikehtr.pages.segment.labels import LineLabel, PageLabels, labels_of

INDEX = "pages.json.gz"
COMPOSED = "composed"  # the group of drawn pages, which are trained on, and never left out to be scored
LONGEST = 1600  # pixels of the longer side
TALLEST = 72.0  # pixels of the median line: pages with larger writing are kept smaller
QUALITY = 75


@dataclass(frozen=True, slots=True)
class PackedPage:
    """A page of a packed folder. Coordinates are pixels of its image there."""

    name: str  # "collection/page"
    collection: str
    group: str  # which of the packed folders it came from
    image: NDArray[np.uint8]  # [height, width]
    labels: PageLabels
    scale: float  # its image's pixels to one of the original


def pack(folders: Sequence[Path], out: Path) -> list[str]:
    """Packs every PAGE and ALTO file below the folders; a folder's name is the group of its pages.

    Returns what was left out, and why.
    """
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    (out / "images").mkdir(parents=True, exist_ok=True)
    for folder in folders:
        files = sorted(file for file in folder.rglob("*.xml") if xml.sniff(file) in ROOTS)
        if not files:
            raise SpikeHTRError(f"{folder}: no PAGE or ALTO files in it; give a folder with XML files and their images")
        for file in files:
            try:
                given = read_given(file)
                labels = labels_of(given)
                gray = np.asarray(open_gray(given.image))
            except SpikeHTRError as error:
                left_out.append(f"{file}: {error}")
                continue
            left_out += given.problems
            row = {"name": f"{file.parent.name}/{file.stem}", "collection": file.parent.name, "group": folder.name}
            rows.append(row | _keep(out, f"{len(rows):05d}.webp", gray, labels))
    _write_index(out, rows)
    return left_out


def pack_composed(pages: Iterable[ComposedPage], out: Path, tell: Callable[[int], None] = lambda done: None) -> int:
    """Packs composed pages as a collection of their own, of the folder's name; how many. `tell` hears of each."""
    (out / "images").mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for number, page in enumerate(pages):
        row = {"name": f"{out.name}/{number:05d}", "collection": out.name, "group": COMPOSED}
        rows.append(row | _keep(out, f"{number:05d}.webp", page.image, page.labels))
        tell(len(rows))
    _write_index(out, rows)
    return len(rows)


def _write_index(out: Path, rows: list[dict[str, Any]]) -> None:
    with whole_file(out / INDEX) as path:
        path.write_bytes(gzip.compress(json.dumps({"version": 1, "pages": rows}).encode(), mtime=0))


def _keep(out: Path, image: str, gray: NDArray[np.uint8], labels: PageLabels) -> dict[str, Any]:
    """Writes the image; what the index says of it and of its lines."""
    scale = min(1.0, LONGEST / max(gray.shape), TALLEST / max(labels.height, 1.0))
    if scale < 1:
        gray = np.asarray(cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))
    with whole_file(out / "images" / image) as path:
        Image.fromarray(gray).save(path, "WEBP", quality=QUALITY, method=4)
    small = labels.scaled(scale)
    return {
        "image": image,
        "scale": scale,
        "lines": [
            {
                "points": _short(line.points),
                "above": _short(line.above),
                "below": _short(line.below),
                "region": line.region,
            }
            for line in small.lines
        ],
        "regions": [_short(region) for region in small.regions],
    }


def _short(values: NDArray[np.float64]) -> Any:
    return np.round(values, 1).tolist()


def unpack(folder: Path) -> Iterator[PackedPage]:
    """The pages of a packed folder, images decoded."""
    index = folder / INDEX
    if not index.exists():
        raise SpikeHTRError(f"{folder}: no {INDEX} in it; make it a packed folder first")
    for row in json.loads(gzip.decompress(index.read_bytes()))["pages"]:
        lines = tuple(
            LineLabel(
                np.array(line["points"], np.float64),
                np.array(line["above"], np.float64),
                np.array(line["below"], np.float64),
                line["region"],
            )
            for line in row["lines"]
        )
        regions = tuple(np.array(region, np.float64).reshape(-1, 2) for region in row["regions"])
        with Image.open(folder / "images" / row["image"]) as image:
            gray = np.asarray(image.convert("L"))
        yield PackedPage(
            row["name"], row["collection"], row["group"], gray, PageLabels(lines, regions), float(row["scale"])
        )


def folds(collections: Sequence[str], number: int) -> list[list[str]]:
    """Collections dealt into folds of about the same number of pages: largest first, each to the smallest fold.

    `collections` has one entry a page.
    """
    names, counts = np.unique(list(collections), return_counts=True)
    sizes, out = [0] * number, [[] for _ in range(number)]  # type: tuple[list[int], list[list[str]]]
    for place in np.lexsort((names, -counts)):
        smallest = int(np.argmin(sizes))
        sizes[smallest] += int(counts[place])
        out[smallest].append(str(names[place]))
    return [sorted(fold) for fold in out]
