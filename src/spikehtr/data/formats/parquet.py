"""Parquet as the Hugging Face hub serves image sets: `image` (bytes and path, or just bytes) and `text`.

Columns `id`, `page`, `document` and `split` are used where they are there; without the last, the file's name
(`train.parquet`, `validation-00000-of-00001.parquet`) or its folder's gives the split.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spikehtr.data.formats.helpers import UniqueNames, decode, image_missing, split_of, walk
from spikehtr.data.samples import ImportReport, Sample, Split, has_text, split_named

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LOOKS_FOR = "Parquet files with columns image and text"

_PARQUET = frozenset({".parquet"})
_COLUMNS = ("image", "text", "id", "page", "document", "split")
_BATCH = 64  # rows held at a time


def recognises(path: Path) -> bool:
    return next(walk(path, _PARQUET), path).suffix.lower() == ".parquet"


def read(path: Path, report: ImportReport) -> Iterator[Sample]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in walk(path, _PARQUET, report):
        done = 0  # rows
        try:
            # The buffer keeps a row group from being read whole.
            with pa.OSFile(os.fsencode(file)) as source, pq.ParquetFile(source, buffer_size=1 << 20) as table:
                if _has_columns(table.schema_arrow, file, report):
                    for sample in _rows(table, file, path, report):
                        done += 1
                        if sample is not None:
                            yield sample
        except (pa.ArrowException, OSError) as error:
            message = f"cannot be read beyond its first {done} rows ({str(error)[:200]})"
            report.add("unreadable file", file, message, "fetch or write the file again")
        except UnicodeDecodeError as error:  # pyarrow's own, of a column's name
            message = f"its column names are not UTF-8 ({error.object[:40]!r})"
            report.add("wrong columns", file, message, "write the file again with column names in UTF-8")


def named_files(file: Path) -> Iterator[Path]:
    """The image files beside it that a Parquet file names; its images' bytes are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with (
        suppress(pa.ArrowException, OSError, UnicodeDecodeError),
        pa.OSFile(os.fsencode(file)) as source,
        pq.ParquetFile(source) as table,
    ):
        for batch in table.iter_batches(columns=["image.path"]):
            for value in _values(batch["image"]) if "image" in batch.schema.names else ():
                if isinstance(image := _image(value, file.parent), Path):
                    yield image


def _has_columns(schema: pa.Schema, file: Path, report: ImportReport) -> bool:
    columns = {column.name: column.type for column in schema}
    if "text" in columns and _holds_images(columns.get("image")):
        return True
    there = ", ".join(f"{name} ({kind})" for name, kind in columns.items()) or "none"
    remedy = "rename the columns to image (the encoded image's bytes) and text (its transcript)"
    report.add("wrong columns", file, f"no images and texts in its columns: {there[:500]}", remedy)
    return False


def _holds_images(kind: pa.DataType | None) -> bool:
    import pyarrow as pa

    if kind is not None and pa.types.is_struct(kind):
        return any(kind.get_field_index(name) >= 0 for name in ("bytes", "path"))
    return kind is not None and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _rows(table: pq.ParquetFile, file: Path, root: Path, report: ImportReport) -> Iterator[Sample | None]:
    """Each row's sample, None where it has none."""
    columns = [name for name in _COLUMNS if name in table.schema_arrow.names]
    prefix = file.stem if file == root else file.relative_to(root).with_suffix("").as_posix()
    split = split_named(file.name) or split_of(file, root)
    names = UniqueNames()
    number = 0
    for batch in table.iter_batches(_BATCH, columns=columns):
        for values in zip(*map(_values, batch.columns), strict=True):
            row = dict(zip(batch.schema.names, values, strict=True))
            where = f"{file}, row {number}"
            key = f"{prefix}/{number if row.get('id') is None else _name(row['id'])}"
            number += 1
            text = decode(row["text"], where, report) if isinstance(row["text"], bytes) else ""
            image = _image(row["image"], file.parent)
            if image is None:
                message = "no image bytes in the row, nor a path to a file that is there"
                image_missing(where, message, report, "write the file again with the image bytes in it")
                yield None
            elif text is None or not has_text(text, where, report):
                yield None
            else:
                yield Sample(
                    id=names.take(key, where, report) if "id" in columns else key,
                    text=text,
                    image=image,
                    origin=where,
                    split=_split(row["split"], where, report) if "split" in columns else split,
                    document=_name(row.get("document")),
                    page=_name(row.get("page")),
                )


def _values(column: pa.Array) -> list[Any]:
    """A column as Python values, strings as bytes: a file may call them UTF-8 that are not."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.dictionary_decode())
    if pa.types.is_struct(kind):
        fields = dict(zip((field.name for field in kind), map(_values, column.flatten()), strict=True))
        return [dict(zip(fields, values, strict=True)) for values in zip(*fields.values(), strict=True)]
    for text, raw in ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())):
        if kind == text:
            column = column.cast(raw)
    values: list[Any] = column.to_pylist()
    return values


def _image(value: bytes | dict[str, bytes | None] | None, folder: Path) -> bytes | Path | None:
    """An image's bytes, or, where there are none, the file it stands for."""
    if not isinstance(value, dict):
        return value or None
    path = os.fsdecode(value.get("path") or b"")
    return value.get("bytes") or (folder / path if path and os.path.isfile(folder / path) else None)  # noqa: PTH113


def _split(value: object, where: str, report: ImportReport) -> Split | None:
    name = _name(value)
    split = split_named(name) if name is not None else None
    if name is not None and split is None:
        remedy = "call it train, validation or test"
        report.add("unknown split", where, f"{name!r} names no split; the line is used without one", remedy, "warning")
    return split


def _name(value: object) -> str | None:
    """A value as text; bytes that are not UTF-8 are shown by their numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return None if value is None else str(value)
