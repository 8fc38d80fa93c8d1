import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.text import BLANK, Charset, UnknownCharacterError, normalise, plain


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("  two\t words \n", "two words"),
        ("line-end\u00ac", "line-end"),
        ("\uffe2", ""),  # full-width not sign: NFKC makes it U+00AC, which goes
        ("\u00ac \u00a0", ""),
        ("e\u0301", "é"),
        ("e\u00ac\u0301", "é"),  # taking the sign out brings letter and accent together
        ("ﬁn", "fin"),
        ("x²", "x2"),
        ("M^re", "M^re"),
    ],
)
def test_normalise(raw, clean):
    assert normalise(raw) == clean


@given(st.text())
def test_normalise_is_idempotent_and_clean(text):
    once = normalise(text)
    assert normalise(once) == once
    assert "\u00ac" not in once
    assert once == " ".join(once.split())


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("M^r Dupont", "Mr Dupont"),
        ("l\u2019an \u2014 \u00abbis\u00bb", 'l\'an - "bis"'),
        ("pre=", "pre-"),
        ("2 =", "2 ="),
        ("^", ""),
        ("a\u00b2 \u02b3", "a2 r"),
    ],
)
def test_plain_text_has_no_signs_of_conventions(raw, clean):
    assert plain(raw) == clean


@given(st.text())
def test_plain_is_idempotent_and_normalised(text):
    once = plain(text)
    assert plain(once) == once == normalise(once)
    assert "^" not in once


def test_charset_from_training_texts():
    charset = Charset.from_texts(["bcab", "a d"])
    assert charset.characters == (" ", "a", "b", "c", "d")
    assert len(charset) == 6  # with the blank
    assert BLANK == 0
    assert charset.encode("ab") == [2, 3]
    assert "a" in charset
    assert "z" not in charset


def test_decode_collapses_then_drops_blanks():
    charset = Charset(("a", "b"))
    frames = [0, 1, 1, 0, 1, 2, 2, 2, 0, 0]
    assert charset.decode(frames) == "aab"
    assert charset.decode_spans(frames) == [("a", 1, 3), ("a", 4, 5), ("b", 5, 8)]
    assert charset.decode([]) == ""


@given(st.text(alphabet="abç é", max_size=12), st.data())
def test_any_ctc_path_of_a_text_decodes_to_it(text, data):
    """Frames made by repeating labels and adding blanks (always between equal neighbours) spell the text again."""
    charset = Charset.from_texts(["abç é"])
    frames: list[int] = [0] * data.draw(st.integers(0, 2))
    expected = []
    previous = None
    for label, character in zip(charset.encode(text), text, strict=True):
        frames += [0] * data.draw(st.integers(1 if label == previous else 0, 2))
        start = len(frames)
        frames += [label] * data.draw(st.integers(1, 3))
        expected.append((character, start, len(frames)))
        previous = label
    frames += [0] * data.draw(st.integers(0, 2))
    assert charset.decode(frames) == text
    assert charset.decode_spans(frames) == expected


def test_unknown_characters_are_named_with_their_code_points():
    charset = Charset(("a",))
    assert charset.unknown("xay\u0301") == ["x", "y", "\u0301"]
    with pytest.raises(UnknownCharacterError, match=r"U\+0301"):
        charset.encode("a\u0301")


def test_bad_charsets_and_labels():
    with pytest.raises(SpikeHTRError, match="twice"):
        Charset(("a", "a"))
    with pytest.raises(SpikeHTRError, match="single"):
        Charset(("ab",))
    with pytest.raises(SpikeHTRError, match="label 2"):
        Charset(("a",)).decode([2])
