"""Interpolated modified Kneser-Ney n-grams from text (Chen and Goodman, 1999).

An n-gram of the highest order counts as often as it was seen; a shorter one as often as there are different tokens
before it, or, at a line's start, where nothing can be before it, as often as it was seen. From each count something is
taken away, by counts of counts, and given to the shorter context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spikehtr.decoding.ngrams import LONGEST_ORDER, MOST_CHARACTERS, Floats, Ints, Level, NGrams, Vocabulary
from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise

KEPT_WHOLE = 3  # n-grams of so many tokens or fewer are never pruned: they are few
_LONG, _USUAL = 200, 60  # characters: a longer line is a paragraph, and is cut at spaces into lines of the usual length
_FALLBACK = (0.5, 1.0, 1.5)  # discounts where counts of counts give none, as KenLM has them


class _Counted(NamedTuple):
    """The n-grams of one length as they were seen."""

    prefix: Ints
    label: Ints
    suffix: Ints
    seen: Ints
    at_start: NDArray[np.bool_]  # whether the first token is the line's start


def prepare_lines(texts: Sequence[str]) -> list[str]:
    """Texts as lines of handwriting have them: normalised, no empty ones, paragraphs cut at spaces."""
    lines: list[str] = []
    for text in map(normalise, texts):
        if len(text) <= _LONG:
            lines += [text] if text else []
            continue
        words, length = [], 0
        for word in text.split(" "):
            words.append(word)
            length += len(word) + 1
            if length > _USUAL:
                lines.append(" ".join(words))
                words, length = [], 0
        lines += [" ".join(words)] if words else []
    return lines


def train_ngrams(lines: Sequence[str], order: int, min_count: int = 1) -> NGrams:
    """The n-grams of `lines` (see `prepare_lines`).

    N-grams of more than KEPT_WHOLE tokens that were seen fewer than `min_count` times are left out.
    """
    if not 1 <= order <= LONGEST_ORDER:
        raise SpikeHTRError(f"the order of a language model is 1 to {LONGEST_ORDER} characters, not {order}")
    if not lines:
        raise SpikeHTRError("no text is left to make a language model of: every line is empty")
    characters = tuple(sorted(set().union(*lines)))
    if len(characters) > MOST_CHARACTERS:
        raise SpikeHTRError(f"the text has {len(characters)} different characters; at most {MOST_CHARACTERS} will do")
    vocabulary = Vocabulary(characters)
    counted = _count(*vocabulary.encode(lines), vocabulary.start + 1, order)
    levels: list[Level] = []
    kept_rows = np.arange(len(counted[0].label))  # of the level before: the row each n-gram has once pruned, or -1
    for length, level in enumerate(counted, start=1):
        weight = level.seen
        if length < order:
            weight = np.where(level.at_start, weight, np.bincount(counted[length].suffix, minlength=len(weight)))
        if length == 1:
            weight[vocabulary.start] = 0  # it is never predicted
        keep = level.seen >= min_count if length > KEPT_WHOLE else np.ones(len(weight), bool)
        levels, kept_rows = _add_level(levels, kept_rows, level, weight, keep, len(vocabulary))
    return NGrams(vocabulary, tuple(levels))


def _count(tokens: Ints, first: Ints, size: int, order: int) -> list[_Counted]:
    """Every n-gram that lies within a line, by length; a level is sorted by (prefix, label)."""
    depth = np.arange(len(tokens), dtype=np.int32)
    depth -= np.repeat(first, np.diff(first, append=len(tokens))).astype(np.int32)  # tokens before it in its line
    every = np.arange(size)
    level = _Counted(
        np.zeros(size, np.int64),
        every,
        np.zeros(size, np.int64),
        np.bincount(tokens, minlength=size),
        every == size - 1,
    )
    levels = [level]
    names = tokens  # of the n-gram that ends at each position
    for length in range(2, order + 1):
        ends = np.flatnonzero(depth >= length - 1)
        keys = names[ends - 1].astype(np.int64) * size + tokens[ends]
        by_key = np.argsort(keys)
        keys = keys[by_key]
        new = np.flatnonzero(np.diff(keys, prepend=-1))  # where each different n-gram begins
        prefix, label = np.divmod(keys[new], size)
        suffix = names[ends[by_key[new]]].astype(np.int64)
        level = _Counted(prefix, label, suffix, np.diff(new, append=len(keys)), level.at_start[prefix])
        levels.append(level)
        if length < order:
            fresh = np.full(len(tokens), -1, np.int32)
            fresh[ends[by_key]] = np.repeat(np.arange(len(new), dtype=np.int32), level.seen)
            names = fresh  # type: ignore[assignment]  # 32 bits, to save memory
    return levels


def _add_level(
    levels: list[Level], kept_rows: Ints, level: _Counted, weight: Ints, keep: NDArray[np.bool_], predicted: int
) -> tuple[list[Level], Ints]:
    """The levels with one more, and where its n-grams stand in it. The level before gets its back-off weights."""
    taken = _discounts(weight)[np.minimum(weight, 3)]
    contexts = len(kept_rows) if levels else 1
    total = np.bincount(level.prefix, weight, minlength=contexts)
    own = np.maximum(weight - taken, 0.0)
    given = np.bincount(level.prefix[keep], own[keep], minlength=contexts)
    share = own / np.maximum(total[level.prefix], 1.0)
    left = np.where(total > 0, 1.0 - given / np.maximum(total, 1.0), 1.0)  # for the shorter context
    if levels:
        before = levels[-1]
        # What a context's n-grams leave is its back-off weight. An n-gram that is pruned takes its context along only
        # where all the context's n-grams are: then all is left, and backing off costs nothing.
        backoff = np.zeros(len(before.label))
        rows = np.flatnonzero(kept_rows >= 0)
        backoff[kept_rows[rows]] = np.log(np.maximum(left[rows], 1e-12))
        levels = [*levels[:-1], Level(before.prefix, before.label, before.suffix, before.log_prob, backoff)]
        prefix, suffix = kept_rows[level.prefix[keep]], kept_rows[level.suffix[keep]]
        shorter = np.exp(before.log_prob[suffix])
    else:
        prefix, suffix = level.prefix[keep], level.suffix[keep]
        shorter = np.full(len(prefix), 1.0 / predicted)
    probability = share[keep] + left[level.prefix[keep]] * shorter
    added = Level(prefix, level.label[keep], suffix, np.log(probability), np.zeros(len(prefix)))
    return [*levels, added], np.where(keep, np.cumsum(keep) - 1, -1)


def _discounts(weight: Ints) -> Floats:
    """What is taken from counts of 0, 1, 2 and 3 or more: [4]."""
    ones, twos, threes, fours = (int((weight == count).sum()) for count in (1, 2, 3, 4))
    if min(ones, twos, threes) > 0:
        ratio = ones / (ones + 2 * twos)
        found = [1 - 2 * ratio * twos / ones, 2 - 3 * ratio * threes / twos, 3 - 4 * ratio * fours / threes]
        if all(0 < discount <= count for count, discount in enumerate(found, start=1)):
            return np.array([0.0, *found])
    return np.array([0.0, *_FALLBACK])
