"""Confidences beside a language model mean what they say, on lines they were not fitted on."""

from __future__ import annotations

import numpy as np
import pytest

from spikehtr.decoding.beam import Choices
from spikehtr.decoding.confidence import AROUND, Calibration, evidence_of
from spikehtr.decoding.greedy import Decoded
from spikehtr.evaluation.lm_calibration import cross_fitted_errors, fit_calibration

TRUE = Calibration(search=0.5, frame=0.2, around=0.3, bias=0.4)


def drawn(lines: int, seed: int, calibration: Calibration = TRUE) -> tuple[list[str], list[Decoded]]:
    """Lines of "a", each of which is right as often as the calibration says; where it is wrong, a "b" was written."""
    generator = np.random.default_rng(seed)
    references, found = [], []
    for _ in range(lines):
        size = int(generator.integers(5, 40))
        odds = generator.normal(2, 3, size)
        frame = generator.normal(2, 2, size)
        log_weights = np.stack([odds, np.zeros(size)], 1)
        log_probs = np.stack([-np.log1p(np.exp(-frame)), -np.log1p(np.exp(frame))], 1).astype(np.float32)
        spans = np.stack([np.arange(size), np.arange(size) + 1], 1).astype(np.int32)
        choices = Choices(spans, np.tile(np.int32([1, 2]), (size, 1)), log_probs, log_weights, np.zeros(size, np.int64))
        right = generator.random(size) < calibration.confidences(evidence_of(choices, [size]))
        references.append("".join("a" if is_right else "b" for is_right in right))
        found.append(Decoded("a" * size, *spans.T.tolist(), [1.0] * size, 1.0, choices=choices))
    return references, found


def test_the_calibration_that_was_put_in_is_found() -> None:
    # Words are whole lines here, of which next to none is right: they say nothing that contradicts the characters.
    found = fit_calibration(*drawn(600, 0))
    assert found is not None
    for name in ("search", "frame", "around", "bias"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), abs=0.12), name


def test_on_other_lines_it_holds_as_well() -> None:
    references, lines = drawn(400, 1)
    assert cross_fitted_errors(references, lines)["characters"] < 0.02


def test_where_errors_are_too_few_nothing_is_fitted() -> None:
    references, lines = drawn(20, 2, Calibration(bias=20.0))
    assert fit_calibration(references, lines) is None
    assert fit_calibration([], []) is None


def test_what_is_around_a_character_ends_with_its_line() -> None:
    (_, first), (_, second) = ((r, lines[0]) for r, lines in (drawn(1, seed) for seed in (3, 4)))
    assert first.choices is not None
    assert second.choices is not None
    sizes = [len(first.spans), len(second.spans)]
    together = evidence_of(Choices.joined([first.choices, second.choices]), sizes)
    alone = [evidence_of(line.choices, [size]) for line, size in zip((first, second), sizes, strict=True)]
    assert np.array_equal(together, np.concatenate(alone))
    clear = alone[0][:, :2].mean(1)
    middle = sizes[0] // 2
    near = clear[max(0, middle - AROUND) : middle + AROUND + 1]
    assert alone[0][middle, 2] == pytest.approx(near.mean())


@pytest.mark.parametrize("odds", [-np.inf, -800.0, 0.0, 800.0])
def test_evidence_is_finite_whatever_the_weights(odds: float) -> None:
    choices = Choices(
        np.zeros((1, 2), np.int32),
        np.int32([[1, 2]]),
        np.float32([[0.0, -np.inf]]),
        np.array([[0.0, odds]]),
        np.zeros(1, np.int64),
    )
    evidence = evidence_of(choices, [1])
    assert np.isfinite(evidence).all()
    assert 0 < TRUE.confidences(evidence)[0] < 1
