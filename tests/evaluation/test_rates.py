# ruff: noqa: RUF001 - the look-alike characters are what is tested
import math
import random
import unicodedata

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rates import Edits, Folding, character_edits, fold, split_words, total, word_edits

FOLDED, FREE = Folding.CASE_FOLDED, Folding.PUNCTUATION_FREE
FOLDINGS = [Folding.PLAIN, FOLDED, FREE, FOLDED | FREE]

# Any Unicode, and words of few letters, which agree often enough for every kind of edit to occur.
TEXTS = st.text(max_size=30) | st.text(alphabet="ab é'-.ß𝔞 ", max_size=30)
CORPORA = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5)

# jiwer strips lines for its character rate; ours counts every character it is given.
CHARACTERS = jiwer.Compose([jiwer.ReduceToListOfListOfChars()])


def counts(edits):
    return edits.substitutions, edits.deletions, edits.insertions, edits.length


def jiwer_counts(output):
    return (
        output.substitutions,
        output.deletions,
        output.insertions,
        output.hits + output.substitutions + output.deletions,
    )


@given(CORPORA)
def test_character_rate_is_jiwers(pairs):
    references, hypotheses = map(list, zip(*pairs, strict=True))
    theirs = jiwer.process_characters(references, hypotheses, CHARACTERS, CHARACTERS)
    ours = total(character_edits(*pair) for pair in pairs)
    assert counts(ours) == jiwer_counts(theirs)
    if ours.length:  # without any reference jiwer calls the number of insertions a rate
        assert ours.rate == theirs.cer


@given(CORPORA)
def test_word_rate_is_jiwers(pairs):
    # jiwer cuts at the plain space only; all white space is made one before both.
    pairs = [(" ".join(reference.split()), " ".join(hypothesis.split())) for reference, hypothesis in pairs]
    references, hypotheses = map(list, zip(*pairs, strict=True))
    theirs = jiwer.process_words(references, hypotheses)
    ours = total(word_edits(*pair) for pair in pairs)
    assert counts(ours) == jiwer_counts(theirs)
    if ours.length:
        assert ours.rate == theirs.wer


def test_rates_are_jiwers_on_long_lines_with_few_errors():
    """Lines like real ones: words of accented letters, a tenth of the characters wrong."""
    rng = random.Random(0)
    letters = "abcdeéèñßœðþ  "
    references, hypotheses = [], []
    for _ in range(200):
        text = "x" + "".join(rng.choices(letters, k=rng.randint(10, 80))) + "x"
        read = "".join(rng.choice(letters) if rng.random() < 0.1 else c for c in text if rng.random() > 0.02)
        references.append(text)
        hypotheses.append(read.strip())
    pairs = list(zip(references, hypotheses, strict=True))
    assert total(character_edits(*pair) for pair in pairs).rate == jiwer.cer(references, hypotheses)
    assert total(word_edits(*pair) for pair in pairs).rate == jiwer.wer(references, hypotheses)


@given(TEXTS, TEXTS)
def test_edits_are_minimal_and_balance(reference, hypothesis):
    edits = character_edits(reference, hypothesis)
    assert edits.errors == Levenshtein.distance(reference, hypothesis)
    assert edits.errors == character_edits(hypothesis, reference).errors
    assert edits.length - edits.deletions + edits.insertions == len(hypothesis)
    assert abs(len(reference) - len(hypothesis)) <= edits.errors <= max(len(reference), len(hypothesis))


@given(TEXTS)
@pytest.mark.parametrize("variant", FOLDINGS, ids=lambda v: v.label)
def test_a_text_read_right_has_no_errors(variant, text):
    for edits in (
        character_edits(text, text, variant),
        word_edits(text, text, "whitespace", variant),
        word_edits(text, text, "punctuation", variant),
    ):
        assert edits.errors == 0
        assert edits.rate == 0


@given(st.text(min_size=1, max_size=20))
def test_nothing_read_is_a_rate_of_one(text):
    assert counts(character_edits(text, "")) == (0, len(text), 0, len(text))
    assert character_edits(text, "").rate == 1


def test_empty_references_count_their_insertions():
    alone = character_edits("", "abc")
    assert counts(alone) == (0, 0, 3, 0)
    assert alone.rate == math.inf
    assert total([]).rate == character_edits("", "").rate == 0
    assert total([alone, character_edits("abcd", "abcd")]).rate == 3 / 4


def test_corpus_rate_weighs_lines_by_length():
    lines = [character_edits("a", "b"), character_edits("abcdefghi", "abcdefghi")]
    assert total(lines) == Edits(1, 0, 0, 10)
    assert total(lines).rate == 0.1  # the mean of the two rates would be 0.5


@pytest.mark.parametrize(
    ("text", "whitespace", "punctuation"),
    [
        ("don't, well-known", ["don't,", "well-known"], ["don", "'", "t", ",", "well", "-", "known"]),
        ("l’été…", ["l’été…"], ["l", "’", "été", "…"]),
        ("«Où?» – 5€", ["«Où?»", "–", "5€"], ["«", "Où", "?", "»", "–", "5", "€"]),
        ("a\u00a0b\tc", ["a", "b", "c"], ["a", "b", "c"]),
        ("3.50 & co.", ["3.50", "&", "co."], ["3", ".", "50", "&", "co", "."]),
        ("ʻokina e\u0301t", ["ʻokina", "e\u0301t"], ["ʻokina", "e\u0301t"]),  # a letter apostrophe, a combining accent
        ("", [], []),
    ],
)
def test_words(text, whitespace, punctuation):
    assert split_words(text, "whitespace") == whitespace
    assert split_words(text, "punctuation") == punctuation


def test_tokens_change_the_word_rate():
    assert word_edits("end, he", "end he") == Edits(1, 0, 0, 2)
    assert word_edits("end, he", "end he", "punctuation") == Edits(0, 1, 0, 3)


def test_unknown_tokens_are_named():
    with pytest.raises(SpikeHTRError, match="'nltk': choose one of whitespace, punctuation"):
        split_words("a", "nltk")


@pytest.mark.parametrize(
    ("text", "variant", "folded"),
    [
        ("  Straße ", Folding.PLAIN, "  Straße "),
        ("Straße, ΣΑΣ", FOLDED, "strasse, σασ"),
        ("\u01f0", FOLDED, "\u01f0"),  # folding takes the letter apart, normalising puts it together
        ("Don't - well-known!", FREE, "Dont wellknown"),
        ("Don't - well-known!", FOLDED | FREE, "dont wellknown"),
        ("...", FREE, ""),
    ],
)
def test_fold(text, variant, folded):
    assert fold(text, variant) == folded


@given(TEXTS)
@pytest.mark.parametrize("variant", FOLDINGS, ids=lambda v: v.label)
def test_fold_twice_is_fold_once(variant, text):
    once = fold(text, variant)
    assert fold(once, variant) == once
    if FREE in variant:
        assert not [c for c in once if unicodedata.category(c)[0] in "PS"]


def test_variants_forgive_what_they_name():
    assert character_edits("Yes, Sir", "yes Sir").errors == 2
    assert character_edits("Yes, Sir", "yes Sir", FOLDED).errors == 1
    assert character_edits("Yes, Sir", "yes Sir", FREE).errors == 1
    assert character_edits("Yes, Sir", "yes Sir", FOLDED | FREE) == Edits(0, 0, 0, 7)
    assert [v.label for v in FOLDINGS] == [
        "plain",
        "case-folded",
        "punctuation-free",
        "case-folded, punctuation-free",
    ]
