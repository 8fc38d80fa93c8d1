"""The three stages of a bulk run as Ray calls them: rows of pages in, rows of results out. An error is a row.

Opening a page and finding its lines is what other people's files can crash. It is done by a process beside the actor,
so a page that takes its process down is a row with its reason, and neither the actor nor the run ends.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from spikehtr.bulk.plan import job_of, local_copy
from spikehtr.data.geometry import FittedLine, LineFitting
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import ClientOptions, FetchError
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadBy, ReadOptions
from spikehtr.pages.page_source import Failure
from spikehtr.pages.page_stages import PreparedPage, finish_page, prepare_page
from spikehtr.pages.worker_pool import WorkerDied, WorkerPool
from spikehtr.results import Line, Page
from spikehtr.results.expected_error import ErrorEstimate

_log = logging.getLogger("spikehtr.bulk")

Rows = dict[str, Any]  # a column by its name, each an array of as many values
_TRIES = 2  # of a page whose process died: once may be anybody's fault


class BulkReader(Protocol):
    """What reads lines: a `LineReader`, or anything like it."""

    name: str
    precision: str
    estimate: ErrorEstimate | None

    @property
    def fitting(self) -> LineFitting: ...
    def read_lines(self, lines: list[FittedLine], batch_size: int | None = None) -> list[Line]: ...


@dataclass(frozen=True)
class Settings:
    """All that stages need to know."""

    load: Callable[[], BulkReader]
    fitting: LineFitting
    read: ReadOptions
    form: PageFormat
    client: ClientOptions
    batch_size: int | None = None  # lines read at a time; None: what suits the device
    longest: float = 900.0  # seconds for a page to be opened


class Opened(NamedTuple):
    """What became of a page in the process that opened it."""

    page: PreparedPage | None
    error_kind: str
    error: str
    seconds: float


def open_row(row: dict[str, Any], settings: tuple[ReadOptions, LineFitting, ClientOptions]) -> Opened:
    """In a process of its own: fetch a page, open it, find its lines and cut them out."""
    options, fitting, client = settings
    begun = time.perf_counter()

    def failed(kind: str, reason: str) -> Opened:
        return Opened(None, kind, reason, time.perf_counter() - begun)

    if row["error"]:
        return failed("location", row["error"])
    try:
        if row["kind"] == "iiif":
            page = prepare_page(job_of(row, Path(), client), options, fitting)
        else:
            with local_copy(row["location"], client) as path:
                page = prepare_page(job_of(row, path, client), options, fitting)
    except FetchError as error:
        return failed("fetch", str(error))
    except SpikeHTRError as error:
        return failed("fetch" if "://" in row["location"] else "page", str(error))
    if isinstance(page, Failure):
        return failed("page", page.reason)
    return Opened(page, "", "", time.perf_counter() - begun)


class OpenPages:
    """The first stage, an actor with a core."""

    def __init__(self, settings: Settings) -> None:
        self._pool = WorkerPool(1, settings.longest)
        self._settings = (settings.read, settings.fitting, settings.client)

    def __call__(self, rows: Rows) -> Rows:
        names = list(rows)
        opened = [
            self._open({name: _plain(value) for name, value in zip(names, values, strict=True)})
            for values in zip(*rows.values(), strict=True)
        ]
        kept = {name: rows[name] for name in ("id", "location")}
        return kept | {
            "page": _objects([b"" if one.page is None else _packed(one.page) for one in opened]),
            "error_kind": _objects([one.error_kind for one in opened]),
            "error": _objects([one.error for one in opened]),
            "seconds_open": np.array([one.seconds for one in opened]),
        }

    def _open(self, row: dict[str, Any]) -> Opened:
        begun = time.perf_counter()
        for _ in range(_TRIES):
            try:
                opened: Opened = self._pool.submit(open_row, row, self._settings).result()
                return opened
            except WorkerDied as error:
                reason = str(error)
            except Exception as error:  # such as what cannot be pickled: still no reason to stop
                reason = f"{type(error).__name__}: {error}"
                break
        return Opened(None, "crash", reason, time.perf_counter() - begun)


class ReadLines:
    """The second stage, an actor with a GPU or some cores: lines of all pages of a batch are read together."""

    def __init__(self, settings: Settings) -> None:
        self._reader = settings.load()
        self._batch_size = settings.batch_size

    def __call__(self, rows: Rows) -> Rows:
        begun = time.perf_counter()
        pages = [None if not data else pickle.loads(data) for data in rows["page"]]
        counts = [0 if page is None else len(page.lines) for page in pages]
        lines = [line for page in pages if page is not None for line in page.lines]
        read, errors = self._read(lines, counts)
        seconds = time.perf_counter() - begun
        ends = np.cumsum(counts)
        parts = [read[end - count : end] for count, end in zip(counts, ends, strict=True)]
        packed = [
            b"" if page is None else _packed((page._replace(lines=[]), part, ReadBy.reader(self._reader)))
            for page, part in zip(pages, parts, strict=True)
        ]
        failed = [errors.get(number, "") for number in range(len(pages))]
        kinds = ["read" if why else old for why, old in zip(failed, rows["error_kind"], strict=True)]
        return rows | {
            "page": _objects([b"" if why else data for data, why in zip(packed, failed, strict=True)]),
            "error_kind": _objects(kinds),
            "error": _objects([why or old for why, old in zip(failed, rows["error"], strict=True)]),
            "seconds_read": np.array([seconds * count / max(1, len(lines)) for count in counts]),
            "model": _objects([self._reader.name] * len(pages)),
            "precision": _objects([self._reader.precision] * len(pages)),
        }

    def _read(self, lines: list[FittedLine], counts: list[int]) -> tuple[list[Line | None], dict[int, str]]:
        """All lines; where that fails, page by page, so that one page's error is its own."""
        try:
            return list(self._reader.read_lines(lines, self._batch_size)), {}
        except Exception as fault:
            _log.warning("%d lines cannot be read together (%s): page by page", len(lines), fault)
            read: list[Line | None] = []
            errors = {}
            first = 0
            for number, count in enumerate(counts):
                try:
                    read += self._reader.read_lines(lines[first : first + count], self._batch_size)
                except Exception as error:
                    read += [None] * count
                    errors[number] = f"{type(error).__name__}: {error}"
                first += count
            return read, errors


def finish_rows(rows: Rows, settings: Settings) -> pa.Table:
    """The last stage: results as they are kept. A table, so that columns have one type whatever is in a batch."""
    done = [
        _finish(dict(zip(_FINISH, values, strict=True)), settings)
        for values in zip(*(rows[name] for name in _FINISH), strict=True)
    ]
    kept = {name: rows[name] for name in ("id", "location", "model", "precision", "seconds_open", "seconds_read")}
    kept |= {"format": [settings.form.form] * len(done)}
    kept |= {name: [row[name] for row in done] for name in _nothing()}
    return pa.table({name: pa.array(list(values), _TYPES.get(name, pa.string())) for name, values in kept.items()})


_FINISH = ("id", "page", "error_kind", "error")
_COUNTS = ("width", "height", "lines", "characters")
_SECONDS = ("seconds_open", "seconds_read", "seconds_write")
_TYPES = dict.fromkeys(_COUNTS, pa.int32()) | dict.fromkeys((*_SECONDS, "confidence", "expected_error"), pa.float64())


def _nothing() -> dict[str, Any]:
    """What there is to say of a page that could not be read."""
    row: dict[str, Any] = dict.fromkeys(("image", "text", "document", "problems", "error_kind", "error"), "")
    return row | dict.fromkeys(_COUNTS, 0) | {"confidence": 0.0, "expected_error": None, "seconds_write": 0.0}


def _finish(given: dict[str, Any], settings: Settings) -> dict[str, Any]:
    begun = time.perf_counter()
    row = _nothing() | {name: given[name] for name in ("error_kind", "error")}
    if not given["page"]:
        return row
    page, lines, by = pickle.loads(given["page"])
    name = given["id"]
    job = job_of({"location": name, "kind": "image", "id": name, "index": 0, "pages": 1}, Path(name), settings.client)
    result = finish_page(job, page, lines, by, settings.form)
    if isinstance(result.result, Failure):
        return row | {"error_kind": "write", "error": result.result.reason}
    return (
        row
        | _figures(result.result)
        | {
            "document": result.shown or "",
            "problems": "\n".join([*result.result.problems, *result.remarks]),
            "seconds_write": time.perf_counter() - begun,
        }
    )


def _figures(page: Page) -> dict[str, Any]:
    """What tables ask of a page."""
    sure = [glyph.confidence for line in page.lines for word in line.words for glyph in word.characters]
    return {
        "image": page.image,
        "width": page.width,
        "height": page.height,
        "lines": len(page.lines),
        "characters": len(sure),
        "text": page.to_text(),
        "confidence": sum(sure) / len(sure) if sure else 0.0,
        "expected_error": page.expected_error,
    }


def _packed(value: Any) -> bytes:
    """For the next stage of the same run: nothing pickled is written to the results."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _objects(values: list[Any]) -> Any:
    """A column of any values; a list of equal bytes would else become something of fixed width."""
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
