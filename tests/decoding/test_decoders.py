"""From frames to text with a language model: confidences, alternatives, settings, files that carry a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_help import random_logits, small_model
from safetensors import safe_open

from conftest import micro
from spikehtr.assets import LANGUAGE_MODEL
from spikehtr.decoding import decoders
from spikehtr.decoding.beam import BeamOptions, Candidates, search_reference
from spikehtr.decoding.beam_native import search_native
from spikehtr.decoding.beam_torch import DeviceScorer, search_on_device
from spikehtr.decoding.confidence import Calibration, shares_of
from spikehtr.decoding.decoders import BeamDecoder, GreedyDecoder, decoder_for, tuned_options
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rate_tables import calibration_note
from spikehtr.model import SpikeHTR
from spikehtr.text import Charset
from spikehtr.weights import attach_language_model, load_model, save_model

CHARSET = Charset(tuple("abcdefhmnot "))


def test_confidences_and_alternatives_of_a_character_add_up_to_at_most_one() -> None:
    decoder = BeamDecoder(CHARSET, small_model(4))
    logits, lengths = random_logits(3, 4, 25, len(CHARSET))
    for line in decoder.begin(logits, lengths)():
        assert len(line.spans) == len(line.confidences) == len(line.alternatives)
        for confidence, others in zip(line.confidences, line.alternatives, strict=True):
            assert 0 < confidence <= 1
            assert confidence + sum(share for _, share in others) <= 1 + 1e-9
        assert line.confidence == pytest.approx(np.mean(line.confidences))
        assert line.text not in [text for text, _ in line.texts]


@pytest.mark.parametrize("search", [search_native, search_reference, search_on_device])
def test_a_line_of_no_numbers_reads_as_nothing_and_its_neighbours_as_ever(
    search: Any,
) -> None:
    decoder = BeamDecoder(CHARSET, small_model(4))
    logits, lengths = random_logits(3, 4, 25, len(CHARSET))

    def texts(logits: torch.Tensor) -> list[tuple[str, float]]:
        candidates = Candidates.of(logits, lengths, decoder.options)
        if search is search_native:
            return [(line.text, line.confidence) for line in decoder.search(candidates)]
        first = DeviceScorer(decoder.scorer, logits.device), decoder.scorer
        scorers = first if search is search_on_device else (decoder.scorer,)
        found = decoder.decoded(search(candidates, *scorers, decoder.options))
        return [(line.text, line.confidence) for line in found]

    good = texts(logits)
    logits[1, 3] = math.nan
    assert texts(logits) == [good[0], ("", 0.0), *good[2:]]


def test_no_lines_give_no_texts() -> None:
    decoder = BeamDecoder(CHARSET, small_model(4))
    assert decoder.decoded([]) == []
    logits, lengths = random_logits(3, 2, 25, len(CHARSET))
    assert decoder.begin(logits[:0], lengths[:0])() == []


def test_sureness_is_that_of_the_search_and_then_the_calibrated_one() -> None:
    decoder = BeamDecoder(CHARSET, small_model(4))
    logits, lengths = random_logits(5, 3, 25, len(CHARSET))
    lines = decoder.begin(logits, lengths)()
    for line, sure in zip(lines, decoder.sureness(lines), strict=True):
        assert sure.text == line.text
        assert sure.characters[:, 1] == pytest.approx(line.confidences)
        assert sure.line[1] == pytest.approx(line.confidence)
        assert line.choices is not None
        own = [shares[place] for shares, place in zip(shares_of(line.choices), line.choices.chosen, strict=True)]
        assert sure.characters[:, 0] == pytest.approx(own, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 30), st.sampled_from([0.5, 4.0, 40.0]))
def test_confidences_of_a_line_do_not_hang_on_its_batch(seed: int, lines: int, frames: int, sharp: float) -> None:
    decoder = BeamDecoder(CHARSET, small_model(4))
    logits, lengths = random_logits(seed, lines, frames, len(CHARSET), sharp)
    together = decoder.begin(logits, lengths)()
    for row, line in enumerate(together):
        (alone,) = decoder.begin(logits[row : row + 1, : lengths[row]], lengths[row : row + 1])()
        assert alone._replace(choices=None) == line._replace(choices=None)
        assert all(0 <= confidence <= 1 for confidence in line.confidences)


@pytest.mark.parametrize("device_search", [False, True])
def test_without_the_native_functions_the_text_is_the_same(
    monkeypatch: pytest.MonkeyPatch, device_search: bool
) -> None:
    logits, lengths = random_logits(9, 2, 12, len(CHARSET))
    decoder = BeamDecoder(CHARSET, small_model(4))
    wanted = decoder.begin(logits, lengths)()
    if device_search:
        from spikehtr.decoding.beam import Candidates
        from spikehtr.decoding.beam_torch import DeviceScorer, search_on_device

        on_device = DeviceScorer(decoder.scorer, torch.device("cpu"))
        candidates = Candidates.of(logits, lengths, decoder.options)
        found = decoder.decoded(search_on_device(candidates, on_device, decoder.scorer, decoder.options))
    else:
        monkeypatch.setattr(decoders, "_has_native", lambda: False)
        found = decoder.begin(logits, lengths)()
    for ours, theirs in zip(wanted, found, strict=True):
        assert theirs.text == ours.text
        assert theirs.spans == ours.spans
        assert theirs.confidences == pytest.approx(ours.confidences)


def test_settings_are_those_asked_for_then_those_tuned_then_the_usual() -> None:
    model = small_model()
    assert tuned_options(model) == BeamOptions()
    model.notes["tuned"] = {"weight": 0.7, "bonus": 1.1, "calibration": {"search": 0.9, "bias": 0}}
    assert tuned_options(model) == BeamOptions(weight=0.7, bonus=1.1)
    assert tuned_options(model, beam=4, weight=0.2) == BeamOptions(beam=4, weight=0.2, bonus=1.1)
    assert BeamDecoder(CHARSET, model).calibration == Calibration(search=0.9, bias=0.0)
    assert BeamDecoder(CHARSET, small_model()).calibration == Calibration()


def test_only_what_was_fitted_is_said_to_be_calibrated() -> None:
    model = small_model()
    assert not BeamDecoder(CHARSET, model).about["calibrated"]
    model.notes["tuned"] = {"weight": 0.7, "bonus": 1.1}  # tuned, and errors were too few to fit confidences
    about = BeamDecoder(CHARSET, model).about
    assert about["tuned"]
    assert not about["calibrated"]
    assert "usual values" in calibration_note({"language_model": about})
    model.notes["tuned"]["calibration"] = {"search": 0.9, "bias": 0}
    about = BeamDecoder(CHARSET, model).about
    assert about["calibrated"]
    assert calibration_note({"language_model": about}).startswith("Calibrated")


def test_a_model_file_carries_a_language_model(tmp_path: Path) -> None:
    config, file, carrying = micro(), tmp_path / "m.safetensors", tmp_path / "with.safetensors"
    net = SpikeHTR(config.model, len(CHARSET))
    save_model(file, net, config, CHARSET)
    attach_language_model(file, small_model(3), carrying)
    loaded = load_model(carrying)
    assert load_model(file).language_model is None
    assert loaded.language_model is not None
    assert loaded.language_model.perplexity(["the cat"]) == pytest.approx(small_model(3).perplexity(["the cat"]))
    for name, value in loaded.net.state_dict().items():
        assert torch.equal(value, net.state_dict()[name])
    assert isinstance(decoder_for(CHARSET, 1.0, None, loaded.language_model), BeamDecoder)
    assert isinstance(decoder_for(CHARSET, 1.0, "none", loaded.language_model), GreedyDecoder)
    attach_language_model(carrying, None, carrying)
    assert load_model(carrying).language_model is None
    with safe_open(str(carrying), "pt") as ours, safe_open(str(file), "pt") as theirs:
        assert ours.metadata() == theirs.metadata()


def test_a_beam_without_a_language_model_is_told() -> None:
    with pytest.raises(SpikeHTRError, match="there is none"):
        decoder_for(CHARSET, 1.0, beam=8)


def test_a_weight_of_nothing_is_nearly_greedy_and_a_huge_one_is_told() -> None:
    logits, lengths = random_logits(2, 3, 20, len(CHARSET), sharp=8.0)
    options = BeamOptions(weight=0.0, bonus=0.0, sums=False)
    found = BeamDecoder(CHARSET, small_model(), options).begin(logits, lengths)()
    assert [line.text for line in found] == [line.text for line in decode_greedy(logits, lengths, CHARSET)]
    with pytest.raises(SpikeHTRError, match="weight"):
        decoder_for(CHARSET, 1.0, small_model(), weight=1e9)


def test_the_language_model_that_comes_along_is_small_and_tuned() -> None:
    model = LanguageModel.load(LANGUAGE_MODEL)
    assert LANGUAGE_MODEL.stat().st_size < 5_000_000
    assert tuned_options(model).weight == model.notes["tuned"]["weight"] > 0
    assert set(model.notes["tuned"]["calibration"]) == set(Calibration._fields)
    found = decoder_for(CHARSET, 1.0, "bundled")
    assert isinstance(found, BeamDecoder)
    assert found.model.vocabulary == model.vocabulary
