"""The numbers of an evaluation: error rates with intervals, always with what was counted by name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from spikehtr.evaluation.intervals import bootstrap_interval
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rates import Edits, Variant, character_edits, total, word_edits

_VARIANTS = (
    Variant.PLAIN,
    Variant.CASE_FOLDED,
    Variant.PUNCTUATION_FREE,
    Variant.CASE_FOLDED | Variant.PUNCTUATION_FREE,
)


def summarise(predictions: Sequence[Prediction], documents: Sequence[Hashable] | None = None) -> dict[str, Any]:
    """Rates of all lines; intervals over `documents` (one a line, None where unknown) where there are two at least,
    else over lines."""
    known = {document for document in documents or () if document is not None}
    documents = documents if len(known) > 1 else None
    rates: dict[str, Any] = {}
    pairs = [(p.reference, p.text) for p in predictions]
    for variant in _VARIANTS:
        rates[f"CER, {variant.label}"] = _rate([character_edits(*pair, variant) for pair in pairs], documents)
    rates["WER, whitespace words"] = _rate([word_edits(*pair, "whitespace") for pair in pairs], documents)
    rates["WER, punctuation split"] = _rate([word_edits(*pair, "punctuation") for pair in pairs], documents)
    return {
        "lines": len(predictions),
        "documents": len(known),
        "resampled": "documents" if documents else "lines",
        "rates": rates,
        "keep_ratio": sum(p.keep_ratio for p in predictions) / max(1, len(predictions)),
        "whole_lines_right": sum(p.reference == p.text for p in predictions) / max(1, len(predictions)),
    }


def _rate(edits: list[Edits], documents: Sequence[Hashable] | None) -> dict[str, Any]:
    whole = total(edits)
    interval = bootstrap_interval(edits, documents)
    bounds = [interval.low, interval.high] if interval.possible else None
    return {"rate": whole.rate, "interval": bounds, "errors": whole.errors, "length": whole.length}
