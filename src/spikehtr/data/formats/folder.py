"""Line images with a text file beside each: `x.png` and `x.gt.txt` or `x.txt`, in any tree of folders.

A folder named like a split (`train`, `val`, `test`) gives the split, the nearest other folder the document. An `x.txt`
that `transcribe` wrote and nobody changed is what a model read; an `x.gt.txt` is always a person's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from spikehtr.data.formats.helpers import (
    IMAGE_SUFFIXES,
    UniqueNames,
    document_of,
    image_missing,
    read_transcript,
    split_of,
    walk,
)
from spikehtr.data.formats.written import WrittenFiles
from spikehtr.data.samples import ImportReport, Sample

LOOKS_FOR = "line images with x.gt.txt or x.txt beside x.png"

_TEXT = frozenset({".txt"})
_ENDINGS = (".gt.txt", ".txt")


def recognises(path: Path) -> bool:
    if not path.is_dir():
        return False
    return any(
        (image.parent / f"{image.stem}{end}").is_file() for image in walk(path, IMAGE_SUFFIXES) for end in _ENDINGS
    )


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    if not path.is_dir():
        return
    written = WrittenFiles(path)
    for folder, files in groupby(walk(path, IMAGE_SUFFIXES | _TEXT, report), key=lambda file: file.parent):
        yield from _read_folder(folder, [file.name for file in files], path, written, report)


def _read_folder(
    folder: Path, names: list[str], root: Path, written: WrittenFiles, report: ImportReport
) -> Iterator[Sample]:
    texts = {name for name in names if name.lower().endswith(".txt")}
    unused = set(texts)
    ids = UniqueNames()
    split, document = split_of(folder / "x", root), document_of(folder / "x", root)
    for name in names:
        if name in texts:
            continue
        image = folder / name
        found = [image.stem + end for end in _ENDINGS if image.stem + end in texts]
        unused.difference_update(found)
        if not found:
            message = f"no {image.stem}.gt.txt or {image.stem}.txt beside it"
            report.add("text missing", image, message, "write the line's transcript there, or take the image out")
            continue
        text = read_transcript(folder / found[0], report)
        if text is None:
            continue
        key = image.relative_to(root).with_suffix("").as_posix()
        machine = not found[0].endswith(".gt.txt") and written.holds(folder / found[0])
        line, where = ids.take(key, image, report), str(image)
        yield Sample(line, text, image, where, split=split, document=document, machine=machine)
    for name in sorted(unused):
        if name.endswith(".gt.txt"):
            image_missing(folder / name, "a transcript without its line image", report)
        else:  # a read-me, more likely than not
            remedy = "nothing to do, unless it is a transcript: then put its image beside it"
            report.add("text without image", folder / name, "no image of this name", remedy, "warning")
