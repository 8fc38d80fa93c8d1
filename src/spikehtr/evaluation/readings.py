"""What another program has read, from its files: counted and compared as a model's own readings are.

A table of ids and texts, or a folder of ID.txt, PAGE or ALTO files. A line is told by its id, which is that of the
data; an image's file name will do for it.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from spikehtr.data.batching import Indices
from spikehtr.data.formats import alto, page, xml
from spikehtr.data.formats.files import IMAGE_SUFFIXES, decode, walk
from spikehtr.data.samples import Report
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluating import Evaluation, named, with_short_sets
from spikehtr.evaluation.predict import Prediction
from spikehtr.text import normalise
from spikehtr.weights import BUNDLED

_TABLES = frozenset({".tsv", ".txt"})
_IN_FOLDERS = frozenset({".txt", ".xml"})
_PARSERS = {"PcGts": page.parse, "alto": alto.parse}
_SPACE = "<space>"  # PyLaia's, which writes a text symbol by symbol


Key = tuple[str | None, str]  # set, None for any, and id


class Reading(NamedTuple):
    where: str  # for messages
    set: str | None  # None: any
    id: str
    text: str
    confidence: float = math.nan


def are_readings(path: Path) -> bool:
    """Whether this is what another program has read, and not a model file."""
    if str(path) == BUNDLED or not path.exists():
        return False
    if path.is_dir():
        return not any(path.glob("*.safetensors")) and any(True for _ in walk(path, _IN_FOLDERS))
    return path.suffix.lower() in _TABLES | _IN_FOLDERS


def load_readings(path: Path) -> list[Reading]:
    """Every line that the file, or the folder's files, have a text of. One that is there twice is an error."""
    report = Report()
    if path.is_dir() or path.suffix.lower() == ".xml":
        found = list(_from_files(path, report))
    else:
        found = list(_from_table(path, report))
    for problem in report.problems:
        if problem.severity == "error":
            raise SpikeHTRError(f"{problem.where}: {problem.message}; {problem.remedy}")
    if not found:
        raise SpikeHTRError(f"{path}: holds no line's text; a line of a table has an id, a tab or space, and the text")
    first: dict[Key, Reading] = {}
    for reading in found:
        other = first.setdefault((reading.set, reading.id), reading)
        if other is not reading:
            raise SpikeHTRError(f"{reading.where}: {reading.id!r} was there before ({other.where}); leave one of them")
    return found


def evaluate_readings(
    path: Path,
    parts: Mapping[str, tuple[LineStore, Indices]],
    about: dict[str, Any] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Evaluation:
    """What stands in `path` of the lines of `parts`, by the name of their set.

    A line that is not there counts as one in which nothing was read; `tell` hears of these, and of readings of other
    lines.
    """
    found = {(reading.set, reading.id): reading for reading in load_readings(path)}
    lines: list[Prediction] = []
    stores: list[LineStore] = []
    for name, (store, rows) in parts.items():
        lines += named([_unread(store, int(row)) for row in rows], store, name)
        stores += [store] * len(rows)
    lines = with_short_sets(lines)
    _check_told_apart(path, lines, found)
    keys = [next((key for key in _keys(line) if key in found), None) for line in lines]
    missing = [line.id for line, key in zip(lines, keys, strict=True) if key is None]
    others = [reading.id for key, reading in found.items() if key not in set(keys)]
    if len(missing) == len(lines):
        raise SpikeHTRError(
            f"{path}: none of its {len(found)} lines is among these {len(lines)}; its ids are like {others[0]!r}, "
            f"those of the data like {missing[0]!r}"
        )
    if missing:
        tell(f"{path}: {len(missing)} lines are not in it ({missing[0]!r}, ...); they count as read as nothing")
    if others:
        tell(f"{path}: {len(others)} of its lines are not among these ({others[0]!r}, ...) and do not count")
    read = [
        line if key is None else line._replace(text=found[key].text, confidence=found[key].confidence)
        for line, key in zip(lines, keys, strict=True)
    ]
    return Evaluation(read, stores, (about or {}) | {"device": "cpu", "lines_per_second": None})


def _unread(store: LineStore, row: int) -> Prediction:
    record = store.record(row)
    where = record["id"], record["source"], record["document"]
    return Prediction(row, normalise(record["text"]), "", math.nan, math.nan, *where)


def _keys(line: Prediction) -> tuple[Key, Key]:
    """What a line is looked for by."""
    name = _name(line.id)
    return (line.set, name), (None, name)


def _check_told_apart(path: Path, lines: Sequence[Prediction], found: Mapping[Key, Reading]) -> None:
    sets = defaultdict[str, set[str]](set)
    for line in lines:
        sets[_name(line.id)].add(line.set)
    for name, several in sets.items():
        if len(several) > 1 and (None, name) in found:
            raise SpikeHTRError(
                f"{path}: {name!r} is a line of {' and of '.join(sorted(several))}; read one set at a time, "
                "or give the table a first line `set<tab>id<tab>text` and each line its set"
            )


def _from_files(path: Path, report: Report) -> Iterator[Reading]:
    for file in walk(path, _IN_FOLDERS, report):
        if file.suffix.lower() == ".txt":
            text = decode(file.read_bytes(), file, report)
            if text is not None:
                name = file.relative_to(path).as_posix().removesuffix(".txt").removesuffix(".pred")
                yield Reading(str(file), None, _name(name), normalise(text))
            continue
        root = xml.load(file, report)
        if root is None:
            continue
        parse = _PARSERS.get(xml.name_of(root))
        if parse is None:
            raise SpikeHTRError(
                f"{file}: its root element is <{xml.name_of(root)}>, neither PAGE nor ALTO; take it out"
            )
        for line in parse(root).lines:
            yield Reading(f"{file}, line {line.id}", None, f"{file.stem}/{line.id}", normalise(line.text))


def _from_table(path: Path, report: Report) -> Iterator[Reading]:
    text = decode(path.read_bytes(), path, report)
    if text is None:
        return
    if {"id", "text"} <= set(text.partition("\n")[0].strip("\r").split("\t")):
        yield from _with_head(path, text)
        return
    rows = [(number, *_cut(line)) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    spelt = _are_spelt([text for *_, text in rows])
    for number, name, text in rows:
        text = "".join(" " if symbol == _SPACE else symbol for symbol in text.split()) if spelt else text
        yield Reading(f"{path}, line {number}", None, _name(name), normalise(text))


def _with_head(path: Path, text: str) -> Iterator[Reading]:
    """A table as `lines.tsv` of an evaluation is one: columns by name, quoted where a value needs it."""
    reader = csv.DictReader(StringIO(text, newline=""), delimiter="\t", strict=True)
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if row["id"] is None or row["text"] is None:
                raise SpikeHTRError(f"{where}: has fewer columns than the first line")
            sure = _number(row.get("confidence"), where)
            yield Reading(where, row.get("set") or None, _name(row["id"]), normalise(row["text"]), sure)
    except csv.Error as error:
        remedy = "a text that begins with a quote stands in quotes, and those within it are doubled"
        raise SpikeHTRError(f"{path}, after line {reader.line_num}: {error}; {remedy}") from None


def _number(written: str | None, where: str) -> float:
    try:
        return float(written or "nan")
    except ValueError:
        raise SpikeHTRError(f"{where}: the confidence {written!r} is no number") from None


def _cut(line: str) -> tuple[str, str]:
    """An id and a text, with a tab between them, or else a space."""
    name, _, text = line.partition("\t") if "\t" in line else line.partition(" ")
    return name.strip(), text


def _are_spelt(texts: Sequence[str]) -> bool:
    """Whether all texts are symbols with spaces between, <space> for a space: as PyLaia writes them."""
    symbols = {symbol for text in texts for symbol in text.split()}
    return _SPACE in symbols and all(len(symbol) == 1 or symbol[0] + symbol[-1] == "<>" for symbol in symbols)


def _name(written: str) -> str:
    """An id as it is looked for: an image's file name without its ending."""
    path = PurePosixPath(written)
    return str(path.with_suffix("")) if path.suffix.lower() in IMAGE_SUFFIXES else written
