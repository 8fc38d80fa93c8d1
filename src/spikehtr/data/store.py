"""The compiled line store: one memory-mapped Arrow file, whatever the lines came from.

Each row is a line, grey and already of the store's height (64 pixels by default) at its natural width, so that reading
it is a decompression (zstd: as small as PNG, several times quicker) and at most one resize. Opening reads the footer
and two small columns only. Pixels are read from the file rather than through the map, and what was touched of the map
is given back as reading goes on, so a process stays small however large the file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import weakref
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.samples import ImportReport, Sample, Split, has_text
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset

VERSION = 2  # 1 did not note each line's source
KEY = b"spikehtr.store"  # where the file's description stands in the Arrow schema
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),  # as the source has it; normalised when it is used
        ("split", pa.string()),
        ("document", pa.string()),
        ("page", pa.string()),
        ("origin", pa.string()),
        ("source", pa.string()),  # which of `LineStore.sources` it is of
        ("width", pa.int32()),
        ("image", pa.binary()),
        ("checksum", pa.uint32()),
    ]
)
_RELEASE = 256  # rows looked up before the pages they touched are given back


class StoreError(SpikeHTRError):
    """A store that cannot be used, or a damaged line in one."""


def no_line_of(split: str, counts: Mapping[str, int], more: str = "") -> SpikeHTRError:
    found = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
    return SpikeHTRError(f"no line of split {split!r}; there are: {found}. Use --split all to read them all{more}")


def encode(line: NDArray[np.uint8]) -> bytes:
    """Pixels [height, width] -> bytes."""
    packed: bytes = pa.compress(np.ascontiguousarray(line), codec="zstd", asbytes=True)
    return packed


def decode(packed: bytes, height: int, width: int) -> NDArray[np.uint8]:
    """What `encode` was given, read-only."""
    pixels = pa.decompress(packed, height * width, codec="zstd")
    return np.frombuffer(pixels, np.uint8).reshape(height, width)


def is_store(path: Path) -> bool:
    """Whether a file is one of ours, by its content."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(6) != b"ARROW1":
            return False
    try:
        with pa.memory_map(os.fsencode(path)) as source:
            return KEY in (pa.ipc.open_file(source).schema.metadata or {})
    except pa.ArrowInvalid:
        return False


class LineStore:
    """An open store. Rows are numbered from 0; `widths` and `splits` are arrays over all of them.

    Safe to read from several threads; another process opens the file for itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            weakref.finalize(self, os.close, self._handle)
            self._map = mmap.mmap(self._handle, 0, access=mmap.ACCESS_READ)
            whole = pa.py_buffer(self._map)
            self._base = whole.address
            file = pa.ipc.open_file(pa.BufferReader(whole))
        except FileNotFoundError:
            raise StoreError(f"{path}: no such file") from None
        except (pa.ArrowInvalid, ValueError, OSError) as error:
            raise StoreError(f"{path}: not a line store, or cut short ({error}); compile it again") from None
        described = (file.schema.metadata or {}).get(KEY)
        if described is None:
            raise StoreError(f"{path}: an Arrow file, but not a line store; make one with `spikehtr data compile`")
        self.meta: dict[str, Any] = json.loads(described)
        if self.meta["version"] != VERSION:
            raise StoreError(
                f"{path}: store version {self.meta['version']}, this program reads {VERSION}; compile it again"
            )
        self.height: int = self.meta["height"]
        self.max_width: int | None = self.meta["max_width"]  # what lines were fitted to; None: their natural width
        self.straightened: bool = self.meta.get("straightened", False)
        # What the lines were read from; of other stores' lines, what those were read from.
        self.sources: list[str] = self.meta["sets"]
        self._batches = [file.get_batch(i) for i in range(file.num_record_batches)]  # views, not copies
        self._starts = np.cumsum([0, *[batch.num_rows for batch in self._batches]])
        self.widths = np.empty(len(self), np.int32)
        self.splits = np.empty(len(self), "U10")
        for number, batch in enumerate(self._batches):
            rows = slice(self._starts[number], self._starts[number + 1])
            self.widths[rows] = batch["width"].to_numpy()
            self.splits[rows] = batch["split"].to_numpy(zero_copy_only=False)
            if number % 32 == 0:
                self._release()
        self.machine = np.zeros(len(self), bool)  # whose text is a model's, taken all the same
        self.machine[self.meta.get("machine_rows", [])] = True
        self._looked_up = 0
        self._release()

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def charset(self) -> Charset:
        """The characters of the training lines' normalised texts (of all lines, where none is marked as training)."""
        return Charset(tuple(self.meta["charset"]))

    def rows(self, split: str = "all") -> NDArray[np.int64]:
        """The row numbers of one split, or all."""
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.splits == split)

    def unmarked(self) -> NDArray[np.int64]:
        """The row numbers of lines that belong to no split."""
        return np.flatnonzero(~np.isin(self.splits, get_args(Split)))

    def sets(self) -> NDArray[np.str_]:
        """Of each row, the name of the set it was read from."""
        return np.concatenate([np.asarray(batch["source"].to_pylist(), dtype=np.str_) for batch in self._batches])

    def _locate(self, row: int) -> tuple[pa.RecordBatch, int]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of a store of {len(self)}")
        self._looked_up += 1
        if self._looked_up % _RELEASE == 0:
            self._release()
        batch = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._batches[batch], row - int(self._starts[batch])

    def record(self, row: int) -> dict[str, Any]:
        """Everything about a line but its pixels."""
        batch, place = self._locate(row)
        return {name: batch[name][place].as_py() for name in SCHEMA.names if name not in ("image", "checksum")}

    def digest(self) -> str:
        """A fingerprint of all lines: ids, texts, splits and pixels, in order."""
        sha = hashlib.sha256()
        for batch in self._batches:
            for name in ("id", "text", "split", "checksum"):
                sha.update(json.dumps(batch[name].to_pylist()).encode())
        return sha.hexdigest()

    def text(self, row: int) -> str:
        batch, place = self._locate(row)
        text: str = batch["text"][place].as_py()
        return text

    def line(self, row: int) -> NDArray[np.uint8]:
        """Pixels [height, width]; a line whose bytes have changed since it was written is an error."""
        batch, place = self._locate(row)
        packed = self._packed(batch["image"], place)
        if zlib.crc32(packed) != batch["checksum"][place].as_py():
            raise StoreError(f"{self.path}: line {batch['id'][place]} (row {row}) is damaged; compile the store again")
        return decode(packed, self.height, int(self.widths[row]))

    def _packed(self, images: pa.BinaryArray, place: int) -> bytes:
        """One image's bytes, read from the file: pages read through the map would count as this process's memory."""
        _, offsets, data = images.buffers()
        first, end = np.frombuffer(offsets, np.int32)[images.offset + place : images.offset + place + 2].tolist()
        start = data.address - self._base + first
        if hasattr(os, "pread"):
            return os.pread(self._handle, end - first, start)
        return self._map[start : start + end - first]

    def _release(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def read_store(path: Path, report: ImportReport) -> Iterator[Sample]:
    """A store's lines as samples, so that a store can be checked or compiled into another."""
    store = LineStore(path)
    for row in range(len(store)):
        record = store.record(row)
        if not has_text(record["text"], record["origin"], report):
            continue
        try:
            line = store.line(row)
        except StoreError as error:
            report.add("damaged line", f"{path}, {record['id']}", str(error), "compile the store again")
            continue
        png = BytesIO()
        Image.fromarray(line).save(png, "PNG", compress_level=1)
        record.pop("width")
        if len(store.sources) == 1:  # then it is of this store, whatever that was made from
            record["source"] = None
        machine = bool(store.machine[row])
        yield Sample(image=png.getvalue(), straightened=store.straightened, machine=machine, **record)
