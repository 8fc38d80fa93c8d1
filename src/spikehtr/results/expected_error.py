"""How much of what was read is likely wrong: told by how sure the model was, as it was on hands it had never seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from spikehtr.results.line import Line

UNSURE = 0.9  # confidence below which a character is unsure
FEWEST = 100  # characters: fewer say little
NOTE = "expected_error"  # of a model's file
_LEAST, _MOST = 0.002, 0.95  # shares beyond are taken for these


class UnsureCount(NamedTuple):
    unsure: int
    characters: int

    @classmethod
    def of(cls, confidences: Iterable[float]) -> Self:
        known = list(confidences)
        return cls(sum(confidence < UNSURE for confidence in known), len(known))

    @classmethod
    def in_lines(cls, lines: Iterable[Line]) -> Self:
        return cls.of(character.confidence for line in lines for character in line.characters)

    @property
    def share(self) -> float:
        return self.unsure / max(1, self.characters)


class ErrorEstimate(NamedTuple):
    """The share of wrong characters, from the share of unsure ones: log-odds from log-odds.

    Confidences are calibrated on hands that the model knows. Of others they promise too much, the more the stranger
    the hand; this is fitted on such (`evaluation.fit_expected_error`), so it is too high for hands the model knows.
    """

    slope: float
    bias: float

    @classmethod
    def noted(cls, notes: dict[str, Any]) -> Self | None:
        """What a model's notes have; None where they have none."""
        found = notes.get(NOTE)
        return None if found is None else cls(float(found["slope"]), float(found["bias"]))

    def note(self) -> dict[str, Any]:
        return {NOTE: {name: round(value, 4) for name, value in self._asdict().items()}}

    def of_share(self, unsure: float) -> float:
        return 1 / (1 + math.exp(-(self.slope * log_odds(unsure) + self.bias)))

    def of(self, lines: Iterable[Line]) -> float | None:
        """The expected share of wrong characters; None where there are too few to tell."""
        count = UnsureCount.in_lines(lines)
        return self.of_share(count.share) if count.characters >= FEWEST else None


def log_odds(share: float) -> float:
    share = min(max(share, _LEAST), _MOST)
    return math.log(share / (1 - share))


def in_words(share: float) -> str:
    """'one character in five is wrong'."""
    one_in = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    if share > 0.6:
        return "most characters are wrong"
    number = min(max(round(1 / max(share, 1e-9)), 2), 1000)
    named = one_in[number - 2] if number <= 10 else str(round(number, -1 if number >= 20 else 0))
    return f"about one character in {named} is wrong"
