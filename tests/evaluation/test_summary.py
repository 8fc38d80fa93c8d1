import json

import pytest

from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rate_tables import character_rows, confusion_rows, length_rows, set_table, summary_lines
from spikehtr.evaluation.rates import Folding, character_edits, total, word_edits
from spikehtr.evaluation.summary import MAIN, clusters_of, resampling, summarise, visible


def line(reference, text, set_="a", document=None, keep=0.5, id_="1"):
    return Prediction(0, reference, text, 0.9, keep, id_, set_, document)


LINES = [
    line("Don't go, now.", "dont go now", "a", "one", 0.4),
    line("ink on paper", "ink on paper", "a", "two", 0.6),
    line("ink on paper", "inkon pabers", "b", "one", 0.8),
]


def test_each_rate_is_the_corpus_rate_of_its_name():
    rates = summarise(LINES)["rates"]
    folded, free = Folding.CASE_FOLDED, Folding.PUNCTUATION_FREE
    expected = {
        "CER, plain": [character_edits(p.reference, p.text) for p in LINES],
        "CER, case-folded": [character_edits(p.reference, p.text, folded) for p in LINES],
        "CER, case-folded, punctuation-free": [character_edits(p.reference, p.text, folded | free) for p in LINES],
        "WER, whitespace words": [word_edits(p.reference, p.text, "whitespace") for p in LINES],
        "WER, punctuation split": [word_edits(p.reference, p.text, "punctuation") for p in LINES],
        "WER, whitespace words, punctuation-free": [word_edits(p.reference, p.text, folding=free) for p in LINES],
        "WER, punctuation split, case-folded": [word_edits(p.reference, p.text, "punctuation", folded) for p in LINES],
    }
    for name, edits in expected.items():
        assert rates[name]["rate"] == total(edits).rate
        assert (rates[name]["errors"], rates[name]["length"]) == (total(edits).errors, total(edits).length)
    assert len(rates) == 10
    assert list(rates)[:3] == list(MAIN)
    assert rates["CER, case-folded, punctuation-free"]["errors"] == 3  # only `inkon pabers` is left


def test_sets_and_all():
    result = summarise(LINES)
    assert (result["lines"], result["documents"]) == (3, 3)  # document `one` of two sets is two documents
    assert result["keep_ratio"] == pytest.approx(0.6)
    assert result["whole_lines_right"] == pytest.approx(1 / 3)
    assert list(result["sets"]) == ["a", "b"]
    assert result["sets"]["a"]["lines"] == 2
    assert result["sets"]["b"]["rates"]["CER, plain"]["rate"] == 3 / 12
    assert result["sets"]["b"]["rates"]["CER, plain"]["interval"] is None  # a single line has none
    assert summarise(LINES[:2])["sets"] == {}
    head, rows = set_table(result)
    assert [row[0] for row in rows] == ["a", "b", "all"]
    assert {len(head)} == {len(row) for row in rows}


def test_documents_are_resampled_where_two_are_known():
    assert clusters_of(LINES) == [("a", "one"), ("a", "two"), ("b", "one")]
    mixed = [line("x", "x", document=d) for d in ("one", "one", "two", None, None)]
    assert resampling(mixed)["resampled"] == "documents"
    assert resampling(mixed)["units"] == 4  # two documents and two lines of none
    single = [line("x", "x", document="one")] * 30
    assert clusters_of(single) is None
    assert resampling(single)["resampled"] == "lines"
    assert not resampling(single)["too_few"]
    assert resampling(single[:19])["too_few"]


def test_errors_add_up_and_everything_is_json():
    result = json.loads(json.dumps(summarise(LINES), allow_nan=False))
    kinds = result["confusions"]
    for kind in ("substitutions", "deletions", "insertions"):
        assert sum(c["count"] for c in kinds[kind]) == result["errors"][kind]
    assert result["errors"]["all"] == result["rates"]["CER, plain"]["errors"]
    assert sum(c["share"] for kind in kinds.values() for c in kind) == pytest.approx(1)
    assert {"reference": "p", "read": "b", "count": 1, "share": 1 / result["errors"]["all"]} in kinds["substitutions"]
    assert {"reference": " ", "read": None, "count": 1, "share": 1 / result["errors"]["all"]} in kinds["deletions"]
    assert sum(c["count"] for c in result["characters"]) == result["rates"]["CER, plain"]["length"]
    assert sum(b["lines"] for b in result["lengths"]) == 3
    assert ("nothing", "s", 1, f"{1 / result['errors']['all']:.1%}") in confusion_rows(result, "insertions")
    assert ("0 to 19", 3, result["errors"]["all"], "18.42%") in length_rows(result)
    assert any(row[0] == "space (U+0020)" for row in character_rows(result))


def test_a_rate_without_references_is_no_number():
    result = summarise([line("...", "abc"), line("!", "")])
    free = result["rates"]["CER, punctuation-free"]
    assert (free["rate"], free["interval"], free["errors"], free["length"]) == (None, None, 3, 0)
    json.dumps(result, allow_nan=False)
    assert any("punctuation-free  " in told and " - " in told for told in told_of(result))


def told_of(result):
    return list(summary_lines({"lines_per_second": 9.0, "device": "cpu", "model": "m"} | result))


def test_what_a_terminal_is_told():
    told = "\n".join(told_of(summarise(LINES)))
    assert "m on 3 lines" in told
    assert "by resampling documents, 2000 times; there are 3: with so few, intervals are too narrow" in told
    assert "reduction ratio r (tokens kept): 0.600" in told
    assert "space (U+0020)" in told
    assert "all " in told
    perfect = "\n".join(told_of(summarise(LINES[1:2])))
    assert "most frequent errors" not in perfect


@pytest.mark.parametrize(
    ("character", "shown"),
    [
        ("e", "e"),
        (" ", "space (U+0020)"),
        ("\u00e9", "\u00e9 (U+00E9)"),
        ("\u0303", "\u25cc\u0303 (U+0303)"),
        ("\u00a0", "no-break space (U+00A0)"),
        ("\u200b", "zero width space (U+200B)"),
        ("\x07", "control (U+0007)"),
    ],
)
def test_characters_are_made_visible(character, shown):
    assert visible(character) == shown
