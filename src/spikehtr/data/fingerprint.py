"""Whether a source is still what it was: a digest of the names, sizes and times of its files, none of them read whole.

Files are found as the readers find them: ~ is filled in, links are followed, and what a list, a page or a Parquet
file names counts wherever it lies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from spikehtr.data.formats import ln, locate, machine, parquet, written, xml_pages
from spikehtr.data.formats.helpers import walk

_READING = 9  # one more whenever the same files are made into other lines than before
_TEXTS = (".xml", ".txt")  # what people edit
_OURS = (".arrow", ".lock")  # stores and their locks; no reader looks for them in a folder


def fingerprint(specs: Sequence[str | Path], settings: str) -> str:
    """Changes when a source's files change in name, size or time, or the `settings` they are compiled with."""
    digest = hashlib.sha256(f"{_READING} {settings}".encode())

    def add(line: str) -> None:
        digest.update(f"\n{line}".encode(errors="surrogateescape"))  # file names are any bytes

    for spec in specs:
        name, path = locate(spec)
        add(f"{name or ''} {path.absolute()}")  # not resolved: a link's own name may be that of a split
        for file in _files(path.absolute()):
            try:
                facts = file.stat()
            except OSError:  # a broken link, or gone this moment: the reader will say so
                continue
            # Some editors set the time of a change back; no program can do that to the time of a file's last status.
            changed = facts.st_ctime_ns if file.suffix.lower() in _TEXTS else ""
            add(f"{file} {facts.st_size} {facts.st_mtime_ns} {changed}")
    return digest.hexdigest()[:24]


def _files(path: Path) -> Iterator[Path]:
    """What a source's lines may come from. Hidden files are not, so that a store's unfinished parts do not count."""
    images = xml_pages.ImageFinder()
    lists, seen = machine.ReadLists(path), set[Path]()
    for file in walk(path):
        kind = file.suffix.lower()
        if kind in _TEXTS and file.parent not in seen:
            new = [folder for folder in lists.folders(file) if folder not in seen]
            yield from (folder / notes for folder in new for notes in (machine.READ, written.NOTES))
            seen.update(new)
        if file != path and kind in _OURS:
            continue
        yield file
        if kind == ".ln":
            yield from ln.named_files(file)
        elif kind == ".parquet":
            yield from parquet.named_files(file)
        elif kind == ".xml" and (image := images.find(file, xml_pages.named_image(file))):
            yield image
