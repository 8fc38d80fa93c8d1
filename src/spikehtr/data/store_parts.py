"""The parts a store is made of: small Arrow files, each whole or not there, joined into one at the end.

What makes a store, from files or by drawing, writes parts of `PART` lines into a folder beside it. A run that was
killed leaves its parts, and the next one with the same key goes on behind them.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from filelock import FileLock
from numpy.typing import NDArray

from spikehtr.data.samples import CORRECTED_ELSEWHERE, ImportReport, Problem
from spikehtr.data.store import KEY, SCHEMA, VERSION, encode
from spikehtr.files import whole_file
from spikehtr.text import normalise

PART = 512  # lines a part; also the rows of a record batch, at most

Row = dict[str, Any]


def parts_of(output: Path) -> Path:
    """The folder of a store's parts while it is made."""
    return output.with_name(f".{output.name}.parts")


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """Keeps other programs out while a store is made. The lock goes with us; who waits for it makes a new one."""
    lock = output.with_name(f".{output.name}.lock")
    with FileLock(lock):
        try:
            yield
        finally:
            with suppress(OSError):  # where a file in use cannot be taken away
                lock.unlink()


def claim(parts: Path, key: str) -> None:
    """Parts of a run over the same unchanged sources are gone on with; others are cleared away."""
    note = parts / "sources"
    if not note.is_file() or note.read_text() != key:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        note.write_text(key)


def pack(line: NDArray[np.uint8]) -> Row:
    """The columns of a row that its pixels [height, width] fill."""
    packed = encode(line)
    return {"width": line.shape[1], "image": packed, "checksum": zlib.crc32(packed)}


def write_part(path: Path, results: list[Row | Problem]) -> None:
    """Rows as Arrow, problems as JSON in its header, under a temporary name first."""
    problems = [result for result in results if isinstance(result, Problem)]
    rows = [result for result in results if not isinstance(result, Problem)]
    header = {
        b"problems": json.dumps([[p.kind, p.where, p.message, p.remedy] for p in problems]).encode(),
        b"machine": json.dumps([place for place, row in enumerate(rows) if row.pop("machine")]).encode(),
    }
    schema = SCHEMA.with_metadata(header)
    with _arrow_file(path, schema) as writer:
        if rows:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))


def join_parts(folder: Path, output: Path, described: dict[str, Any], report: ImportReport) -> None:
    parts = sorted(folder.glob("*.arrow"))
    characters: dict[str | None, set[str]] = {}
    counts: Counter[str] = Counter()
    sets: dict[str, None] = {}  # in the order of their first lines
    machine: list[int] = []  # rows
    for part in parts:
        with pa.memory_map(os.fsencode(part)) as source:
            file = pa.ipc.open_file(source)
            for problem in json.loads(file.schema.metadata[b"problems"]):
                report.add(*problem)
                report.used -= 1  # the reader yielded it, but it did not make it into the store
            machine += [counts.total() + row for row in json.loads(file.schema.metadata[b"machine"])]
            for text, split, source in _facts(file):
                characters.setdefault(split, set()).update(normalise(text))
                counts[split or "none"] += 1
                sets[source] = None
    charset = characters.get("train") or set().union(*characters.values())
    meta = {
        **described,
        "version": VERSION,
        "charset": sorted(charset),
        "lines": dict(counts),
        "sets": list(sets),
        "left_out": report.left_out,
        "machine_read": report.machine_read,  # left out, too
        "corrected_elsewhere": report.counts["warning", CORRECTED_ELSEWHERE],
        "machine_rows": machine,
    }
    schema = SCHEMA.with_metadata({KEY: json.dumps(meta, ensure_ascii=False).encode()})
    with _arrow_file(output, schema) as writer:
        for part in parts:
            with pa.memory_map(os.fsencode(part)) as source:
                file = pa.ipc.open_file(source)
                for number in range(file.num_record_batches):
                    writer.write_batch(file.get_batch(number).replace_schema_metadata(schema.metadata))


@contextmanager
def _arrow_file(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    with whole_file(path) as temporary, pa.OSFile(os.fsencode(temporary), "wb") as sink:  # noqa: SIM117
        with pa.ipc.new_file(sink, schema) as writer:
            yield writer


def _facts(file: pa.RecordBatchFileReader) -> Iterator[tuple[str, str | None, str]]:
    """Text, split and source of each line."""
    for number in range(file.num_record_batches):
        batch = file.get_batch(number)
        yield from zip(*(batch[name].to_pylist() for name in ("text", "split", "source")), strict=True)
