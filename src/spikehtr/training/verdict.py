"""What a fine-tuning came to, in words: what was learned where no score can be given, and why nothing was gained."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.evaluation.predict import Prediction, predict
from spikehtr.evaluation.rates import character_edits, total
from spikehtr.model.network import Network
from spikehtr.registry import build
from spikehtr.training.datasets import HOLD_OUT_FROM

# Measured from the bundled model: with 50 lines and 60 epochs (240 steps) it gains much (docs/results/fine-tuning.md).
_FEW_LINES, _FEW_STEPS = 50, 200
_FEW_TO_JUDGE = 20
_LEARNED = 0.5  # of the errors on lines that were trained on: with so many left they have hardly been learned
_MOST = 200  # lines that are read for a verdict
_SPELLINGS = str.maketrans("vjy", "uii")  # what transcribers of old hands keep or modernise


def sample(lines: Lines) -> Lines:
    """The first of the lines, enough for a verdict."""
    return Lines(lines.store, lines.rows[:_MOST], lines.charset, lines.max_width, labelled=False)


def read_start(weights: dict[str, Tensor], config: Config, lines: Lines, device: str) -> list[Prediction]:
    net = build(config.model, len(lines.charset))
    net.load_state_dict(weights)
    return read(net, config, lines, device)


def read(net: Network, config: Config, lines: Lines, device: str) -> list[Prediction]:
    return predict(net.to(device), lines, config.training.batch_size, config.data.workers)


def error_rate(predictions: Iterable[Prediction]) -> float:
    return total(character_edits(one.reference, one.text) for one in predictions).rate


def learned(lines: int, before: float, after: float) -> str:
    """For a run without validation lines: `before` and `after` are CERs on lines that were trained on."""
    came = f"on these very lines the CER went from {before:.2%} to {after:.2%}"
    if after <= before * _LEARNED or not before:
        judged = f"{came}: they were learned, which does not say how well others are read"
    else:
        little = "they were learned only in part" if after < before else "they were not learned"
        judged = f"{came}: {little}; train longer (-s training.epochs=N, or --max-minutes)"
    more = f"correct {HOLD_OUT_FROM} or more for a score" if lines < HOLD_OUT_FROM else "mark some as validation"
    return f"all {lines} lines were trained on, so there is no score ({more}); {judged}"


@dataclass(frozen=True)
class Setback:
    """A run of which no epoch read the validation lines better than the model it began with."""

    trained_on: int
    steps: int
    readings: list[Prediction]  # of validation lines, by the start

    def reasons(self) -> list[tuple[str, str]]:
        """The likely causes, and what to do about each."""
        found = []
        if self.trained_on < _FEW_LINES:
            cause = f"{_lines(self.trained_on)} to learn from are few"
            found.append((cause, f"add or correct more, up to {_FEW_LINES} or so"))
        if self.steps < _FEW_STEPS:
            cause = "1 step is little" if self.steps == 1 else f"{self.steps} steps are few"
            longer = "train longer (-s training.epochs=N, or --max-minutes)"
            found.append((cause, f"{longer}, or in smaller batches (-s training.batch_size=4)"))
        errors, matters = _count_conventions(self.readings)
        if errors and 2 * matters >= errors:
            cause = f"{matters} of the start's {errors} errors on them are matters of convention"
            cause += " (punctuation, spaces, capitals, accents, u and v): the transcripts disagree with its rules"
            rule = "look whether they follow one rule throughout (validation/report.html), and mend them"
            found.append((cause, rule))
        if len(self.readings) < _FEW_TO_JUDGE:
            cause = f"{_lines(len(self.readings))} to validate on decide little"
            found.append((cause, "mark more as validation (a folder of that name)"))
        lower = ("what is learned here drives out what it knew", "a lower rate: -s training.learning_rate=1e-4")
        return found or [lower]

    def message(self, kept: str) -> str:
        said = f"no epoch was better than the start, so {kept} is the start."
        if not error_rate(self.readings):
            return f"{said} It reads the validation lines without an error: there was nothing to gain on them"
        causes, remedies = zip(*self.reasons(), strict=True)
        return f"{said} Likely why: {'; '.join(causes)}. What to do: {'; '.join(remedies)}"


def _lines(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


def _count_conventions(readings: Iterable[Prediction]) -> tuple[int, int]:
    """How many errors there are, and how many of them are gone where both sides are written by the same rules."""
    errors = matters = 0
    for one in readings:
        found = Levenshtein.distance(one.reference, one.text)
        errors += found
        matters += max(0, found - Levenshtein.distance(_levelled(one.reference), _levelled(one.text)))
    return errors, matters


def _levelled(text: str) -> str:
    """Without case, accents, punctuation, spaces, and the spellings that some transcribers keep and others do not."""
    parts = unicodedata.normalize("NFD", text.casefold())
    return "".join(c for c in parts if unicodedata.category(c)[0] not in "PZM").translate(_SPELLINGS)
