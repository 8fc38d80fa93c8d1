"""Which lines of a store a run trains on and which it is validated on, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spikehtr.config import Config
from spikehtr.data.batching import Indices, Lines
from spikehtr.data.check import frames_needed
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset, normalise, show

_HOLD_OUT = 10  # every tenth line, where no split is marked


@dataclass(frozen=True)
class Sets:
    train: Lines
    validation: Lines
    remarks: list[str] = field(default_factory=list)  # for the user, before training starts


def training_sets(store: LineStore, config: Config) -> Sets:
    remarks: list[str] = []
    train, validation = store.rows("train"), store.rows("validation")
    if not len(train):
        everything = store.rows()
        held = everything % _HOLD_OUT == _HOLD_OUT - 1
        train, validation = everything[~held], everything[held]
        remarks.append(
            f"no line is marked as training: every {_HOLD_OUT}th of {len(everything)} is held out to validate"
        )
    train = _spellable(store, train, config, remarks)
    if not len(train):
        raise SpikeHTRError(f"{store.path}: no line to train on; `spikehtr data check` says why")
    charset = Charset.from_texts(normalise(store.text(int(row))) for row in train)
    _note_unknown(store, validation, charset, remarks)
    width, cache = config.data.max_width, config.data.cache_mb
    return Sets(
        Lines(store, train, charset, width, cache),
        Lines(store, validation, charset, width, cache // 4, labelled=False),
        remarks,
    )


def _spellable(store: LineStore, rows: Indices, config: Config, remarks: list[str]) -> Indices:
    """The rows whose width gives CTC enough frames for their text."""
    frames = -(-np.minimum(store.widths[rows], config.data.max_width) // 4)
    needed = np.array([frames_needed(normalise(store.text(int(row)))) for row in rows], dtype=np.int64)
    narrow = frames < needed
    if narrow.any():
        remarks.append(
            f"{int(narrow.sum())} of {len(rows)} training lines are too narrow for their text at data.max_width = "
            f"{config.data.max_width} and left out; `spikehtr data check` lists them"
        )
    return rows[~narrow]


def _note_unknown(store: LineStore, rows: Indices, charset: Charset, remarks: list[str]) -> None:
    unknown: set[str] = set()
    lines = 0
    for row in rows:
        found = charset.unknown(normalise(store.text(int(row))))
        unknown.update(found)
        lines += bool(found)
    if lines:
        remarks.append(
            f"{lines} validation lines hold characters that training never shows: {show(sorted(unknown)[:10])}"
        )
