from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.decoding.confidence import Sureness
from spikehtr.evaluation.calibration import (
    BINS,
    FEW,
    GRID,
    Judged,
    calibration_error,
    calibration_summary,
    errors_in_least_sure,
    file_notes,
    fit_temperature,
    judge_characters,
    judge_words,
    log_loss,
    reliability,
)
from spikehtr.evaluation.rate_tables import calibration_note, calibration_rows, least_sure_note
from spikehtr.evaluation.reliability import draw_reliability

ITEMS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=200)


def arrays(items):
    return np.array([c for c, _ in items]), np.array([r for _, r in items])


@given(ITEMS, st.randoms())
def test_calibration_error_is_what_its_definition_says(items, random):
    sure, right = arrays(items)
    error = calibration_error(sure, right)
    # By the definition, one bin at a time.
    total = 0.0
    for low, high in pairwise(range(BINS + 1)):
        inside = np.array([low <= int(c * BINS) < high or (c == 1 and high == BINS) for c in sure])
        if inside.any():
            total += inside.sum() * abs(right[inside].mean() - sure[inside].mean())
    assert error == pytest.approx(total / len(sure))
    assert 0 <= error <= 1
    assert error >= abs(right.mean() - sure.mean()) - 1e-9  # bins can hide nothing of the whole's bias
    assert calibration_error(sure, right, bins=1) == pytest.approx(abs(right.mean() - sure.mean()))
    shuffled = random.sample(items, len(items))
    assert calibration_error(*arrays(shuffled)) == pytest.approx(error)  # order does not matter,
    assert calibration_error(*arrays(items * 3)) == pytest.approx(error)  # nor does size


def test_known_errors():
    right = np.array([True] * 9 + [False])
    assert calibration_error(np.full(10, 0.9), right) == pytest.approx(0)
    assert calibration_error(np.full(10, 1.0), right) == pytest.approx(0.1)
    assert calibration_error(np.array([0.1, 0.9]), np.array([True, False])) == pytest.approx(0.9)  # no cancelling
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0
    bins = reliability(np.array([0.0, 1.0, 1.0]), np.array([False, True, False]))
    assert [b.count for b in bins] == [1] + [0] * (BINS - 2) + [2]
    assert bins[-1].right == 0.5


def line(text, *sure):
    """Read text, as sure of its characters as given, at two temperatures of which the second halves it."""
    one = np.array(sure or [0.5] * len(text), np.float32)
    return Sureness(text, np.stack([one, one / 2], 1), np.array([0.5, 0.25], np.float32))


def test_characters_and_words_are_judged_where_the_fewest_edits_put_them():
    lines = [("ink on paper", line("ink an pper")), ("edges", line(" edges  "))]
    found = judge_characters(lines)
    assert "".join(c for c, r in zip("ink an pperedges", found.right, strict=True) if r) == "ink n pperedges"
    assert found.confidences.shape == (16, 2)
    words = judge_words(lines)
    assert words.right.tolist() == [True, False, False, True]
    assert words.confidences[0].tolist() == pytest.approx([0.5**3, 0.25**3])  # the product of its characters'
    assert words.confidences[3].tolist() == pytest.approx([0.5**5, 0.25**5])
    nothing = [("ink", line(""))]  # what was missed has no confidence
    assert len(judge_characters(nothing).right) == len(judge_words(nothing).right) == 0


def over_confident(temperature, count=20000, seed=0):
    """A reader whose logits are `temperature` times too large, at every temperature of the grid."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 2.0, count)  # of being right, true
    right = rng.random(count) < 1 / (1 + np.exp(-logits))
    said = 1 / (1 + np.exp(-logits[:, None] * temperature / np.array(GRID)))
    return Judged(said, right)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 4.0])
def test_the_temperature_that_was_put_in_is_found(temperature):
    judged = over_confident(temperature)
    fit = fit_temperature(judged)
    assert fit.problem == ""
    assert fit.temperature == pytest.approx(temperature, rel=0.1)
    assert 1.0 in GRID
    losses = log_loss(judged.confidences, judged.right)
    assert losses[GRID.index(fit.temperature)] == losses.min()
    after = calibration_error(judged.confidences[:, GRID.index(fit.temperature)], judged.right)
    assert after < 0.015
    if temperature != 1:
        assert calibration_error(judged.confidences[:, GRID.index(1.0)], judged.right) > 3 * after


def test_too_few_errors_leave_the_model_as_it_is():
    judged = over_confident(4.0, 2000)
    wrong = np.flatnonzero(~judged.right)[: FEW - 1]
    kept = np.concatenate([np.flatnonzero(judged.right), wrong])
    fit = fit_temperature(Judged(judged.confidences[kept], judged.right[kept]))
    assert (fit.temperature, fit.wrong) == (1.0, FEW - 1)
    assert f"{FEW - 1} of {len(kept)} characters are wrong" in fit.problem
    assert fit_temperature(Judged(np.zeros((0, 1)), np.zeros(0, bool))).problem


def test_the_summary_its_notes_and_its_picture():
    lines = [("ink on paper", line("ink an pper")), ("edges", line("edges"))]
    summary = calibration_summary(lines, 2.0)
    part = summary["characters"]
    assert (part["count"], part["right"]) == (16, 15 / 16)
    assert part["raw"]["ece"] == pytest.approx(15 / 16 - 0.5)
    assert part["calibrated"]["ece"] == pytest.approx(15 / 16 - 0.25)
    assert sum(b["count"] for b in part["raw"]["reliability"]) == 16
    result = {"calibration": summary, "lines": 2}
    notes = file_notes(result, ["scans/letters"], "validation")
    assert notes["temperature"] == 2.0
    assert notes["calibration"]["data"] == ["letters"]
    assert notes["calibration"]["ece"]["characters"] == {"before": 0.4375, "after": 0.6875}
    assert [row[:3] for row in calibration_rows(summary)] == [("characters", 16, "93.75%"), ("words", 4, "50.00%")]
    assert "from the model's file" in calibration_note(result)
    assert "not calibrated" in calibration_note({"calibration": summary | {"temperature": 1.0}})
    labels = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in draw_reliability(summary).axes]
    assert labels[0] == ["as the network says: ECE 0.438", "calibrated: ECE 0.688"]
    assert summary["lines"] == {"errors_in_least_sure": {}}  # two lines
    assert least_sure_note(result) == ""
    empty = calibration_summary([("ink", line(""))], 1.0)
    assert empty["words"]["right"] is None
    draw_reliability(empty)


def test_errors_in_the_least_sure_lines():
    def read(text, sure):
        return line(text)._replace(line=np.array([0.5, sure]))

    lines = [("ink", read("ink", 0.9)), ("ink", read("xxk", 0.3)), ("ink", read("ixk", 0.8)), ("ink", read("ixk", 0.4))]
    lines = [*lines, ("pen", read("", 0.0)), *[("pen", read("pen", 0.95))] * 15]
    found = errors_in_least_sure(lines)
    assert found == {"tenth": 5 / 7, "fifth": 1.0, "half": 1.0}  # the one read as nothing, and the next
    assert errors_in_least_sure(lines[:19]) == {}
    assert errors_in_least_sure(lines[5:] * 2) == {}
    note = least_sure_note({"calibration": {"lines": {"errors_in_least_sure": found}}})
    assert note.endswith("least sure of: 71% in the tenth, 100% in the fifth, 100% in the half.")


@given(st.lists(st.tuples(st.text("ink", max_size=5), st.floats(0, 1)), min_size=20))
def test_more_lines_hold_no_fewer_errors(lines):
    found = errors_in_least_sure([("ink", line(text)._replace(line=np.array([0.5, sure]))) for text, sure in lines])
    assert not found or 0 <= found["tenth"] <= found["fifth"] <= found["half"] <= 1
