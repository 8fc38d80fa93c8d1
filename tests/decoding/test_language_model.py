"""The file of a language model, sound and damaged, and mixtures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lm_help import LINES, small_model
from safetensors.numpy import load_file, save_file

from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.mixing import fit_weights, interpolate, mix
from spikehtr.errors import SpikeHTRError

OTHERS = ["un chat sur le tapis", "le chapeau", "la fin", "été"]


def test_a_saved_model_is_the_same_when_it_is_loaded(tmp_path: Path) -> None:
    model = small_model(4)
    model.notes["sources"] = [{"name": "é"}]
    model.save(tmp_path / "lm.safetensors")
    loaded = LanguageModel.load(tmp_path / "lm.safetensors")
    assert loaded.notes == model.notes
    assert loaded.vocabulary == model.vocabulary
    assert all(np.array_equal(loaded.arrays[name], model.arrays[name]) for name in model.arrays)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_the_ngrams_of_a_model_make_the_same_model(order: int) -> None:
    model = small_model(order)
    again = LanguageModel.from_ngrams(model.to_ngrams())
    assert again.start == model.start
    for name, values in model.arrays.items():
        assert np.allclose(again.arrays[name], values), name


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_told_or_read_without_harm(tmp_path: Path, data: st.DataObject) -> None:
    file = tmp_path / "lm.safetensors"
    small_model(3).save(file)
    whole = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for _ in range(data.draw(st.integers(0, 4))):
        if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(whole)
    try:
        model = LanguageModel.load(file)
    except SpikeHTRError as error:
        assert str(file) in str(error)  # noqa: PT017 (it need not fail)
    else:
        assert np.isfinite(model.score_lines(["the cat"])[0]).all()


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("to", 3, 10**6, "leads nowhere"),
        ("backoff_state", 2, 2, "leads nowhere"),
        ("label", 1, 0, "order"),
        ("first_arc", 1, 3, "add up"),
        ("log_prob", 0, np.nan, "no number"),
        ("log_prob", 0, 0.5, "above 1"),
        ("states_by_length", 0, 2, "add up"),
    ],
)
def test_arrays_that_a_decoder_would_walk_out_of_are_refused(
    tmp_path: Path, name: str, place: int, value: float, told: str
) -> None:
    model, file = small_model(3), tmp_path / "lm.safetensors"
    model.save(file)
    arrays = load_file(file)
    arrays[name][place] = value
    save_file(arrays, file, model.header())
    with pytest.raises(SpikeHTRError, match=told):
        LanguageModel.load(file)


def test_other_files_are_no_language_models(tmp_path: Path) -> None:
    arpa, empty, other = tmp_path / "lm.arpa", tmp_path / "empty.safetensors", tmp_path / "other.safetensors"
    arpa.write_text("\\data\\\n")
    empty.touch()
    save_file({"x": np.zeros(1)}, other)
    for file, told in ((arpa, "from-arpa"), (empty, "damaged"), (other, "not a language model"), (tmp_path, "folder")):
        with pytest.raises(SpikeHTRError, match=told):
            LanguageModel.load(file)


def test_a_mixture_is_the_weighted_mean_where_all_is_listed_and_adds_up_to_one_elsewhere() -> None:
    models = [small_model(3), small_model(2, OTHERS)]
    mixture = interpolate(models, [0.7, 0.3])
    mixed = LanguageModel.from_ngrams(mixture)
    assert set(mixed.vocabulary.characters) == set("".join(LINES + OTHERS))
    tokens = np.arange(len(mixed.vocabulary))
    for state in range(mixed.states):
        assert np.exp(mixed.steps(np.full(len(tokens), state), tokens)[0]).sum() == pytest.approx(1, abs=1e-4)
    for line in ("the", "cat"):
        parts = [np.exp(model.score_lines([line])[0][:3]) for model in models]
        assert np.exp(mixed.score_lines([line])[0][:3]) == pytest.approx(0.7 * parts[0] + 0.3 * parts[1], rel=0.3)
        first = 0.7 * parts[0][0] + 0.3 * parts[1][0] if line[0] in "le" else None
        assert first is None or np.exp(mixed.score_lines([line])[0][0]) == pytest.approx(first)


def test_weights_go_to_the_source_that_suits() -> None:
    models = [small_model(3), small_model(3, OTHERS)]
    assert fit_weights(models, ["the cat"])[0] > 0.8
    assert fit_weights(models, ["le chat"])[1] > 0.8
    mixture = mix(models, ["the cat", "le chat"])
    assert sum(mixture.weights) == pytest.approx(1)
    mixed = LanguageModel.from_ngrams(mixture.model)
    assert mixed.perplexity(["the cat", "le chat"]) < min(m.perplexity(["the cat", "le chat"]) for m in models)


def test_a_mixture_needs_validation_lines() -> None:
    with pytest.raises(SpikeHTRError, match="validation"):
        mix([small_model(), small_model()], [])
