"""Why nothing was gained, in words that fit the run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.evaluation.predict import Prediction
from spikehtr.training.verdict import Setback, _count_conventions, learned


def reading(reference, text):
    return Prediction(0, reference, text, 0.9, 1.0)


WRONG = [reading("deed", "dead")] * 30


@pytest.mark.parametrize(
    ("setback", "causes", "remedies"),
    [
        (Setback(18, 500, WRONG), ["18 lines to learn from are few"], ["up to 50 or so"]),
        (Setback(500, 40, WRONG), ["40 steps are few"], ["training.epochs", "training.batch_size=4"]),
        (Setback(500, 500, WRONG[:4]), ["4 lines to validate on decide little"], ["mark more as validation"]),
        (
            Setback(500, 500, [reading("Deed, viz.", "deed uiz")] * 30),
            ["120 of the start's 120 errors", "matters of convention"],
            ["one rule throughout"],
        ),
        (Setback(500, 500, WRONG), ["drives out what it knew"], ["training.learning_rate=1e-4"]),
    ],
)
def test_the_likely_cause_is_named_alone(setback, causes, remedies):
    said = setback.message("best.safetensors")
    assert said.startswith("no epoch was better than the start, so best.safetensors is the start. Likely why: ")
    why, what = said.split(". What to do: ")
    assert all(cause in why for cause in causes)
    assert all(remedy in what for remedy in remedies)
    assert len(setback.reasons()) == 1


def test_a_start_without_errors_left_nothing_to_gain():
    said = Setback(3, 3, [reading("deed", "deed")]).message("best.safetensors")
    assert "without an error: there was nothing to gain" in said
    assert "Likely why" not in said


@given(st.text(st.sampled_from("abu v.,;é"), max_size=12), st.data())
def test_case_punctuation_spaces_and_accents_are_matters_of_convention(text, data):
    other = text.upper() if data.draw(st.booleans()) else text.replace("é", "e").replace(",", "").replace(" ", "")
    errors, matters = _count_conventions([reading(text, other)])
    assert errors == matters


def test_letters_are_no_matter_of_convention():
    assert _count_conventions([reading("deed", "dead"), reading("a", ""), reading("", "x"), reading("a", ".")]) == (
        4,
        0,
    )


def test_what_was_learned_is_told_without_calling_it_a_score():
    said = learned(10, 0.312, 0.004)
    assert "all 10 lines were trained on, so there is no score (correct 20 or more for a score)" in said
    assert "from 31.20% to 0.40%: they were learned, which does not say how well others are read" in said
    assert "they were not learned; train longer" in learned(10, 0.3, 0.3)
    assert "from 30.00% to 29.50%: they were learned only in part; train longer" in learned(10, 0.3, 0.295)
    assert "mark some as validation" in learned(100, 0.3, 0.1)
