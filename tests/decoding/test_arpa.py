"""ARPA files, there and back, and those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lm_help import LINES, small_model

from spikehtr.decoding.arpa import read_arpa, write_arpa
from spikehtr.errors import SpikeHTRError

TINY = """
\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.6\t</s>
-0.5\ta\t-0.2
-0.7\t<space>\t-0.1

\\2-grams:
-0.2\t<s> a
-0.4\ta </s>
-0.3\ta <space>

\\end\\
"""


@pytest.mark.parametrize("name", ["lm.arpa", "lm.arpa.gz"])
def test_a_model_written_and_read_again_says_the_same(tmp_path: Path, name: str) -> None:
    model = small_model(4, [*LINES, "été\u0301 ¬"])
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.vocabulary == model.vocabulary
    for ours, theirs in zip(model.score_lines([*LINES, "xyz"]), again.score_lines([*LINES, "xyz"]), strict=True):
        assert theirs == pytest.approx(ours, abs=1e-4)


def test_probabilities_are_found_by_backing_off(tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(TINY)
    model = read_arpa(tmp_path / "lm.arpa")
    wanted = np.array([-0.2, -0.3, -0.1 - 0.5, -0.4]) * np.log(10)
    assert model.score_lines(["a a"])[0] == pytest.approx(wanted, abs=1e-5)


def test_a_file_without_prefixes_or_suffixes_of_its_ngrams_keeps_its_meaning(tmp_path: Path) -> None:
    text = TINY.replace("ngram 2=3\n", "ngram 2=3\nngram 3=1\n").replace(
        "\\end\\", "\\3-grams:\n-0.1\t<space> a a\n\\end\\"
    )
    (tmp_path / "lm.arpa").write_text(text)
    model = read_arpa(tmp_path / "lm.arpa")
    wanted = np.array([-0.2, -0.3, -0.1 - 0.5, -0.1, -0.4]) * np.log(10)
    assert model.score_lines(["a aa"])[0] == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("ngram 1=5", "ngram 1=6", "head says 6"),
        ("\\end\\", "", "cut short"),
        ("\ta\t", "\tword\t", "not characters"),
        ("-0.4\ta </s>", "-0.4\ta", "no n-gram of 2"),
        ("-0.4\ta </s>", "x\ta </s>", "no n-gram of 2"),
        ("-0.4\ta </s>", "0.4\ta </s>", "above 0"),
        ("-0.4\ta </s>", "-0.4\ta b", "not among single tokens"),
        ("-0.4\ta </s>", "-0.4\t</s> a", "middle"),
        ("-0.4\ta </s>", "-0.4\ta <space>", "twice"),
        ("\\data\\", "nothing", "not an ARPA file"),
        ("ngram 2=3", "ngram 3=3", "ngram 2=COUNT"),
        ("<space>", "<leer>", "--space"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    (tmp_path / "lm.arpa").write_text(TINY.replace(old, new))
    with pytest.raises(SpikeHTRError, match=told):
        read_arpa(tmp_path / "lm.arpa")


def test_another_symbol_may_stand_for_the_space(tmp_path: Path) -> None:
    (tmp_path / "lm.arpa").write_text(TINY.replace("<space>", "<leer>"))
    assert " " in read_arpa(tmp_path / "lm.arpa", "<leer>").vocabulary.characters


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(TINY) - 1), st.text(max_size=4), st.integers(0, 6))
def test_a_mangled_file_is_told_or_read_without_harm(tmp_path: Path, place: int, put: str, out: int) -> None:
    (tmp_path / "lm.arpa").write_text(TINY[:place] + put + TINY[place + out :], encoding="utf-8")
    try:
        model = read_arpa(tmp_path / "lm.arpa")
    except SpikeHTRError as error:
        assert "lm.arpa" in str(error)  # noqa: PT017 (it need not fail)
    else:
        assert np.isfinite(model.score_lines(["a a"])[0]).all()
