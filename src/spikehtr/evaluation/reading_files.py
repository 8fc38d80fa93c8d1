"""The files that another program has written of what it read: a table of ids and texts, or a folder of ID.txt, PAGE or
ALTO files."""

from __future__ import annotations

import csv
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from spikehtr.data.formats import alto_xml, page_xml, xml
from spikehtr.data.formats.helpers import IMAGE_SUFFIXES, UniqueNames, decode, page_name, walk
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise
from spikehtr.weights import BUNDLED

TABLE = "lines.tsv"  # of an evaluation, which is such a table
_TABLES = frozenset({".tsv", ".tab", ".csv", ".txt"})
_IN_FOLDERS = frozenset({".txt", ".xml"})
_PARSERS = {"PcGts": page_xml.parse, "alto": alto_xml.parse}
_SPACE = "<space>"  # PyLaia's, which writes a text symbol by symbol
_NAMES = frozenset({"id", "text", "set", "confidence", "reference", "text_a", "text_b", "file", "image", "prediction"})


class Reading(NamedTuple):
    where: str  # for messages
    set: str | None  # None: any
    id: str
    text: str
    confidence: float = math.nan
    reference: str | None = None  # what the line says, as far as the table knows


def are_readings(path: Path) -> bool:
    """Whether this is what another program has read, and not a model file."""
    if str(path) == BUNDLED or not path.exists():
        return False
    if not path.is_dir():
        return path.suffix.lower() in _TABLES | _IN_FOLDERS
    if any(path.glob("*.safetensors")):
        return False
    return (path / TABLE).is_file() or next(walk(path, _IN_FOLDERS), None) is not None


def load_readings(path: Path, tell: Callable[[str], None] = lambda message: None) -> list[Reading]:
    """Every line that the file, or the folder's files, have a text of; `tell` hears of files that are passed over."""
    report = ImportReport()
    if path.is_dir() and (path / TABLE).is_file():
        path = path / TABLE
    if path.is_dir() or path.suffix.lower() == ".xml":
        found = list(_from_files(path, report, tell))
    else:
        found = list(_from_table(path, report))
    for problem in report.problems:
        if problem.severity == "error":
            raise SpikeHTRError(f"{problem.where}: {problem.message}; {problem.remedy}")
    if not found:
        raise SpikeHTRError(f"{path}: holds no line's text; a line of a table has an id, a tab or space, and the text")
    return found


def _from_files(path: Path, report: ImportReport, tell: Callable[[str], None]) -> Iterator[Reading]:
    files = list(walk(path, _IN_FOLDERS, report))
    texts = [file for file in files if file.suffix.lower() == ".txt" and not _ends_in(file, ".gt.txt")]
    for file in [file for file in texts if _ends_in(file, ".pred.txt")] or texts:
        text = decode(file.read_bytes(), file, report)
        if text is not None:
            name = file.relative_to(path).with_suffix("")
            name = name.with_suffix("") if name.suffix.lower() == ".pred" else name
            yield Reading(str(file), None, line_name(name.as_posix()), normalise(text))
    pages = UniqueNames()
    for file in [file for file in files if file.suffix.lower() == ".xml"]:
        root = xml.load(file, report)
        if root is None:
            continue
        parse = _PARSERS.get(xml.name_of(root))
        if parse is None:
            tell(f"{file}: neither PAGE nor ALTO (its root element is <{xml.name_of(root)}>), passed over")
            continue
        page_id, line_ids = pages.take(page_name(file), file, report), UniqueNames()
        for line in parse(root).lines:
            where = f"{file}, line {line.id}"
            yield Reading(where, None, f"{page_id}/{line_ids.take(line.id, where, report)}", normalise(line.text))


def _ends_in(file: Path, ending: str) -> bool:
    return file.name.lower().endswith(ending)


def _from_table(path: Path, report: ImportReport) -> Iterator[Reading]:
    text = decode(path.read_bytes(), path, report)
    if text is None:
        return
    between = "," if path.suffix.lower() == ".csv" else "\t"
    head = [name.strip().lower() for name in text.partition("\n")[0].split(between)]
    if {"id", "text"} <= set(head):
        yield from _with_head(path, text, between)
    elif {"text_a", "text_b"} <= set(head):
        raise SpikeHTRError(f"{path}: holds two readings; take {TABLE} of the folders A or B beside it")
    elif between == "," or len(_NAMES & set(head)) > 1:
        raise SpikeHTRError(f"{path}: its first line has to name its columns, `id` and `text` among them")
    else:
        yield from _without_head(path, text)


def _with_head(path: Path, text: str, between: str) -> Iterator[Reading]:
    """A table as `lines.tsv` of an evaluation is one: columns by name, quoted where a value needs it."""
    rows = csv.reader(StringIO(text, newline=""), delimiter=between, strict=True)
    head = [name.strip().lower() for name in next(rows)]
    try:
        for values in rows:
            where = f"{path}, line {rows.line_num}"
            if not values:
                continue
            if len(values) != len(head):
                raise SpikeHTRError(f"{where}: has {len(values)} columns, where the first line names {len(head)}")
            row = dict(zip(head, values, strict=True))
            if "\n" in row["text"]:
                raise SpikeHTRError(f"{where}: a text of several lines; {_QUOTES}")
            sure = _number(row.get("confidence", ""), where)
            said = normalise(row.get("reference", "")) or None
            yield Reading(where, row.get("set") or None, line_name(row["id"]), normalise(row["text"]), sure, said)
    except csv.Error as error:
        raise SpikeHTRError(f"{path}, line {rows.line_num}: {error}; {_QUOTES}") from None


_QUOTES = "in a table with a head, a text that begins with a quote stands in quotes, and those within it are doubled"


def _without_head(path: Path, text: str) -> Iterator[Reading]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{path}, line {number}"
        if line.count("\t") > 1:
            remedy = "give the table a first line that names them, `id` and `text` among them"
            raise SpikeHTRError(f"{where}: has {line.count(chr(9)) + 1} columns; {remedy}")
        name, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
        if name.strip():
            rows.append((where, name.strip(), rest))
    spelt = _are_spelt([(where, rest) for where, _, rest in rows])
    for where, name, rest in rows:
        whole = "".join(" " if symbol == _SPACE else symbol for symbol in rest.split()) if spelt else rest
        yield Reading(where, None, line_name(name), normalise(whole))


def _are_spelt(texts: Sequence[tuple[str, str]]) -> bool:
    """Whether texts are symbols with spaces between, <space> for a space: as PyLaia writes them."""
    several = 0
    misfit = None  # the first that is no symbol
    spaces = False
    for where, text in texts:
        symbols = text.split()
        several += len(symbols) > 1
        spaces = spaces or _SPACE in symbols
        misfit = misfit or next(((where, symbol) for symbol in symbols if not _is_symbol(symbol)), None)
    if spaces and misfit:
        where, symbol = misfit
        raise SpikeHTRError(
            f"{where}: {symbol!r} among texts that are spelt symbol by symbol, with {_SPACE}; a line has its id and "
            "its symbols alone"
        )
    return spaces or (misfit is None and 2 * several > len(texts))


def _is_symbol(written: str) -> bool:
    """A character with its marks, or a name in angle brackets."""
    marked = all(unicodedata.combining(mark) for mark in written[1:])
    return marked or (written.startswith("<") and written.endswith(">"))


def _number(written: str, where: str) -> float:
    try:
        return float(written or "nan")
    except ValueError:
        raise SpikeHTRError(f"{where}: the confidence {written!r} is no number") from None


def line_name(written: str) -> str:
    """An id as it is looked for: an image's file name without its ending."""
    path = PurePosixPath(written.replace("\\", "/"))
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else str(path)


def name_ends(name: str) -> Iterator[str]:
    """What a path ends in, the longest first, without the whole."""
    parts = name.split("/")
    return ("/".join(parts[place:]) for place in range(1, len(parts)))
