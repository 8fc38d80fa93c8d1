"""Which characters are taken for which, which are often wrong, and whether long lines are read worse."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rapidfuzz.distance import Levenshtein

from spikehtr.evaluation.rates import Edits, finite

LENGTH_BINS = (0, 20, 40, 60, 80)  # characters at which a bin starts: 0 to 19, 20 to 39, ..., 80 up
KINDS = {"replace": "substitutions", "delete": "deletions", "insert": "insertions"}


def confusions(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Count the edits of (reference, hypothesis) lines, each aligned with the fewest edits; ready for JSON.

    `errors` by kind; `confusions` of each kind, the most frequent first; `characters`, every reference character, the
    one with most errors first (an insertion is no reference character's fault); `lengths`, bins that hold lines.
    Where several alignments are equally short, rapidfuzz's choice is counted: single confusions of a badly read line
    mean little.
    """
    seen, wrong = Counter[str](), Counter[str]()
    found = {kind: Counter[tuple[str, str]]() for kind in KINDS.values()}  # (reference, read); "" for nothing
    lines = [0] * len(LENGTH_BINS)
    edits = [Edits()] * len(LENGTH_BINS)
    for reference, hypothesis in pairs:
        operations = Levenshtein.editops(reference, hypothesis)
        seen.update(reference)
        for edit in operations:
            ours = "" if edit.tag == "insert" else reference[edit.src_pos]
            found[KINDS[edit.tag]][ours, "" if edit.tag == "delete" else hypothesis[edit.dest_pos]] += 1
            wrong[ours] += 1
        place = bisect_right(LENGTH_BINS, len(reference)) - 1
        lines[place] += 1
        edits[place] += Edits.of(operations, len(reference))
    errors = wrong.total()
    highs = [*(start - 1 for start in LENGTH_BINS[1:]), None]
    return {
        "errors": {"all": errors, **{kind: counts.total() for kind, counts in found.items()}},
        "confusions": {
            kind: [
                {"reference": reference or None, "read": read or None, "count": count, "share": count / errors}
                for (reference, read), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            ]
            for kind, counts in found.items()
        },
        "characters": [
            {"character": character, "count": seen[character], "errors": wrong[character]}
            | {"rate": wrong[character] / seen[character]}
            for character in sorted(seen, key=lambda character: (-wrong[character], character))
        ],
        "lengths": [
            {"low": low, "high": high, "lines": count, "errors": e.errors, "characters": e.length}
            | {"rate": finite(e.rate)}
            for low, high, count, e in zip(LENGTH_BINS, highs, lines, edits, strict=True)
            if count
        ],
    }
