"""Language models nobody would wish for: without characters, of other characters, with weights of nothing and huge."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_help import random_logits, small_model

from spikehtr.decoding.arpa import read_arpa
from spikehtr.decoding.beam import BeamOptions
from spikehtr.decoding.decoders import BeamDecoder
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset

CHARSET = Charset(tuple("abcdefhmnot "))
BARE = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-1\t</s>\n\n\\end\\\n"

models = st.one_of(
    st.sampled_from([1, 2, 4]).map(small_model),
    st.lists(st.text("abc Ωж文\u0301", min_size=1, max_size=6), min_size=1, max_size=4).map(
        lambda lines: small_model(3, [line.strip() or "x" for line in lines])
    ),
)
options_drawn = st.builds(
    BeamOptions,
    beam=st.sampled_from([1, 3, 16]),
    weight=st.sampled_from([0.0, 1e-9, 1.0, 100.0]),
    bonus=st.sampled_from([-100.0, 0.0, 100.0]),
    floor=st.sampled_from([0.0, 1e-3, 0.9]),
    candidates=st.sampled_from([1, 12, 100]),
    sums=st.booleans(),
)


def check_read(model: LanguageModel, options: BeamOptions, seed: int, frames: int, sharp: float) -> None:
    logits, lengths = random_logits(seed, 2, frames, len(CHARSET), sharp)
    lengths[1] = seed % 2  # a line without any frame, or of one
    decoder = BeamDecoder(CHARSET, model, options)
    for line, length in zip(decoder.begin(logits, lengths)(), lengths.tolist(), strict=True):
        assert len(line.text) <= length
        assert set(line.text) <= set(CHARSET.characters)
        assert all(0 <= confidence <= 1 for confidence in (*line.confidences, line.confidence))
        assert all(0 <= share <= 1 for _, share in line.texts)
        for confidence, others in zip(line.confidences, line.alternatives, strict=True):
            assert confidence + math.fsum(share for _, share in others) <= 1 + 1e-9
        assert all(0 <= span.start < span.end <= length for span in line.spans)


@settings(max_examples=150, deadline=None)
@given(models, options_drawn, st.integers(0, 10**6), st.integers(1, 30), st.sampled_from([0.1, 3.0, 60.0]))
def test_whatever_the_model_and_the_settings_lines_are_read(
    model: LanguageModel, options: BeamOptions, seed: int, frames: int, sharp: float
) -> None:
    check_read(model, options, seed, frames, sharp)


def test_a_model_without_any_character_is_told(tmp_path: Path) -> None:
    (tmp_path / "bare.arpa").write_text(BARE)
    with pytest.raises(SpikeHTRError, match=r"bare\.arpa: lists no character"):
        read_arpa(tmp_path / "bare.arpa")


def test_a_model_of_another_alphabet_changes_little_of_what_is_clear() -> None:
    logits, lengths = random_logits(1, 1, 24, len(CHARSET), sharp=60.0)
    other = small_model(3, ["文字認識", "手書き"])
    decoder = BeamDecoder(CHARSET, other, BeamOptions(weight=1.0, bonus=1.0))
    (line,), (own,) = decoder.begin(logits, lengths)(), BeamDecoder(CHARSET, small_model(3)).begin(logits, lengths)()
    assert line.text == own.text != ""
