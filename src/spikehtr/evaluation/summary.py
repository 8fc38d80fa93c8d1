"""The numbers of an evaluation: error rates with intervals, always with what was counted by name. Plain data."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

from spikehtr.evaluation.confusions import confusions
from spikehtr.evaluation.intervals import FEW, LEVEL, SAMPLES, bootstrap_interval
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rates import Edits, Folding, character_edits, finite, total, word_edits

Counted = Callable[[str, str], Edits]

_FOLDED, _FREE = Folding.CASE_FOLDED, Folding.PUNCTUATION_FREE
_FOLDINGS = (_FOLDED, _FREE, _FOLDED | _FREE)
_WHITESPACE, _SPLIT = "WER, whitespace words", "WER, punctuation split"

# The three rates that two models are compared by.
MAIN: dict[str, Counted] = {
    "CER, plain": character_edits,
    _WHITESPACE: partial(word_edits, tokens="whitespace"),
    _SPLIT: partial(word_edits, tokens="punctuation"),
}
# Once punctuation is out there is none to split off, so words without it are counted one way only.
RATES: dict[str, Counted] = {
    **MAIN,
    **{f"CER, {v.label}": partial(character_edits, folding=v) for v in _FOLDINGS},
    **{f"{_WHITESPACE}, {v.label}": partial(word_edits, tokens="whitespace", folding=v) for v in _FOLDINGS},
    f"{_SPLIT}, {_FOLDED.label}": partial(word_edits, tokens="punctuation", folding=_FOLDED),
}


class InDocument(Protocol):
    """A line that says where it comes from."""

    @property
    def set(self) -> str: ...
    @property
    def document(self) -> str | None: ...


def summarise(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Everything there is to say about lines that were read: `rates_of` all of them, `sets` the same for each set where
    there are several, and all confusions, errors by character and errors by length."""
    names = list(dict.fromkeys(p.set for p in predictions))
    sets = {name: rates_of([p for p in predictions if p.set == name]) for name in names}
    errors = confusions((p.reference, p.text) for p in predictions)
    return rates_of(predictions) | {"sets": sets if len(sets) > 1 else {}} | errors


def rates_of(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """Rates of some lines, intervals over `clusters_of` them."""
    clusters = clusters_of(predictions)
    pairs = [(p.reference, p.text) for p in predictions]
    return {
        "lines": len(predictions),
        "documents": len({(p.set, p.document) for p in predictions if p.document is not None}),
        **resampling(predictions),
        "rates": {name: _rate([counted(*pair) for pair in pairs], clusters) for name, counted in RATES.items()},
        "keep_ratio": finite(sum(p.keep_ratio for p in predictions) / max(1, len(predictions))),
        "whole_lines_right": sum(p.reference == p.text for p in predictions) / max(1, len(predictions)),
    }


def clusters_of(lines: Sequence[InDocument]) -> list[Hashable] | None:
    """What is resampled together: each line's document, None where that is unknown; None for all where fewer than two
    documents are known. Two sets' documents of one name are two."""
    known = [None if p.document is None else (p.set, p.document) for p in lines]
    return list(known) if len(set(known) - {None}) > 1 else None


def resampling(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """How intervals of these lines are made: of what, of how many of them, and whether these are too few."""
    clusters = clusters_of(predictions)
    units = len(set(clusters) - {None}) + clusters.count(None) if clusters else len(predictions)
    unit = "documents" if clusters else "lines"
    return {"resampled": unit, "units": units, "too_few": units < FEW, "level": LEVEL, "resamples": SAMPLES}


def visible(character: str) -> str:
    """A character as a reader can tell it: plain ASCII as it is, everything else with its code point."""
    if character.isascii() and character.isprintable() and character != " ":
        return character
    point = f"U+{ord(character):04X}"
    kind = unicodedata.category(character)[0]
    if character == " ":
        return f"space ({point})"
    if kind in "ZC":  # other white space, control and format characters
        return f"{unicodedata.name(character, 'control').lower()} ({point})"
    return f"\u25cc{character} ({point})" if kind == "M" else f"{character} ({point})"


def _rate(edits: list[Edits], clusters: Sequence[Hashable] | None) -> dict[str, Any]:
    whole = total(edits)
    interval = bootstrap_interval(edits, clusters)
    bounds = [interval.low, interval.high] if interval.possible else None
    return {"rate": finite(whole.rate), "interval": bounds, "errors": whole.errors, "length": whole.length}
