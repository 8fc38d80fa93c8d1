"""LAM, the Ludovico Antonio Muratori set: `lines/img` and `lines/split/<name>/{train,val,test}.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spikehtr.data.formats.helpers import UniqueNames, decode, image_missing
from spikehtr.data.samples import ImportReport, Sample, has_text, split_named

LOOKS_FOR = "lines/img and lines/split/basic/train.json, val.json, test.json"
USUAL = "basic"  # the split that papers report on; the others leave decades out

_ORDER = ("train", "validation", "test")


def recognises(path: Path) -> bool:
    return _lines_folder(path) is not None


def _lines_folder(path: Path) -> Path | None:
    places = (place for place in (path, path / "lines") if (place / "img").is_dir())
    return next((place for place in places if _split_files(place / "split", ImportReport())), None)


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    folder = _lines_folder(path)
    if folder is None:
        return
    names = UniqueNames()
    for file in _split_files(folder / "split", report):
        yield from _read_split(file, folder / "img", names, report)


def _split_files(folder: Path, report: ImportReport) -> list[Path]:
    """The JSON files of one way of splitting; which one is said where there are several."""
    ways = {file.parent: file.parent.name for file in sorted(folder.rglob("*.json")) if split_named(file.name)}
    if not ways:
        return []
    chosen = next((way for way, name in ways.items() if name == USUAL), next(iter(ways)))
    if len(ways) > 1:
        message = f"several ways of splitting ({', '.join(ways.values())}): {chosen.name!r} is taken"
        report.add("several splits", folder, message, "to take another, move the rest out of the folder", "warning")
    files = [(split, file) for file in sorted(chosen.glob("*.json")) if (split := split_named(file.name))]
    return [file for _, file in sorted(files, key=lambda item: _ORDER.index(item[0]))]


def _read_split(file: Path, images: Path, names: UniqueNames, report: ImportReport) -> Iterator[Sample]:
    for number, entry in enumerate(_entries(file, report), start=1):
        where = f"{file}, entry {number}"
        name, text = (entry.get("img"), entry.get("text")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(text, str):
            message = f'not of the form {{"img": file name, "text": transcript}}: {str(entry)[:80]}'
            report.add("bad entry", where, message, "mend the entry, or take it out")
            continue
        image = images / name
        if not image.is_file():
            image_missing(where, f"no image {name!r} in {images}", report)
        elif has_text(text, f"{where} ({name})", report):
            yield Sample(
                names.take(image.stem, where, report),
                text,
                image,
                origin=f"{where} ({name})",
                split=split_named(file.name),
                page=image.stem.rpartition("_")[0] or None,  # 002_02_00.jpg is line 00 of page 002_02
            )


def _entries(file: Path, report: ImportReport) -> list[Any]:
    try:
        if (text := decode(file.read_bytes(), file, report)) is None:
            return []
        entries: Any = json.loads(text)
    except OSError as error:
        report.add("unreadable file", file, f"cannot be read ({error.strerror})", "make the file readable")
    except (ValueError, RecursionError) as error:
        report.add("broken JSON", file, f"cannot be read ({error})", "mend the file, or unpack the archive again")
    else:
        if isinstance(entries, list):
            return entries
        report.add("broken JSON", file, "not a list of entries", "unpack the archive again")
    return []
