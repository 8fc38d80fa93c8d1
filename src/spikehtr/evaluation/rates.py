"""Character and word error rates, with what is counted always named.

Counts of single lines are added up and divided once: a corpus rate is total errors / total reference length, never a
mean of the lines' rates, in which a wrong character of a short line would weigh more than one of a long line.
Texts are compared as they come, code point by code point; `spikehtr.text.normalise` both sides first.
"""

from __future__ import annotations

import enum
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from rapidfuzz.distance import Editops, Levenshtein

from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise

Tokens = Literal["whitespace", "punctuation"]


class Folding(enum.Flag):
    """What is levelled in both texts before they are compared. Members combine: `CASE_FOLDED | PUNCTUATION_FREE`."""

    PLAIN = 0
    CASE_FOLDED = enum.auto()
    PUNCTUATION_FREE = enum.auto()

    @property
    def label(self) -> str:
        """The name for reports: 'plain', 'case-folded', 'case-folded, punctuation-free'."""
        names = [str(member.name).lower().replace("_", "-") for member in self]
        return ", ".join(names) or "plain"


@dataclass(frozen=True)
class Edits:
    """The fewest edits that turn a reference into what was read, and the reference's length. They add up.

    Often several splits into substitutions, deletions and insertions are equally short; rapidfuzz picks one of them.
    """

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    length: int = 0

    @classmethod
    def of(cls, operations: Editops, length: int) -> Self:
        tags = [operation.tag for operation in operations]
        return cls(tags.count("replace"), tags.count("delete"), tags.count("insert"), length)

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors / length, above 1 where much was inserted. Without any reference: 0 if nothing was read, else inf."""
        if self.length:
            return self.errors / self.length
        return math.inf if self.errors else 0.0

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.length + other.length,
        )


def total(edits: Iterable[Edits]) -> Edits:
    """The edits of a whole corpus; `.rate` is its error rate."""
    return sum(edits, Edits())


def finite(number: float) -> float | None:
    """A number that JSON can hold: a rate without any reference is None, and so is what is not known."""
    return number if math.isfinite(number) else None


def character_edits(reference: str, hypothesis: str, folding: Folding = Folding.PLAIN) -> Edits:
    """The edits between two lines in characters (code points), spaces included."""
    return _edits(fold(reference, folding), fold(hypothesis, folding))


def word_edits(
    reference: str, hypothesis: str, tokens: Tokens = "whitespace", folding: Folding = Folding.PLAIN
) -> Edits:
    """The edits between two lines in words, cut as `split_words` says. Always report `tokens` with the rate."""
    return _edits(split_words(fold(reference, folding), tokens), split_words(fold(hypothesis, folding), tokens))


def split_words(text: str, tokens: Tokens = "whitespace") -> list[str]:
    """The words of a line.

    - "whitespace": what stands between white space (Unicode's), punctuation left on its word: `"don't," he` is 2.
    - "punctuation": in addition every punctuation character (`is_punctuation`) is a word of its own, also apostrophes
      and hyphens inside words and each dot of an ellipsis: `don't, well-known` -> `don ' t , well - known`. This is
      what the published line-level results that split punctuation do (VAN, HTR-VT), for all of Unicode instead of a
      list of signs.
    """
    if tokens == "punctuation":
        text = "".join(f" {character} " if is_punctuation(character) else character for character in text)
    elif tokens != "whitespace":
        raise SpikeHTRError(f"unknown word tokens {tokens!r}: choose one of {', '.join(get_args(Tokens))}")
    return text.split()


def is_punctuation(character: str) -> bool:
    """Whether Unicode calls it punctuation or a symbol (general category P* or S*): also & % # + = € °."""
    return unicodedata.category(character)[0] in "PS"


def fold(text: str, folding: Folding) -> str:
    """Level a text. `PLAIN` changes nothing; the others also normalise, since folding can undo normalisation.

    - `CASE_FOLDED`: Unicode case folding, so `ß` is `ss` and the length can change.
    - `PUNCTUATION_FREE`: punctuation (`is_punctuation`) is taken out and leaves no gap: `don't` -> `dont`, while a
      dash between spaces leaves one space. A line of nothing else becomes empty.
    """
    if not folding:
        return text
    text = normalise(text)
    if Folding.CASE_FOLDED in folding:
        text = normalise(text.casefold())
    if Folding.PUNCTUATION_FREE in folding:
        text = normalise("".join(character for character in text if not is_punctuation(character)))
    return text


def _edits(reference: Sequence[str], hypothesis: Sequence[str]) -> Edits:
    return Edits.of(Levenshtein.editops(reference, hypothesis), len(reference))
