"""What a bulk run reads: a list of single pages with unique ids, made once and kept in the output folder.

A run that goes on uses the list that is there, so it is about the very same pages.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file
from spikehtr.pages.iiif import ClientOptions
from spikehtr.pages.iiif.manifests import is_address
from spikehtr.pages.inputs import SUFFIXES, find_sources
from spikehtr.pages.page_source import Kind, PageJob, Source, count_pages
from spikehtr.pages.remote import client_of, name_of

SCHEMA = pa.schema(
    [
        ("id", pa.string()),  # unique, and a path below which results can be unpacked
        ("location", pa.string()),  # a file, or an address by any protocol of fsspec
        ("kind", pa.string()),  # image, pdf, xml, iiif
        ("index", pa.int32()),  # which page of the location, from 0
        ("pages", pa.int32()),  # that the location has
        ("error", pa.string()),  # why the location cannot be read, where that is known already
    ]
)
_ROWS = 1 << 16  # in a group: what is held in memory
_MANIFESTS = (".csv", ".tsv", ".parquet")
_NAMES = {"id": ("id", "name", "page_id"), "location": ("location", "path", "uri", "url", "file", "image", "manifest")}


@dataclass
class Planned:
    """What was found."""

    pages: int = 0
    errors: int = 0
    remarks: list[str] = field(default_factory=list)


def write_plan(
    inputs: Iterable[str], file: Path, client: ClientOptions, tell: Callable[[int], None] = lambda pages: None
) -> Planned:
    """The list of all pages, as a Parquet file. Every id once: what is there twice is a mistake, and named."""
    found = Planned()
    seen: Counter[str] = Counter()
    twice: list[str] = []
    with whole_file(file) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for row, is_named in _rows(inputs, client, found):
            seen[row["id"]] += 1
            if seen[row["id"]] > 1 and is_named:
                twice.append(row["id"])
                continue
            while seen[row["id"]] > 1:  # files of one name in two folders, as `transcribe` names them
                row["id"] += f"~{seen[row['id']]}"
                seen[row["id"]] += 1
            rows.append(row)
            found.pages += not row["error"]
            found.errors += bool(row["error"])
            if len(rows) >= _ROWS:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows = []
            tell(found.pages)
        if twice:
            some = ", ".join(sorted(set(twice))[:5])
            raise SpikeHTRError(f"{len(twice)} ids are there more than once ({some}): give each page an id of its own")
        if not seen:
            raise SpikeHTRError("nothing to read: the inputs name no page")
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return found


def _rows(inputs: Iterable[str], client: ClientOptions, found: Planned) -> Iterator[tuple[dict[str, Any], bool]]:
    """Rows, each with whether its id was given by a manifest."""
    for one in inputs:
        if Path(one).suffix.lower() in _MANIFESTS and not is_address(one):
            for name, location in read_manifest(Path(one)):
                for row in _of_location(location, name, client):
                    yield row, name is not None
            continue
        sources, failures, remarks = find_sources([one], client=client) if _is_local(one) else ([], [], [])
        found.remarks += remarks
        for source in sources:
            place = source.place if source.kind == "iiif" else source.place.with_suffix("")
            location = source.address or str(source.path.absolute())
            yield from ((row, False) for row in _of_source(source, location, place.as_posix()))
        for failure in failures:
            yield _row(failure.title, failure.title, "image", error=failure.reason), False
        if not _is_local(one):
            yield from ((row, False) for row in _of_location(one, None, client))


def _is_local(name: str) -> bool:
    """Whether `find_sources` knows it: files, folders, globs and IIIF."""
    return "://" not in name or is_address(name)


def read_manifest(file: Path) -> Iterator[tuple[str | None, str]]:
    """Ids, where there are any, and locations of a CSV or Parquet file; its other columns are left alone."""
    try:
        for batch in _batches(file):
            columns = {
                what: next((name for name in names if name in batch.schema.names), None)
                for what, names in _NAMES.items()
            }
            location = columns["location"]
            if location is None:
                raise SpikeHTRError(
                    f"{file}: no column of locations; name it 'location' (found: {', '.join(batch.schema.names)})"
                )
            ids = batch.column(columns["id"]).to_pylist() if columns["id"] else [None] * len(batch)
            for name, place in zip(ids, batch.column(location).to_pylist(), strict=True):
                yield (None if name is None else str(name)), str(place or "")
    except (pa.ArrowInvalid, OSError) as error:
        raise SpikeHTRError(f"{file}: cannot be read as a manifest ({reason_of(error)})") from None


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    if file.suffix.lower() == ".parquet":
        yield from pq.ParquetFile(file).iter_batches()
        return
    parse = pyarrow.csv.ParseOptions(delimiter="\t" if file.suffix.lower() == ".tsv" else ",")
    text = pyarrow.csv.ConvertOptions(column_types={name: pa.string() for names in _NAMES.values() for name in names})
    yield from pyarrow.csv.open_csv(file, parse_options=parse, convert_options=text)


def _of_location(location: str, name: str | None, client: ClientOptions) -> Iterator[dict[str, Any]]:
    """The pages of one location. What cannot be looked into is a row too."""
    path = Path(location)
    suffix = PurePosixPath(location.split("?")[0]).suffix.lower()
    stem = name or (name_of(location) if "://" in location else path.stem)
    try:
        if not location.strip():
            raise SpikeHTRError("an empty location")
        if "://" not in location:
            if path.is_dir():
                raise SpikeHTRError("a folder: name its files, or give the folder itself to the command")
            if suffix not in SUFFIXES and suffix != ".json":
                raise SpikeHTRError("neither an image, a PDF, a PAGE or ALTO file nor a IIIF manifest")
        if (is_address(location) and suffix not in SUFFIXES) or suffix == ".json":
            for source in find_sources([location], client=client).sources:
                place = stem if source.place.parent == PurePath() else f"{stem}/{source.place.name}"
                yield from _of_source(source, source.address, place)
            return
        kind: Kind = "pdf" if suffix == ".pdf" else "xml" if suffix == ".xml" else "image"
        if kind == "xml" and "://" in location:
            raise SpikeHTRError("PAGE and ALTO files are read from disks only, with their images beside them")
        if kind == "image" and not (suffix in (".tif", ".tiff") and "://" not in location):
            yield _row(stem, location, "image")  # not opened: there may be millions
            return
        with local_copy(location, client) as copy:
            yield from _of_source(Source(copy, kind, PurePath(stem)), location, stem)
    except SpikeHTRError as error:
        yield _row(stem or location, location, "image", error=str(error))


def _of_source(source: Source, location: str, stem: str) -> Iterator[dict[str, Any]]:
    try:
        count = count_pages(source) if source.kind != "xml" and _may_have_several(source) else 1
    except SpikeHTRError as error:
        yield _row(stem, location, source.kind, error=str(error).removeprefix(f"{location}: "))
        return
    several = count > 1 or source.kind == "iiif"
    for index in range(count):
        if index not in source.given:
            yield _row(f"{stem}-{index + 1:04d}" if several else stem, location, source.kind, index, count)


def _may_have_several(source: Source) -> bool:
    return source.kind in ("pdf", "iiif") or source.path.suffix.lower() in (".tif", ".tiff")


def _row(name: str, location: str, kind: str, index: int = 0, pages: int = 1, error: str = "") -> dict[str, Any]:
    place = PurePosixPath(name.replace("\\", "/"))
    if not error and (place.is_absolute() or ".." in place.parts or not place.name):
        error = f"the id {name!r} cannot be a file's name: no '..' and no '/' at its beginning"
    return {"id": name, "location": location, "kind": kind, "index": index, "pages": pages, "error": error}


def job_of(row: dict[str, Any], path: Path, client: ClientOptions) -> PageJob:
    """The page of a row, whose file is at `path`."""
    location = row["location"]
    address = location if "://" in location or row["kind"] == "iiif" else ""
    source = Source(path, row["kind"], PurePath(row["id"]), address=address, client=client)
    return PageJob(source, row["index"], row["id"], pages=row["pages"])


@contextmanager
def local_copy(location: str, client: ClientOptions) -> Iterator[Path]:
    """A file of what a location holds: itself where it is one, else a copy for as long as the block lasts."""
    if "://" not in location:
        yield Path(location)
    elif is_address(location):
        yield client_of(client).fetch(location)
    else:
        with tempfile.TemporaryDirectory(prefix="spikehtr-") as folder:
            copy = Path(folder) / (PurePosixPath(location).name or "page")
            _copy(location, copy)
            yield copy


def _copy(location: str, copy: Path) -> None:
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(location)
        filesystem.get_file(path, str(copy))
    except ImportError as error:
        raise SpikeHTRError(f"{location}: {reason_of(error)}") from None
    except Exception as error:  # each protocol has errors of its own
        raise SpikeHTRError(f"{location}: cannot be fetched ({type(error).__name__}: {reason_of(error)})") from None
