"""What is expected to be wrong on a page: as the model that read its lines tells, of the lines nobody has corrected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spikehtr.results.expected_error import FEWEST, ErrorEstimate, UnsureCount
from spikehtr.results.line import Line
from spikehtr.serve.documents import Entity


def judged(line: Line, estimate: ErrorEstimate | None) -> Entity | None:
    """What is kept of a reading, so that its share of errors can be told later; None where its model tells nothing."""
    return None if estimate is None else {**estimate._asdict(), **UnsureCount.in_lines([line])._asdict()}


def expected_error(lines: Iterable[Entity]) -> float | None:
    """The expected share of wrong characters in lines as machines read them; None where too few can be told of.

    Lines of several models count by their characters.
    """
    unsure, characters = Counter[ErrorEstimate](), Counter[ErrorEstimate]()
    for line in lines:
        reading = line["reading"]
        if line["by"] != "machine" or reading is None or reading["text"] != line["text"]:
            continue
        if (found := reading.get("judged")) is not None:
            estimate = ErrorEstimate(found["slope"], found["bias"])
            unsure[estimate] += found["unsure"]
            characters[estimate] += found["characters"]
    if (every := characters.total()) < FEWEST:
        return None
    return sum(one.of_share(UnsureCount(unsure[one], count).share) * count for one, count in characters.items()) / every
