"""Lists as HTR-VT has them: `train.ln`, `val.ln`, `test.ln`, one image name a line, the images in `lines/`.

Each image has its transcript beside it, in a `.txt` file of the same stem. Lists may be of any length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from spikehtr.data.formats.helpers import IMAGE_SUFFIXES, UniqueNames, image_missing, read_transcript, rows
from spikehtr.data.samples import ImportReport, Sample, split_named

LOOKS_FOR = "lists of image names (train.ln, val.ln, test.ln) with the images and their .txt in lines/"


def recognises(path: Path) -> bool:
    return bool(_lists(path))


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    names = UniqueNames()
    for file in [path] if path.is_file() else _lists(path):
        yield from _read_list(file, names, report)


def named_files(file: Path) -> Iterator[Path]:
    """The images that a list names and that are there, each with the place of its transcript."""
    find = _finder(file)
    for _, name in rows(file, ImportReport()):
        place, _ = find(name)
        if place is not None:
            image = Path(place + name)
            yield from (image, image.with_suffix(".txt"))


def _lists(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".ln" else []
    order = ("train", "validation", "test", None)
    return sorted(path.glob("*.ln"), key=lambda file: (order.index(split_named(file.name)), file.name))


def _read_list(file: Path, names: UniqueNames, report: ImportReport) -> Iterator[Sample]:
    split, where = split_named(file.name), f"{file}, row "
    find = _finder(file)
    for number, name in rows(file, report):
        place, places = find(name)
        if place is None:
            image_missing(f"{where}{number}", f"no image {name[:200]!r} in {' or '.join(places)}", report)
            continue
        image = Path(place + name)
        text = read_transcript(image.with_suffix(".txt"), report)
        if text is not None:
            origin = f"{where}{number}"
            key = names.take(name.removesuffix(image.suffix), origin, report)
            yield Sample(key, text, image, origin, split)


def _finder(file: Path) -> Callable[[str], tuple[str | None, list[str]]]:
    """A function from a name in the list to the place that has it, if any, and the places that were tried.

    Plain strings rather than paths up to a found image: there may be millions of rows.
    """
    everywhere = [f"{place}{os.sep}" for place in (file.parent / "lines", file.parent) if place.is_dir()]
    # The list's own folder is tried for each row only if it has images at all, or the row names a folder.
    beside = any(path.suffix.lower() in IMAGE_SUFFIXES for path in file.parent.iterdir())
    usual = everywhere if beside else everywhere[:1]

    def find(name: str) -> tuple[str | None, list[str]]:
        places = everywhere if "/" in name else usual
        return next((place for place in places if _is_file(place + name)), None), places

    return find


def _is_file(path: str) -> bool:
    """As os.path.isfile, without the cost of an exception for each missing file."""
    return "\0" not in path and os.access(path, os.F_OK) and os.path.isfile(path)  # noqa: PTH113
