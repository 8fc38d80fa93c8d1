"""One reader per format. `read` takes any of them: found out from what is there, or named as `format:path`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from spikehtr.data.formats import alto_xml, folder, iam, lam, ln, page_xml, parquet
from spikehtr.data.formats.helpers import walk
from spikehtr.data.samples import MACHINE, NOTHING_FOUND, ImportReport, Sample
from spikehtr.errors import SpikeHTRError


class SourceFormat(NamedTuple):
    looks_for: str  # what tells the format, in words
    recognises: Callable[[Path], bool]
    read: Callable[[Path, ImportReport], Iterator[Sample]]


def _is_store(path: Path) -> bool:
    from spikehtr.data.store import is_store

    return is_store(path)


def _read_store(path: Path, report: ImportReport) -> Iterator[Sample]:
    from spikehtr.data.store import read_store

    return read_store(path, report)


# The order is that of detection: the more particular layout comes first.
_READERS = {
    "store": SourceFormat("a store compiled by this program", _is_store, _read_store),
    "parquet": SourceFormat(parquet.LOOKS_FOR, parquet.recognises, parquet.read),
    "iam": SourceFormat(iam.LOOKS_FOR, iam.recognises, iam.read),
    "lam": SourceFormat(lam.LOOKS_FOR, lam.recognises, lam.read),
    "ln": SourceFormat(ln.LOOKS_FOR, ln.recognises, ln.read),
    "read2016": SourceFormat(page_xml.LOOKS_FOR_READ2016, page_xml.recognises_read2016, page_xml.read),
    "page": SourceFormat(page_xml.LOOKS_FOR, page_xml.recognises, page_xml.read),
    "alto": SourceFormat(alto_xml.LOOKS_FOR, alto_xml.recognises, alto_xml.read),
    "folder": SourceFormat(folder.LOOKS_FOR, folder.recognises, folder.read),
}
FORMATS = tuple(_READERS)


def detect(path: Path) -> str:
    """The name of the format that is at `path`."""
    if not _look(path)[1]:
        raise SpikeHTRError(f"no such file or folder: {path}")
    try:
        found = next((name for name, reader in _READERS.items() if reader.recognises(path)), None)
    except OSError as error:
        raise SpikeHTRError(f"{path} cannot be read: {error.strerror}; make it readable") from None
    if found:
        return found
    if path.is_dir() and next(walk(path), None) is None:
        raise SpikeHTRError(
            f"{path} holds no file: check the path, or put lines there (docs/reference/line-formats.md says which)"
        )
    looked = "\n".join(f"  {name}: {reader.looks_for}" for name, reader in _READERS.items())
    raise SpikeHTRError(
        f"{path} holds no handwriting data in a format known here. Looked for:\n{looked}\n"
        f"If it is one of these all the same, name it: format:{path}"
    )


def read(spec: str | Path, report: ImportReport, machine_lines: bool = False) -> Iterator[Sample]:
    """The samples at a path, or at `format:path`, one by one; `report` gets the count and all that was not used.

    Lines whose text is a model's, unchanged and unconfirmed, are left out unless `machine_lines`. What a store holds is
    what was asked for when it was made.
    """
    name, path = locate(spec)
    name = name or detect(path)
    return _read(name, path, report, machine_lines or name == "store")


def _read(name: str, path: Path, report: ImportReport, machine_lines: bool) -> Iterator[Sample]:
    before = report.used, report.counts.total()
    samples = _READERS[name].read(path, report)
    wanted = samples if machine_lines else _by_persons(samples, report)
    yield from report.watch(_writable(wanted, report))
    if (report.used, report.counts.total()) == before:
        message = f"nothing found to read as {name!r}; looked for: {_READERS[name].looks_for}"
        report.add(NOTHING_FOUND, path, message, "check the path, or name another format: format:path")


def _by_persons(samples: Iterator[Sample], report: ImportReport) -> Iterator[Sample]:
    for sample in samples:
        if sample.machine:
            message = f"{sample.text!r} is as the model read it: nobody has changed or confirmed it"
            how = "docs/how-to/correct-and-fine-tune.md"
            remedy = f"correct it, or confirm it ({how}), or take all such lines with --machine-lines"
            report.add(MACHINE, sample.origin, message, remedy, "warning")
        else:
            yield sample


def _writable(samples: Iterator[Sample], report: ImportReport) -> Iterator[Sample]:
    """Those whose text can be written as UTF-8, under names that can."""
    for sample in samples:
        try:
            sample.text.encode()
        except UnicodeEncodeError as error:
            message = f"character {error.start + 1} of {ascii(sample.text)[:60]} is half of one"
            report.add("wrong encoding", sample.origin, message, "write the character whole")
        else:
            yield sample.named_printably()


def locate(spec: str | Path) -> tuple[str | None, Path]:
    """The format, if `spec` names one, and the path. What exists as it is written is a path, colons or not."""
    path, there = _look(spec)
    if there:
        return None, path
    if isinstance(spec, Path) or ":" not in spec:
        raise SpikeHTRError(f"no such file or folder: {path}")
    name, _, rest = spec.partition(":")
    path, there = _look(rest)
    if name.lower() in _READERS:
        if not rest:
            raise SpikeHTRError(f"{spec!r} names a format but no path; write {name}:PATH")
        if not there:
            raise SpikeHTRError(f"no such file or folder: {path}")
        return name.lower(), path
    near = get_close_matches(name.lower(), FORMATS, n=1)
    if near or (rest and there):
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(FORMATS)}"
        raise SpikeHTRError(f"unknown format {name!r} in {spec!r}; {hint}")
    raise SpikeHTRError(f"no such file or folder: {spec}")


def _look(path: str | Path) -> tuple[Path, bool]:
    """A path with ~ filled in, and whether it is there; impossible names are not, and raise nothing."""
    full = os.path.expanduser(path)  # noqa: PTH111
    return Path(full), os.path.exists(full)  # noqa: PTH110
