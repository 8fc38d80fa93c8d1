"""Does a model that says 90 % get 90 % right? Expected calibration error, and the temperature that mends it.

A character or word that was written is right if it stands in the reference where the fewest edits align it; what was
missed has no confidence and does not count here. A temperature divides all logits: it changes no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from spikehtr.decoding.confidence import Sureness
from spikehtr.evaluation.rates import character_edits
from spikehtr.text import normalise

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
BINS = 15
GRID = tuple(2.0 ** (step / 16) for step in range(-32, 49))  # 1/4 to 8 in steps of 4.4 %; holds 1 exactly
LEAST = (("tenth", 0.1), ("fifth", 0.2), ("half", 0.5))
FEW_LINES = 20
FEW = 30  # characters, right and wrong each: with fewer a temperature would be fitted to chance
CERTAIN = 1e-3  # references err too, about so often: a certainty that turns out wrong must not decide all by itself


class Judged(NamedTuple):
    """Characters or words of any number of lines: how sure the model was at K temperatures, and was it right?"""

    confidences: Floats  # [n, K]
    right: Flags  # [n]


@dataclass(frozen=True)
class Bin:
    """Those whose confidence lies in one fifteenth of [0, 1]."""

    count: int
    confidence: float  # the mean; 0 where there are none
    right: float  # the share that is right


@dataclass(frozen=True)
class Fit:
    """The temperature for some lines, or why there is none."""

    temperature: float
    characters: int
    wrong: int
    problem: str = ""


def reliability(confidences: Floats, right: Flags, bins: int = BINS) -> list[Bin]:
    """Bins of equal width: confidence c falls into bin floor(c * bins), 1 into the last."""
    place = np.minimum((np.asarray(confidences) * bins).astype(np.int64), bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = (np.bincount(place, weights, minlength=bins) for weights in (confidences, right))
    sure, good = (total / np.maximum(counts, 1) for total in sums)
    return [Bin(int(n), float(c), float(r)) for n, c, r in zip(counts, sure, good, strict=True)]


def calibration_error(confidences: Floats, right: Flags, bins: int = BINS) -> float:
    """ECE: the mean over all of |share right - mean confidence| of their bin (Naeini 2015, Guo 2017). 0 for none."""
    found = reliability(confidences, right, bins)
    return sum(b.count * abs(b.right - b.confidence) for b in found) / max(1, len(confidences))


def log_loss(confidences: Floats, right: Flags) -> Floats:
    """The mean negative log-likelihood of being right and wrong: [n, K] -> [K]."""
    sure = np.clip(confidences, CERTAIN, 1 - CERTAIN)
    return np.asarray(-np.log(np.where(right[:, None], sure, 1 - sure)).mean(0))


def fit_temperature(characters: Judged, temperatures: Sequence[float] = GRID) -> Fit:
    """The temperature at which the characters' confidences, as users see them, are likeliest.

    By their log loss and not by the CTC loss: that one is about the reference's probability over all alignments, blanks
    included, which nobody is shown, and it is infinite for lines with a character that the model does not know.
    """
    total, wrong = len(characters.right), int(np.count_nonzero(~characters.right))
    if min(wrong, total - wrong) < FEW:
        problem = f"{wrong} of {total} characters are wrong; at least {FEW} wrong and {FEW} right ones are needed"
        return Fit(1.0, total, wrong, problem)
    best = int(log_loss(characters.confidences, characters.right).argmin())
    return Fit(float(temperatures[best]), total, wrong)


def judge_characters(lines: Sequence[tuple[str, Sureness]]) -> Judged:
    """(normalised reference, what was read) of each line -> its characters, without doubled and outer spaces."""
    sure: list[NDArray[np.float32]] = []
    right: list[bool] = []
    for reference, read in lines:
        kept = kept_places(read.text)
        text = "".join(read.text[i] for i in kept)
        sure.append(read.characters[kept])
        right += equal_items(reference, text)
    return _judged(sure, right)


def judge_words(lines: Sequence[tuple[str, Sureness]]) -> Judged:
    """The same for words, cut at white space; a word's confidence is the product of its characters'."""
    sure: list[NDArray[np.float32]] = []
    right: list[bool] = []
    for reference, read in lines:
        places = word_places(read.text)
        sure += [read.characters[place].prod(0, keepdims=True) for place in places]
        right += equal_items(reference.split(), ["".join(read.text[i] for i in place) for place in places])
    return _judged(sure, right)


def _judged(sure: list[NDArray[np.float32]], right: list[bool]) -> Judged:
    confidences = np.concatenate(sure) if sure else np.zeros((0, 1))
    return Judged(np.clip(confidences.astype(np.float64), 0.0, 1.0), np.array(right, dtype=bool))


def kept_places(text: str) -> list[int]:
    """The places of all characters but spaces that `normalise` takes away."""
    end = len(text.rstrip())
    return [i for i in range(end) if not (text[i].isspace() and (i == 0 or text[i - 1].isspace()))]


def word_places(text: str) -> list[list[int]]:
    """The places of each word's characters."""
    words: list[list[int]] = [[]]
    for place, character in enumerate(text):
        if character.isspace():
            words.append([])
        else:
            words[-1].append(place)
    return [word for word in words if word]


def equal_items(reference: Sequence[str], read: Sequence[str]) -> list[bool]:
    """Which items of `read` the fewest edits leave as they are."""
    right = [False] * len(read)
    for block in Levenshtein.opcodes(reference, read):
        if block.tag == "equal":
            right[block.dest_start : block.dest_end] = [True] * (block.dest_end - block.dest_start)
    return right


def calibration_summary(lines: Sequence[tuple[str, Sureness]], temperature: float) -> dict[str, Any]:
    """Everything about confidence, ready for JSON. Lines know it at two temperatures: 1, and the one given."""
    parts: dict[str, Any] = {"temperature": temperature, "bins": BINS}
    for name, judge in (("characters", judge_characters), ("words", judge_words)):
        judged = judge(lines)
        parts[name] = {
            "count": len(judged.right),
            "right": float(judged.right.mean()) if len(judged.right) else None,
            "raw": _measures(judged, 0),
            "calibrated": _measures(judged, 1),
        }
    return parts | {"lines": {"errors_in_least_sure": errors_in_least_sure(lines)}}


def errors_in_least_sure(lines: Sequence[tuple[str, Sureness]]) -> dict[str, float]:
    """Of all wrong characters, the share in the least sure tenth, fifth and half of the lines; by chance it is as much.

    Confidences at the second of two temperatures. Empty where nothing is wrong, or lines are too few to be parted so.
    """
    order = np.argsort([read.line[1] for _, read in lines], kind="stable")
    errors = np.array([character_edits(reference, normalise(read.text)).errors for reference, read in lines])
    if len(lines) < FEW_LINES or not errors.any():
        return {}
    found = errors[order].cumsum() / errors.sum()
    return {name: float(found[round(share * len(lines)) - 1]) for name, share in LEAST}


def _measures(judged: Judged, column: int) -> dict[str, Any]:
    sure = judged.confidences[:, column] if len(judged.right) else np.zeros(0)
    return {
        "ece": calibration_error(sure, judged.right),
        "mean_confidence": float(sure.mean()) if len(sure) else None,
        "reliability": [asdict(b) for b in reliability(sure, judged.right)],
    }


def file_notes(summary: dict[str, Any], data: Sequence[str], split: str) -> dict[str, Any]:
    """What a model file keeps of its calibration: the temperature, fitted on what, and the error before and after."""
    parts = summary["calibration"]
    errors = {
        name: {"before": round(parts[name]["raw"]["ece"], 5), "after": round(parts[name]["calibrated"]["ece"], 5)}
        for name in ("characters", "words")
    }
    names = [Path(source).name for source in data]  # names, not the maker's folders
    made_on = {"data": names, "split": split, "lines": summary["lines"], "characters": parts["characters"]["count"]}
    return {"temperature": parts["temperature"], "calibration": made_on | {"ece": errors}}
