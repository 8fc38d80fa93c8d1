"""What another program has read: counted and compared as a model's own readings are.

A line is told by its id, which is that of the data; it may stand in the other program's files as a path that ends in
the id, or as the end of it, with an image's ending or without.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spikehtr.data.batching import Indices
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import Evaluation, named, with_short_sets
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.reading_files import Reading, line_name, load_readings, name_ends
from spikehtr.text import normalise


def evaluate_readings(
    path: Path,
    parts: Mapping[str, tuple[LineStore, Indices]],
    about: dict[str, Any] | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Evaluation:
    """What stands in `path` of the lines of `parts`, by the name of their set.

    A line that is not there counts as one in which nothing was read; `tell` hears of these, of readings of other
    lines, and of references that are not the data's. If most are not, the readings are refused.
    """
    found = load_readings(path, tell)
    lines: list[Prediction] = []
    stores: list[LineStore] = []
    for name, (store, rows) in parts.items():
        lines += named([_unread(store, int(row)) for row in rows], store, name)
        stores += [store] * len(rows)
    lines = with_short_sets(lines)
    places = _Places(lines)
    _check_pages(path, lines, found)
    by_place: dict[int, Reading] = {}
    others = []
    for reading in found:
        place = places.find(reading)
        if place is None:
            others.append(reading)
        elif (first := by_place.setdefault(place, reading)) is not reading:
            alias = "" if first.id == reading.id else f" as {_shown(first)}, for the data's line {lines[place].id!r}"
            message = f"{_shown(reading)} was there before ({first.where}){alias}"
            raise SpikeHTRError(f"{reading.where}: {message}; keep one of them")
    if not by_place:
        raise SpikeHTRError(
            f"{path}: none of its {len(found)} lines is among these {len(lines)}; its ids are like "
            f"{_shown(found[0])}, those of the data like {lines[0].id!r} of the set {lines[0].set}"
        )
    _check_references(path, lines, by_place, tell)
    if missing := [line.id for place, line in enumerate(lines) if place not in by_place]:
        tell(f"{path}: not in it, so read as nothing: {len(missing)} of {len(lines)} lines ({missing[0]!r} ...)")
    if others:
        tell(f"{path}: of other lines, not counted: {len(others)} of its {len(found)} ({_shown(others[0])} ...)")
    read = [
        line._replace(text=by_place[place].text, confidence=by_place[place].confidence) if place in by_place else line
        for place, line in enumerate(lines)
    ]
    return Evaluation(read, stores, (about or {}) | {"lines_per_second": None})


def _unread(store: LineStore, row: int) -> Prediction:
    record = store.record(row)
    where = record["id"], record["source"], record["document"]
    return Prediction(row, normalise(record["text"]), "", math.nan, math.nan, *where)


def _shown(reading: Reading) -> str:
    return f"{reading.id!r}" + (f" of the set {reading.set}" if reading.set else "")


class _Places:
    """Finds the line that an id means: the one of this id, else the one whose id ends in it, or in whose it ends."""

    def __init__(self, lines: Sequence[Prediction]) -> None:
        self._sets = [line.set for line in lines]
        self._names = set(self._sets)
        self._whole = defaultdict[str, list[int]](list)
        self._ends = defaultdict[str, list[int]](list)
        for place, line in enumerate(lines):
            name = line_name(line.id)
            self._whole[name].append(place)
            for end in name_ends(name):
                self._ends[end].append(place)

    def find(self, reading: Reading) -> int | None:
        asked = reading.set if reading.set in self._names else None
        if reading.set is not None and asked is None and len(self._names) > 1:
            return None
        for found in (self._whole, self._ends):
            if places := found.get(reading.id):
                return self._one(reading, places, asked)
        longer = next((end for end in name_ends(reading.id) if end in self._whole), None)
        return None if longer is None else self._one(reading, self._whole[longer], asked)

    def _one(self, reading: Reading, places: Sequence[int], asked: str | None) -> int | None:
        meant = [place for place in places if asked is None or self._sets[place] == asked]
        if len(meant) < 2:
            return meant[0] if meant else None
        sets = sorted({self._sets[place] for place in meant})
        raise SpikeHTRError(
            f"{reading.where}: {reading.id!r} may be any of {len(meant)} lines of {' and '.join(sets)}; write ids as "
            "the data has them, and where sets share ids, give the table columns `set`, `id` and `text`, named in its "
            "first line"
        )


def _check_references(
    path: Path, lines: Sequence[Prediction], by_place: Mapping[int, Reading], tell: Callable[[str], None]
) -> None:
    """A table that knows what its lines say, and mostly says otherwise than the data, was read from other lines."""
    known = [(reading, lines[place].reference) for place, reading in by_place.items() if reading.reference is not None]
    others = [(reading, says) for reading, says in known if reading.reference != says]
    if not others:
        return
    first, says = others[0]
    differ = f"{len(others)} of {len(known)} references differ from the data's, as {first.reference!r} from {says!r}"
    if 2 * len(others) > len(known):
        raise SpikeHTRError(
            f"{first.where}: seems read from other lines than the data's {first.id!r}: {differ}; "
            "name the data it was read from, or leave its column `reference` out"
        )
    tell(f"{path}: {differ}; the data's count")


def _check_pages(path: Path, lines: Sequence[Prediction], found: Sequence[Reading]) -> None:
    """PAGE and ALTO files of one name are told apart by their order: so all of them have to be there."""
    if not path.is_dir() and path.suffix.lower() != ".xml":
        return
    ours = _page_names(line.id for line in lines)
    theirs = _page_names(reading.id for reading in found if ".xml, line " in reading.where)
    for name, count in theirs.items():
        if name in ours and (count > 1 or ours[name] > 1) and count != ours[name]:
            raise SpikeHTRError(
                f"{path}: {count} files of the name {name}, where the data has {ours[name]}: "
                "name the folder that has just those of the data"
            )


def _page_names(ids: Iterable[str]) -> Counter[str]:
    """How many pages go by each name: of `a/1`, `a~2/1` and `a~2/2`, two by the name a."""
    pages = {written.partition("/")[0] for written in ids if "/" in written}
    return Counter(name.partition("~")[0] for name in pages)
