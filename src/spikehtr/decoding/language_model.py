"""A language model of characters, as an automaton that the decoders walk.

A state is a context: the last characters read, as many as the model has statistics of. Its arcs are the tokens seen
after it, sorted: an arc has the token's log-probability and the state it leads to. A token without an arc costs the
state's back-off weight and is looked for in the state of the shorter context. State 0 is the empty context and has an
arc for every token. All of it is a handful of arrays, which is what the file holds and the C and GPU decoders read.
"""

from __future__ import annotations

import json
import math
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from spikehtr.decoding.ngrams import END, LONGEST_ORDER, Ints, Level, NGrams, Vocabulary, suffixes
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file
from spikehtr.text import Charset
from spikehtr.version import __version__

FORMAT = "spikehtr-lm-1"
ARRAYS = {
    "first_arc": np.int32,  # [S + 1], where each state's arcs begin
    "backoff_state": np.int32,  # [S], the state of the shorter context; always a lower number, 0 of state 0
    "backoff": np.float32,  # [S], natural logarithm
    "label": np.uint16,  # [A], ascending within a state
    "log_prob": np.float32,  # [A], natural logarithm
    "to": np.int32,  # [A], the state that the arc leads to
    "states_by_length": np.int32,  # how many states have contexts of 0, 1, ... tokens; they are numbered in this order
}


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """P(next token | the tokens before). Tokens are those of `vocabulary`: 0 ends the line."""

    vocabulary: Vocabulary
    arrays: Mapping[str, NDArray[Any]]
    start: int  # the state at a line's start; 0 where the model has none
    notes: dict[str, Any] = field(default_factory=dict)  # of what it was made, perplexity, weights for decoding

    @property
    def order(self) -> int:
        return len(self.arrays["states_by_length"])

    @property
    def states(self) -> int:
        return len(self.arrays["backoff"])

    @property
    def arcs(self) -> int:
        return len(self.arrays["label"])

    @classmethod
    def from_ngrams(cls, ngrams: NGrams, notes: dict[str, Any] | None = None) -> Self:
        """Contexts that nothing continues and whose back-off weight is 1 need no state."""
        levels, start = ngrams.levels, ngrams.vocabulary.start
        state_of: list[Ints] = []  # of each n-gram, the state of the longest of its suffixes that has one
        counts, backoffs, backoff_states, widths, own_states = [1], [np.zeros(1)], [np.zeros(1, np.int64)], [], []
        for length, level in enumerate(levels, start=1):
            own = np.zeros(len(level.label), bool)
            if length < len(levels):
                own = (np.bincount(levels[length].prefix, minlength=len(own)) > 0) | (level.backoff != 0)
            shorter = state_of[-1][level.suffix] if state_of else np.zeros(len(own), np.int64)
            states = np.where(own, sum(counts) + np.cumsum(own) - 1, shorter)
            state_of.append(states)
            if length < len(levels):
                counts.append(int(own.sum()))
                backoffs.append(level.backoff[own])
                backoff_states.append(shorter[own])
            own_states.append(own)
        arcs = [(level.label, level.log_prob, to) for level, to in zip(levels, state_of, strict=True)]
        predicted = levels[0].label != start
        arcs[0] = (levels[0].label[predicted], levels[0].log_prob[predicted], state_of[0][predicted])
        widths = [np.array([len(arcs[0][0])])]
        for length, level in enumerate(levels[1:]):
            widths.append(np.bincount(level.prefix, minlength=len(own_states[length]))[own_states[length]])
        label, log_prob, to = (np.concatenate([level[part] for level in arcs]) for part in range(3))
        arrays: dict[str, NDArray[Any]] = {
            "first_arc": np.concatenate([[0], np.cumsum(np.concatenate(widths))]),
            "backoff_state": np.concatenate(backoff_states),
            "backoff": np.concatenate(backoffs),
            "label": label,
            "log_prob": np.minimum(log_prob, 0.0),
            "to": to,
            "states_by_length": np.array(counts),
        }
        arrays = {name: np.ascontiguousarray(values, ARRAYS[name]) for name, values in arrays.items()}
        return cls(ngrams.vocabulary, arrays, int(state_of[0][start]), notes or {})

    def to_ngrams(self) -> NGrams:
        """The n-grams it was made of, without back-off weights that no state needed (they are 1)."""
        a, size = self.arrays, self.vocabulary.start + 1
        last = np.cumsum(a["states_by_length"])
        sources = np.repeat(np.arange(self.states), np.diff(a["first_arc"]))  # of each arc
        row_of = np.zeros(self.states, np.int64)  # of each state, its n-gram's row in its level
        levels: list[Level] = []
        for length in range(1, self.order + 1):
            first, end = (last[length - 2] if length > 1 else 0), last[length - 1]
            arcs = slice(int(a["first_arc"][first]), int(a["first_arc"][end]))
            prefix, label = row_of[sources[arcs]], a["label"][arcs].astype(np.int64)
            log_prob, to = a["log_prob"][arcs].astype(np.float64), a["to"][arcs].astype(np.int64)
            if length == 1:  # the line's start, which no arc leads to
                prefix, label = np.append(prefix, 0), np.append(label, size - 1)
                log_prob, to = np.append(log_prob, 0.0), np.append(to, self.start)
            own = (to >= last[length - 1]) & (to > 0)  # leads to a state of this length, and so to its own
            backoff = np.where(own, a["backoff"][to], 0.0).astype(np.float64)
            row_of[to[own]] = np.flatnonzero(own)
            suffix = suffixes(levels, prefix, label, size)
            levels.append(Level(prefix, label, suffix, log_prob, backoff))
        return NGrams(self.vocabulary, tuple(levels))

    def step(self, state: int, token: int) -> tuple[float, int]:
        """The log-probability of a token in a state, and the state after it."""
        a, total = self.arrays, 0.0
        while True:
            first, end = int(a["first_arc"][state]), int(a["first_arc"][state + 1])
            place = bisect_left(a["label"], token, first, end)
            if place < end and a["label"][place] == token:
                return total + float(a["log_prob"][place]), int(a["to"][place])
            total += float(a["backoff"][state])
            state = int(a["backoff_state"][state])

    def steps(self, states: Ints, tokens: Ints) -> tuple[NDArray[np.float64], Ints]:
        """As `step`, for many at a time."""
        a, keys = self.arrays, self.keys
        total, states = np.zeros(len(states)), np.array(states, np.int64)
        to = np.zeros(len(states), np.int64)
        left = np.arange(len(states))
        while len(left):
            wanted = states[left] * len(self.vocabulary) + tokens[left]
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            hit = keys[place] == wanted
            done = left[hit]
            total[done] += a["log_prob"][place[hit]]
            to[done] = a["to"][place[hit]]
            left = left[~hit]
            total[left] += a["backoff"][states[left]]
            states[left] = a["backoff_state"][states[left]]
        return total, to

    @property
    def keys(self) -> Ints:
        """Arcs by (state, label), ascending."""
        if "keys" not in self.__dict__:
            sources = np.repeat(np.arange(self.states, dtype=np.int64), np.diff(self.arrays["first_arc"]))
            self.__dict__["keys"] = sources * len(self.vocabulary) + self.arrays["label"]
        keys: Ints = self.__dict__["keys"]
        return keys

    def score_lines(self, lines: Sequence[str]) -> list[NDArray[np.float64]]:
        """The log-probability of each character of each line, and of its end."""
        order = sorted(range(len(lines)), key=lambda index: -len(lines[index]))
        found = [np.zeros(len(line) + 1) for line in lines]
        tokens = [self.vocabulary.tokens(lines[index]) for index in order]
        states = np.full(len(lines), self.start, np.int64)
        for place in range(len(tokens[0]) + 1 if tokens else 0):
            alive = sum(len(line) >= place for line in tokens)  # the longest come first
            now = np.array([line[place] if place < len(line) else END for line in tokens[:alive]], np.int64)
            scores, states = self.steps(states[:alive], now)
            for row, score in enumerate(scores):
                found[order[row]][place] = score
        return found

    def perplexity(self, lines: Sequence[str]) -> float:
        """By token, each line's end included: how many tokens the model wavers between, on average."""
        scores = self.score_lines(lines)
        count = sum(map(len, scores))
        return math.exp(-sum(float(line.sum()) for line in scores) / count) if count else math.nan

    def tokens_of(self, charset: Charset) -> NDArray[np.int32]:
        """The token of each label of a network; the blank's is 0 and means nothing."""
        return np.concatenate([[0], self.vocabulary.tokens(charset.characters)]).astype(np.int32)

    def save(self, path: str | os.PathLike[str]) -> None:
        with whole_file(path) as temporary:
            save_file(dict(self.arrays), temporary, self.header())

    def header(self) -> dict[str, str]:
        return {
            "format": FORMAT,
            "version": __version__,
            "characters": json.dumps(self.vocabulary.characters, ensure_ascii=False),
            "start": str(self.start),
            "notes": json.dumps(self.notes, ensure_ascii=False),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """A file that `save` wrote. The arrays stay on disk until they are used."""
        path = Path(path)
        if not path.is_file():
            raise SpikeHTRError(f"{path}: {'a folder, not a language model' if path.is_dir() else 'no such file'}")
        try:
            with safe_open(str(path), "pt") as file:
                header = file.metadata() or {}
                if header.get("format") != FORMAT:
                    found = header.get("format", "no format note")
                    raise SpikeHTRError(
                        f"{path}: not a language model of format {FORMAT} (found {found}); see `spikehtr lm train`"
                    )
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            if path.name.endswith((".arpa", ".arpa.gz")):
                raise SpikeHTRError(f"{path}: convert it first: spikehtr lm from-arpa {path} -o FILE") from None
            raise SpikeHTRError(
                f"{path}: damaged, or not a language model ({reason_of(error)}); make it again"
            ) from None
        return cls.unpack(tensors, header, str(path))

    @classmethod
    def unpack(cls, tensors: Mapping[str, torch.Tensor], header: Mapping[str, str], where: str) -> Self:
        """What a file holds, once it is known to be sound."""
        try:
            characters = tuple(json.loads(header["characters"]))
            start, notes = int(header["start"]), json.loads(header.get("notes", "{}"))
            arrays = {name: tensors[name].numpy() for name in ARRAYS}
        except (KeyError, ValueError, TypeError) as error:
            raise SpikeHTRError(
                f"{where}: damaged: its language model lacks {reason_of(error)}; make it again"
            ) from None
        if fault := _fault(characters, arrays, start) or ("" if isinstance(notes, dict) else "its notes are none"):
            raise SpikeHTRError(f"{where}: damaged: {fault}; make it again")
        return cls(Vocabulary(characters), arrays, start, notes)


def _fault(characters: tuple[Any, ...], arrays: Mapping[str, NDArray[Any]], start: int) -> str:
    """What is wrong with arrays that a decoder would walk out of, or around in for ever; nothing: ''."""
    if not all(isinstance(character, str) and len(character) == 1 for character in characters):
        return "its characters are not single characters"
    if len(set(characters)) < len(characters):
        return "a character is there twice"
    tokens = len(characters) + 2
    for name, dtype in ARRAYS.items():
        if arrays[name].ndim != 1 or arrays[name].dtype != dtype:
            return f"{name} is {arrays[name].dtype} {list(arrays[name].shape)}"
    first, to, label = arrays["first_arc"], arrays["to"], arrays["label"]
    states, arcs = len(arrays["backoff"]), len(label)
    lengths = arrays["states_by_length"]
    if {len(first) - 1, len(arrays["backoff_state"])} != {states} or {len(to), len(arrays["log_prob"])} != {arcs}:
        return "its arrays are of different lengths"
    if not 1 <= len(lengths) <= LONGEST_ORDER or lengths[0] != 1 or (lengths < 0).any() or lengths.sum() != states:
        return "its states do not add up"
    if first[0] != 0 or first[-1] != arcs or (np.diff(first) < 0).any() or first[1] != tokens:
        return "its arcs do not add up"
    inside = np.ones(arcs, bool)  # arcs that follow another of the same state
    inside[first[:-1][np.diff(first) > 0]] = False
    if (label >= tokens).any() or (np.diff(label.astype(np.int32), prepend=-1)[inside] <= 0).any():
        return "its arcs are not in order"
    below = np.arange(states)
    back = arrays["backoff_state"]
    if (back < 0).any() or (back[1:] >= below[1:]).any() or (to < 0).any() or (to >= states).any():
        return "a state leads nowhere"
    if not 0 <= start < states:
        return "the line's start leads nowhere"
    if not np.isfinite(arrays["backoff"]).all() or not np.isfinite(arrays["log_prob"]).all():
        return "a probability is no number"
    return "a probability is above 1" if (arrays["log_prob"] > 0).any() else ""
