"""Which lines of a store a run trains on and which it is validated on, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spikehtr.config import Config
from spikehtr.data.batching import Indices, Lines
from spikehtr.data.check import frames_needed
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset, normalise, show
from spikehtr.training.finetune import Mode, change_charset

HOLD_OUT_FROM = 20  # lines of no split: with fewer none is held out, for one or two lines decide nothing
_PLENTY = 50  # from there on every tenth line is held out, below every fifth
_ROUGH = 10  # validation lines: fewer are only a guide


@dataclass(frozen=True)
class TrainingSets:
    train: Lines
    validation: Lines
    remarks: list[str] = field(default_factory=list)  # for the user, before training starts


def split_rows(store: LineStore) -> tuple[Indices, Indices]:
    """Rows to train on and to validate with: as they are marked. A set of several in which nothing is marked is
    trained on. Where no line is marked as training, those that are not marked at all are trained on, some of them held
    out to validate if none is marked for that and they are enough. What a model read is no line to validate with."""
    train, validation = store.rows("train"), _by_persons(store, store.rows("validation"))
    if len(train):
        return np.sort(np.concatenate([train, _plain_sets(store)])), validation
    unmarked = store.unmarked()
    if len(store) and not len(unmarked):
        raise SpikeHTRError(f"all {len(store)} lines are marked as validation or test: mark some as train")
    if len(validation):
        return unmarked, validation
    candidates = _by_persons(store, unmarked)
    every = _every(len(candidates))
    held = candidates[every - 1 :: every] if every else candidates[:0]
    return np.setdiff1d(unmarked, held), held


def _by_persons(store: LineStore, rows: Indices) -> Indices:
    return rows[~store.machine[rows]]


def _every(count: int) -> int:
    """Which of so many lines are held out: every tenth, every fifth; 0 for none."""
    if count < HOLD_OUT_FROM:
        return 0
    return 5 if count < _PLENTY else 10


def _plain_sets(store: LineStore) -> Indices:
    """The rows of sets in which no line is marked."""
    unmarked = store.unmarked()
    if not len(unmarked):
        return unmarked
    sets = store.sets()
    return unmarked[~np.isin(sets[unmarked], np.delete(sets, unmarked))]


def held_out(store: LineStore) -> str:
    """A remark, where which lines to train on or to validate with is of our choosing; else nothing."""
    count, told = len(store.unmarked()), "no line is marked as training"
    if len(store.rows("train")):
        return "; ".join(_beside_marks(store, count))
    if not count:
        return ""
    if count < len(store):
        told += f" and {len(store) - count} as validation or test"
    if len(_by_persons(store, store.rows("validation"))):
        return f"{told}: the other {count} are trained on"
    return f"{told}: {_choice(store, count)}"


def _choice(store: LineStore, count: int) -> str:
    persons = len(_by_persons(store, store.unmarked()))
    which = f"{persons}" if persons == count else f"the {persons} that are not a model's"
    every = _every(persons)
    if not every:
        few = "too few to hold any out to validate: no score will be given, and the last weights are kept"
        return (
            f"all {count} are trained on, {few}" if persons == count else f"all {count} are trained on; {which}: {few}"
        )
    rough = f" ({persons // every} lines: a rough guide)" if persons // every < _ROUGH else ""
    return f"every {every}th of {which} is held out to validate{rough}"


def _beside_marks(store: LineStore, unmarked: int) -> Iterator[str]:
    """What becomes of lines that are not marked, and of a choice that cannot be made, where some are for training."""
    plain = _plain_sets(store)
    if len(plain):
        names = ", ".join(sorted(set(store.sets()[plain])))
        yield f"nothing is marked in {names}: all {len(plain)} lines are trained on"
    if unmarked > len(plain):
        yield f"{unmarked - len(plain)} lines belong to no split and are left out"
    if not len(_by_persons(store, store.rows("validation"))):
        yield "no line is marked as validation: the last weights are kept, not the best"


def training_sets(
    store: LineStore,
    config: Config,
    known: Charset | None = None,
    mode: Mode = "extend",
    allow_unknown: bool = False,
) -> TrainingSets:
    """`known` holds the characters of the model to start from, `mode` what becomes of them.

    Validation lines with characters that the new model cannot write are an error unless `allow_unknown`: each such
    character would count as wrong whatever the model learns.
    """
    train, validation = split_rows(store)
    remarks = [remark] if (remark := held_out(store)) else []
    if number := int(store.machine[store.rows("validation")].sum()):
        which = "1 line marked as validation is as the model read it"
        which = which if number == 1 else f"{number} lines marked as validation are as the model read them"
        remarks.append(f"{which}: not validated on")
    train = _drawn(_spellable(store, train, config, remarks), config, remarks)
    charset = _charset(store, train, known, mode, remarks)
    if known is not None and mode == "keep":
        train = _writable(store, train, charset, remarks)
    if not len(train):
        sources = ", ".join(store.meta["sources"])
        raise SpikeHTRError(f"{sources}: no line to train on; `spikehtr data check` says why")
    _check_unknown(store, validation, charset, remarks, allow_unknown)
    width, cache = config.data.max_width, config.data.cache_mb
    return TrainingSets(
        Lines(store, train, charset, width, cache),
        Lines(store, validation, charset, width, cache // 4, labelled=False),
        remarks,
    )


def _charset(store: LineStore, rows: Indices, known: Charset | None, mode: Mode, remarks: list[str]) -> Charset:
    texts = (normalise(store.text(int(row))) for row in rows)
    if known is None:
        return Charset.from_texts(texts)
    change = change_charset(known, texts, mode)
    remarks.append(f"--charset {mode}: {change.message}")
    return change.charset


def _spellable(store: LineStore, rows: Indices, config: Config, remarks: list[str]) -> Indices:
    """The rows whose width gives CTC enough frames for their text."""
    frames = -(-np.minimum(store.widths[rows], config.data.max_width) // config.model.stride)
    needed = np.array([frames_needed(normalise(store.text(int(row)))) for row in rows], dtype=np.int64)
    narrow = frames < needed
    if narrow.any():
        remarks.append(
            f"{int(narrow.sum())} of {len(rows)} training lines are too narrow for their text at data.max_width = "
            f"{config.data.max_width} and left out; `spikehtr data check`, with the same -p and -s, lists them"
        )
    return rows[~narrow]


def _drawn(rows: Indices, config: Config, remarks: list[str]) -> Indices:
    """`data.train_lines` of the rows. With one seed, those of a smaller number are among those of a larger one."""
    wanted = config.data.train_lines
    if not wanted:
        return rows
    remarks.append(f"data.train_lines: {min(wanted, len(rows))} of {len(rows)} lines are trained on")
    order = np.random.default_rng(config.training.seed).permutation(len(rows))
    return np.sort(rows[order[:wanted]])


def _writable(store: LineStore, rows: Indices, charset: Charset, remarks: list[str]) -> Indices:
    """The rows whose text the charset can write."""
    unknown, lines = _unknown(store, rows, charset)
    if unknown:
        remarks.append(
            f"{int(lines.sum())} of {len(rows)} training lines hold characters that the model does not know and are "
            f"left out: {_some(unknown)}; --charset extend would add them"
        )
    return rows[~lines]


def _check_unknown(store: LineStore, rows: Indices, charset: Charset, remarks: list[str], allow_unknown: bool) -> None:
    unknown, lines = _unknown(store, rows, charset)
    if not unknown:
        return
    found = f"{int(lines.sum())} validation lines hold characters that training never shows: {_some(unknown)}"
    if not allow_unknown:
        before = "".join(f" ({remark})" for remark in remarks)  # lines left out may be the reason
        raise SpikeHTRError(f"{found}; mend their texts, or count them as errors with --allow-unknown{before}")
    remarks.append(f"{found}; they count as errors")


def _unknown(store: LineStore, rows: Indices, charset: Charset) -> tuple[list[str], NDArray[np.bool_]]:
    """The characters that `charset` lacks, and which rows hold one."""
    each = [charset.unknown(normalise(store.text(int(row)))) for row in rows]
    return sorted(set().union(*each)), np.array([bool(found) for found in each], dtype=bool)


def _some(characters: list[str]) -> str:
    return show(characters[:10]) + (f" and {len(characters) - 10} more" if len(characters) > 10 else "")
