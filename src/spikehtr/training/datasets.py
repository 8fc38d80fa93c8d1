"""Which lines of a store a run trains on and which it is validated on, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spikehtr.config import Config
from spikehtr.data.batching import Indices, Lines
from spikehtr.data.check import frames_needed
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset, normalise, plain, show
from spikehtr.training.finetune import Mode, change_charset

Taught = Callable[[str], str]  # what of a transcript is taught

HOLD_OUT_FROM = 20  # lines of no split: with fewer none is held out, for one or two lines decide nothing
_PLENTY = 50  # from there on every tenth line is held out, below every fifth
_ROUGH = 10  # validation lines: fewer are only a guide


@dataclass(frozen=True)
class TrainingSets:
    train: Lines
    validation: Lines
    remarks: list[str] = field(default_factory=list)  # for the user, before training starts


class RowSplit(NamedTuple):
    """Rows of a store to train on and to validate with."""

    train: Indices
    validation: Indices
    remark: str  # where the choice was ours, or could not be made; else nothing


def split_rows(store: LineStore) -> RowSplit:
    """Rows as they are marked. A set of several in which nothing is marked is trained on. Where no line is marked as
    training, those that are not marked at all are trained on. Where none is marked to validate with, some are held out,
    if they are enough. What a model read is no line to validate with."""
    train, validation = store.rows("train"), _by_persons(store, store.rows("validation"))
    unmarked, total = store.unmarked(), len(store)
    if len(train):
        plain, remarks = _plain_sets(store), []
        if len(plain):
            names = ", ".join(sorted(set(store.sets()[plain])))
            remarks.append(f"nothing is marked in {names}: all {len(plain)} lines are trained on")
        if len(unmarked) > len(plain):
            remarks.append(f"{len(unmarked) - len(plain)} lines belong to no split and are left out")
        train = np.sort(np.concatenate([train, plain]))
        if len(validation):
            return RowSplit(train, validation, "; ".join(remarks))
        held, which = _held_out(store, train)
        remarks.append(f"no line is marked as validation: {which}")
        return RowSplit(np.setdiff1d(train, held), held, "; ".join(remarks))
    if total and not len(unmarked):
        raise SpikeHTRError(f"all {total} lines are marked as validation or test: mark some as train")
    remark = "no line is marked as training"
    if len(unmarked) < total:
        remark += f" and {total - len(unmarked)} as validation or test"
    if len(validation):
        return RowSplit(unmarked, validation, f"{remark}: the other {len(unmarked)} are trained on")
    held, which = _held_out(store, unmarked)
    return RowSplit(np.setdiff1d(unmarked, held), held, f"{remark}: {which}" if len(unmarked) else "")


def _held_out(store: LineStore, rows: Indices) -> tuple[Indices, str]:
    """The rows that are not trained on but validated with, and what is said of that."""
    candidates = _by_persons(store, rows)
    persons, count = len(candidates), len(rows)
    if persons < HOLD_OUT_FROM:
        few = "too few to hold any out to validate: no score will be given, and the last weights are kept"
        which = ", " if persons == count else f"; the {persons} that are not a model's: "
        return candidates[:0], f"all {count} are trained on{which}{few}"
    every = 5 if persons < _PLENTY else 10
    held: Indices = candidates[every - 1 :: every]
    which = f"{persons}" if persons == count else f"the {persons} that are not a model's"
    rough = f" ({len(held)} lines: a rough guide)" if len(held) < _ROUGH else ""
    return held, f"every {every}th of {which} is held out to validate{rough}"


def _by_persons(store: LineStore, rows: Indices) -> Indices:
    return rows[~store.machine[rows]]


def _plain_sets(store: LineStore) -> Indices:
    """The rows of sets in which no line is marked."""
    unmarked = store.unmarked()
    if not len(unmarked):
        return unmarked
    sets = store.sets()
    return unmarked[~np.isin(sets[unmarked], np.delete(sets, unmarked))]


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
    train, validation, remark = split_rows(store)
    remarks = [remark] if remark else []
    if number := int(store.machine[store.rows("validation")].sum()):
        which = "1 line marked as validation is as the model read it"
        which = which if number == 1 else f"{number} lines marked as validation are as the model read them"
        remarks.append(f"{which}: not validated on")
    taught = plain if config.data.transcripts == "plain" else normalise
    train = _drawn(_spellable(store, _with_text(store, train, taught, remarks), config, remarks), config, remarks)
    charset = _charset(store, train, known, mode, taught, remarks)
    if known is not None and mode == "keep":
        train = _writable(store, train, charset, taught, remarks)
    if not len(train):
        sources = ", ".join(store.meta["sources"])
        raise SpikeHTRError(f"{sources}: no line to train on; `spikehtr data check` says why")
    _check_unknown(store, validation, charset, remarks, allow_unknown)
    width, cache = config.data.max_width, config.data.cache_mb
    return TrainingSets(
        Lines(store, train, charset, width, cache, transcripts=config.data.transcripts),
        Lines(store, validation, charset, width, cache // 4, labelled=False),
        remarks,
    )


def _with_text(store: LineStore, rows: Indices, taught: Taught, remarks: list[str]) -> Indices:
    """The rows of whose transcript something is left to teach."""
    left = np.array([bool(taught(store.text(int(row)))) for row in rows], dtype=bool)
    if not left.all():
        remarks.append(
            f"{int((~left).sum())} training lines are left out: of their transcripts nothing is left to teach"
        )
    kept: Indices = rows[left]
    return kept


def _charset(
    store: LineStore, rows: Indices, known: Charset | None, mode: Mode, taught: Taught, remarks: list[str]
) -> Charset:
    texts = (taught(store.text(int(row))) for row in rows)
    if known is None:
        return Charset.from_texts(texts)
    change = change_charset(known, texts, mode)
    remarks.append(f"--charset {mode}: {change.message}")
    return change.charset


def _spellable(store: LineStore, rows: Indices, config: Config, remarks: list[str]) -> Indices:
    """The rows whose width gives CTC enough frames for their text."""
    frames = -(-np.minimum(store.widths[rows], config.data.max_width) // config.model.character_width)
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


def _writable(store: LineStore, rows: Indices, charset: Charset, taught: Taught, remarks: list[str]) -> Indices:
    """The rows whose text the charset can write."""
    unknown, lines = _unknown(store, rows, charset, taught)
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
    number = int(lines.sum())
    which = "1 validation line holds" if number == 1 else f"{number} validation lines hold"
    found = f"{which} characters that training never shows: {_some(unknown)}"
    if not allow_unknown:
        before = "".join(f" ({remark})" for remark in remarks)  # lines left out may be the reason
        raise SpikeHTRError(f"{found}; mend their texts, or count them as errors with --allow-unknown{before}")
    remarks.append(f"{found}; they count as errors")


def _unknown(
    store: LineStore, rows: Indices, charset: Charset, taught: Taught = normalise
) -> tuple[list[str], NDArray[np.bool_]]:
    """The characters that `charset` lacks, and which rows hold one."""
    each = [charset.unknown(taught(store.text(int(row)))) for row in rows]
    return sorted(set().union(*each)), np.array([bool(found) for found in each], dtype=bool)


def _some(characters: list[str]) -> str:
    return show(characters[:10]) + (f" and {len(characters) - 10} more" if len(characters) > 10 else "")
