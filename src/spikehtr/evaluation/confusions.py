"""Which characters are taken for which, which are often wrong, and whether long lines are read worse."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from rapidfuzz.distance import Levenshtein

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rates import Edits

LENGTH_BINS = (20, 40, 60, 80)
_Key = TypeVar("_Key", str, tuple[str, str])


@dataclass(frozen=True)
class CharacterErrors:
    """How often a reference character was substituted or deleted. Insertions are no reference character's fault."""

    character: str
    errors: int
    count: int

    @property
    def rate(self) -> float:
        return self.errors / self.count


@dataclass(frozen=True)
class LengthBin:
    """The lines whose reference has `low` to `high` characters, both included; `high` None has no end."""

    low: int
    high: int | None
    lines: int
    edits: Edits


@dataclass(frozen=True)
class Confusions:
    """Counts over all lines, the most frequent first, ties in code point order."""

    substitutions: dict[tuple[str, str], int]  # (reference, read)
    deletions: dict[str, int]
    insertions: dict[str, int]
    characters: tuple[CharacterErrors, ...]  # every reference character, the one with most errors first
    lengths: tuple[LengthBin, ...]  # bins that hold lines, the shortest first


def confusions(pairs: Iterable[tuple[str, str]], length_bins: Sequence[int] = LENGTH_BINS) -> Confusions:
    """Count the edits of (reference, hypothesis) lines, each aligned with the fewest edits.

    `length_bins` are the lengths at which a new bin starts, so (20, 40) makes 0-19, 20-39 and 40 up. Where several
    alignments are equally short, rapidfuzz's choice is counted: single confusions of a badly read line mean little.
    """
    starts = [0, *length_bins]
    if any(low >= high for low, high in pairwise(starts)):
        raise SpikeHTRError(f"length bins must start above 0 and rise, not {list(length_bins)}")
    seen: Counter[str] = Counter()
    substitutions: Counter[tuple[str, str]] = Counter()
    deletions: Counter[str] = Counter()
    insertions: Counter[str] = Counter()
    lines = [0] * len(starts)
    edits = [Edits()] * len(starts)
    for reference, hypothesis in pairs:
        operations = Levenshtein.editops(reference, hypothesis)
        seen.update(reference)
        for operation in operations:
            tag, here, there = operation.tag, operation.src_pos, operation.dest_pos
            if tag == "replace":
                substitutions[reference[here], hypothesis[there]] += 1
            elif tag == "delete":
                deletions[reference[here]] += 1
            else:
                insertions[hypothesis[there]] += 1
        place = bisect_right(starts, len(reference)) - 1
        lines[place] += 1
        edits[place] += Edits.of(operations, len(reference))
    wrong = deletions.copy()
    for (character, _), count in substitutions.items():
        wrong[character] += count
    by_character = [CharacterErrors(character, wrong[character], count) for character, count in seen.items()]
    highs = [*(start - 1 for start in length_bins), None]
    return Confusions(
        _most_frequent_first(substitutions),
        _most_frequent_first(deletions),
        _most_frequent_first(insertions),
        tuple(sorted(by_character, key=lambda c: (-c.errors, c.character))),
        tuple(LengthBin(*bin_) for bin_ in zip(starts, highs, lines, edits, strict=True) if bin_[2]),
    )


def _most_frequent_first(counts: Counter[_Key]) -> dict[_Key, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
