"""N-grams of characters with their probabilities: what training, ARPA files and mixtures have in common.

A model of order N lists n-grams of 1 to N tokens. Each has a log-probability, of its last token after the others, and
those that others continue have a back-off weight. Every n-gram's prefix and suffix (all but the last, all but the first
token) is listed as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

END = 0  # the token of a line's end; characters are 1 to V
MOST_CHARACTERS = 65_000  # labels are kept in 16 bits
LONGEST_ORDER = 8


@dataclass(frozen=True)
class Vocabulary:
    """Characters as tokens 1 to V; around them the line's end (0), the unknown character and the line's start."""

    characters: tuple[str, ...]

    @property
    def unknown(self) -> int:
        return len(self.characters) + 1

    @property
    def start(self) -> int:
        """Stands only at the beginning of an n-gram; it is never predicted."""
        return len(self.characters) + 2

    def __len__(self) -> int:
        """How many tokens can be predicted."""
        return len(self.characters) + 2

    def tokens(self, characters: Sequence[str]) -> Ints:
        known = {character: token for token, character in enumerate(self.characters, start=1)}
        return np.array([known.get(character, self.unknown) for character in characters], np.int64)

    def encode(self, lines: Sequence[str]) -> tuple[Ints, Ints]:
        """Lines -> their tokens, start and end included, one after the other; and where each line begins."""
        codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), np.uint32)
        own = np.array([ord(character) for character in self.characters], np.int64)
        highest = max(int(codes.max(initial=0)), int(own.max(initial=0)))
        table = np.full(highest + 1, self.unknown, np.int32)
        table[own] = np.arange(1, len(own) + 1)
        lengths = np.array([len(line) for line in lines], np.int64) + 2
        first = np.cumsum(lengths) - lengths
        tokens = np.full(int(lengths.sum()), -1, np.int32)
        tokens[first] = self.start
        tokens[first + lengths - 1] = END
        tokens[tokens < 0] = table[codes]
        return tokens, first  # type: ignore[return-value]


@dataclass(frozen=True)
class Level:
    """The n-grams of one length, sorted by (prefix, label)."""

    prefix: Ints  # [M], the row of the level before that they continue; 0 for single tokens
    label: Ints  # [M], their last token
    suffix: Ints  # [M], the row of the level before that they are without their first token
    log_prob: Floats  # [M], natural logarithm; that of the line's start has no meaning
    backoff: Floats  # [M], natural logarithm; 0 where nothing continues them

    def find(self, prefix: Ints, label: Ints, tokens: int) -> Ints:
        """Rows of n-grams, -1 for those that are not listed."""
        keys = self.prefix * tokens + self.label
        wanted = prefix * tokens + label
        place = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
        found = keys[place] == wanted if len(keys) else np.zeros(len(wanted), bool)
        return np.where(found & (prefix >= 0), place, -1)


@dataclass(frozen=True)
class NGrams:
    """All levels. Row t of the first is token t; its last row is the line's start."""

    vocabulary: Vocabulary
    levels: tuple[Level, ...]

    @property
    def order(self) -> int:
        return len(self.levels)

    def tokens_of(self, length: int) -> Ints:
        """The n-grams of one length, spelt out: [M, length]."""
        rows = np.arange(len(self.levels[length - 1].label))
        columns = []
        for level in reversed(self.levels[:length]):
            columns.append(level.label[rows])
            rows = level.prefix[rows]
        return np.stack(columns[::-1], axis=1)


def suffixes(levels: Sequence[Level], prefix: Ints, label: Ints, tokens: int) -> Ints:
    """The suffix rows of n-grams that continue the last of `levels`; -1 for those that are not listed."""
    if not levels:
        return np.zeros(len(label), np.int64)
    if len(levels) == 1:
        return label
    return levels[-1].find(levels[-1].suffix[prefix], label, tokens)


def build_levels(vocabulary: Vocabulary, grams: Sequence[tuple[Ints, Floats, Floats]]) -> NGrams:
    """N-grams as found (for each length: tokens [M, length], log-probabilities, back-offs; no two alike) -> NGrams.

    The tokens of the first must be complete: the line's start has row V + 2. Prefixes and suffixes that are missing are
    put in with the probability that backing off gives them, which changes no probability of the model.
    """
    size = vocabulary.start + 1
    wanted = _closed([tokens for tokens, _, _ in grams])
    levels: list[Level] = []
    for length, (tokens, (given, log_prob, backoff)) in enumerate(zip(wanted, grams, strict=True), start=1):
        prefix = np.zeros(len(tokens), np.int64)
        for place, level in enumerate(levels):
            prefix = level.find(prefix, tokens[:, place], size) if place else tokens[:, 0]
        label = tokens[:, -1]
        suffix = suffixes(levels, prefix, label, size)
        probs, backs = np.full(len(tokens), np.nan), np.zeros(len(tokens))
        rows = rows_of(tokens, given)
        probs[rows], backs[rows] = log_prob, backoff
        missing = np.isnan(probs)
        if missing.any():
            probs[missing] = levels[-1].log_prob[suffix[missing]] + levels[-1].backoff[prefix[missing]]
        assert length > 1 or (len(label) == size and not missing.any())
        levels.append(Level(prefix, label, suffix, probs, backs))
    return NGrams(vocabulary, tuple(levels))


def _closed(grams: Sequence[Ints]) -> list[Ints]:
    """Each length's n-grams, sorted, and with them the prefixes and suffixes of the longer ones."""
    out: list[Ints] = []
    more = grams[-1][:0]
    for tokens in reversed(grams):
        out.append(distinct(np.concatenate([tokens, more])))
        more = np.concatenate([out[-1][:, :-1], out[-1][:, 1:]])
    return out[::-1]


def distinct(tokens: Ints) -> Ints:
    """The different rows of [M, length], sorted."""
    _, first = np.unique(_ranks(tokens), return_index=True)
    rows: Ints = tokens[first]
    return rows


def rows_of(every: Ints, some: Ints) -> Ints:
    """Where the rows of `some` stand in `every`, which is sorted and holds them all, each once."""
    return _ranks(np.concatenate([every, some]))[len(every) :]


def _ranks(tokens: Ints) -> Ints:
    """Of each row, how many different rows sort before it."""
    ranks = np.unique(tokens[:, 0], return_inverse=True)[1]
    for column in tokens.T[1:]:
        ranks = np.unique(ranks * (int(column.max(initial=0)) + 1) + column, return_inverse=True)[1]
    return ranks.astype(np.int64)
