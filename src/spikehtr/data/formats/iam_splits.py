"""IAM's splits by list files: the official task's, the 'Aachen' ones, or anyone's own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from spikehtr.data.formats.helpers import IMAGE_SUFFIXES, rows
from spikehtr.data.samples import ImportReport, Split, split_named

_LIST_SUFFIXES = frozenset({".txt", ".lst", ".list", ".uttlist", ".ln", ""})
_ENTRY_SUFFIXES = IMAGE_SUFFIXES | {".txt", ".xml"}
# A line that is listed twice goes to the later part of these, so that no test line is ever trained on.
_ORDER: tuple[Split, ...] = ("train", "validation", "test")


def form_of(line_id: str) -> str:
    """`a01-000u-00` -> `a01-000u`"""
    return line_id.rpartition("-")[0]


def read_splits(path: Path, lines: Collection[str], report: ImportReport) -> dict[str, Split]:
    """Which split each line is in, by the list files of the first place that has any; lines in no list have none."""
    lists = _list_files(path, report)
    forms: dict[str, list[str]] = {}
    for line in lines:
        forms.setdefault(form_of(line), []).append(line)
    splits: dict[str, Split] = {}
    for file in sorted(lists, key=lambda file: _ORDER.index(lists[file])):
        split = lists[file]
        for number, row in rows(file, report):
            where, entry = f"{file}, row {number}", _id(row)
            named = [entry] if entry in lines else forms.get(entry, [])
            if not named:
                message = f"{entry[:80]!r} is neither a line nor a form that is here"
                report.add(
                    "listed but not there", where, message, "add its transcript, or take it off the list", "warning"
                )
            for line in named:
                if splits.get(line, split) != split:
                    message = f"{line} is also listed for {splits[line]}; it is used for {split}"
                    report.add("in two splits", where, message, "take it off one of the lists", "warning")
                splits[line] = split
    return splits


def _list_files(path: Path, report: ImportReport) -> dict[Path, Split]:
    folders = sorted(place for place in path.iterdir() if place.is_dir())
    named = [place for word in ("aachen", "task") for place in folders if word in place.name.lower()]
    places = [path, *(place for place in (path / "splits", path / "split") if place.is_dir()), *named]
    found = {place: lists for place in dict.fromkeys(places) if (lists := _lists_in(place))}
    if not found:
        return {}
    chosen, *others = found
    if others:
        message = f"lists of splits in {len(found)} folders: those of {chosen} are taken"
        report.add("several splits", path, message, f"to take others, move {chosen.name}'s lists away", "warning")
    return found[chosen]


def _lists_in(folder: Path) -> dict[Path, Split]:
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and file.suffix.lower() in _LIST_SUFFIXES)
    return {file: split for file in files if (split := split_named(file.name))}


def _id(entry: str) -> str:
    """An entry without the folder before its name and the file's ending after it."""
    name = PurePosixPath(entry.split()[0].replace("\\", "/"))
    return name.stem if name.suffix.lower() in _ENTRY_SUFFIXES else name.name
