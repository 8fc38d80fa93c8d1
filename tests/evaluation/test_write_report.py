import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest
from lxml import html as parser

from conftest import draw_line
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.compare_models import compare, line_rows, match_lines, most_different, write_comparison
from spikehtr.evaluation.evaluation import Evaluation, line_facts, worst_first
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.write_report import whole_result, write_evaluation
from spikehtr.files import make_folder

STORE = SimpleNamespace(line=lambda row: draw_line(f"line {row}"))
TEXTS = ["ink first", "edges <later>", "spikes read", "on paper"]


def evaluation(readings, sets=("a", "a", "b", "b"), model="m.safetensors", references=TEXTS):
    found = [
        Prediction(row, reference, text, 0.5, 0.7, f"l{row}", set_, f"d{row % 2}")
        for row, (reference, text, set_) in enumerate(zip(references, readings, sets, strict=True))
    ]
    about = {"model": model, "split": "test", "data": ["x/a", "x/b"], "device": "cpu", "lines_per_second": 3.0}
    return Evaluation(found, [STORE] * len(found), about)


BAD = ["ink first", "edges <late>", "spikes", "an qaper"]


def test_the_files_agree(tmp_path):
    files = write_evaluation(tmp_path / "new" / "folder", evaluation(BAD), worst=2, command="spikehtr evaluate <x>")
    assert [f.name for f in files] == ["report.html", "evaluation.json", "lines.tsv"]
    assert sorted(f.name for f in files) == sorted(f.name for f in (tmp_path / "new" / "folder").iterdir())
    result = json.loads(files[1].read_text())
    assert result["rates"]["CER, plain"]["errors"] == 1 + 5 + 2
    assert result["environment"]["spikehtr"]
    with files[2].open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["text"] for row in rows] == BAD
    assert [int(row["errors"]) for row in rows] == [p["errors"] for p in result["predictions"]] == [0, 1, 5, 2]
    page = parser.parse(str(files[0])).getroot()
    assert page.find(".//pre/code").text == "spikehtr evaluate <x>"
    assert [h.text for h in page.iterfind(".//h2")] == ["Worst lines", "More"]
    folded = [summary.text for summary in page.iterfind(".//details/summary")]
    assert len(folded) == len(set(folded))
    assert {"By set (2)", "By character", "By length of the line", "Which characters go wrong"} <= set(folded)
    assert len(page.findall(".//figure")) == 2  # as many worst lines as were asked for
    shown = " ".join(page.text_content().split())
    assert "b: l2" in shown  # the worst is spelt out,
    assert shown.index("b: l2") < shown.index("b: l3")  # before the second worst
    assert "19.51%" in shown  # 8 of 41 characters
    assert {mark.text for mark in page.iterfind(".//mark")} == {"\u2423read", "o", "a", "p", "q"}


def test_the_page_shows_two_rates_and_the_worst_lines_and_folds_the_rest(tmp_path):
    bad = [f"{text}x" for text in TEXTS] * 2
    write_evaluation(tmp_path, evaluation(bad, sets="abababab", references=TEXTS * 2))
    page = parser.parse(str(tmp_path / "report.html")).getroot()
    folded = {element for details in page.iter("details") for element in details.iter()}
    shown = [element for element in page.iter() if element not in folded]
    tables = [element for element in shown if element.tag == "table"]
    assert [row[0].text for row in tables[0].iterfind("tbody/tr")] == ["CER, plain", "WER, whitespace words"]
    assert sum(element.tag == "figure" for element in shown) == 5
    assert len(page.findall(".//figure")) == 8
    assert len(tables) == 1 + 5  # the rates, and one for each line


def test_no_error_no_worst_lines(tmp_path):
    for worst, readings in ((20, TEXTS), (0, BAD)):
        write_evaluation(tmp_path, evaluation(readings), worst=worst)
        assert "Worst lines" not in (tmp_path / "report.html").read_text()


def test_worst_lines_come_first():
    texts = ["xyzxyzxyz", "edges <later>", "spikes rea", "xn paper"]
    lines = evaluation(texts)
    assert worst_first(lines.predictions) == [0, 3, 2]  # by rate, the right one left out
    surer = [p._replace(confidence=c) for p, c in zip([lines.predictions[3]] * 2, (0.2, 0.9), strict=True)]
    assert worst_first(surer) == [1, 0]
    assert line_facts(lines.predictions[3]).items() >= {"errors": 1, "length": 8, "rate": 1 / 8, "set": "b"}.items()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SpikeHTRError, match="cannot be written"):
            make_folder(place)
    make_folder(tmp_path / "good")
    assert list((tmp_path / "good").iterdir()) == []


def test_lines_are_matched_by_set_and_id():
    a = evaluation(BAD)
    b = evaluation(TEXTS)
    shuffled = b.keep([3, 1, 2])  # another order, one missing
    ours, theirs = match_lines(a, shuffled)
    assert [p.id for p in ours.predictions] == [p.id for p in theirs.predictions] == ["l1", "l2", "l3"]
    assert [p.text for p in theirs.predictions] == TEXTS[1:]
    assert np.array_equal(theirs.picture(0), STORE.line(1))
    again = [p._replace(id="same", set="a") for p in a.predictions]  # ids that sources share
    twice = Evaluation(again, a.stores, a.about)
    assert [p.reference for p in match_lines(twice, twice)[0].predictions] == TEXTS
    with pytest.raises(SpikeHTRError, match="no line in common"):
        match_lines(a, evaluation(TEXTS, sets="cccc"))
    with pytest.raises(SpikeHTRError, match="'l0' has another reference"):
        match_lines(a, evaluation(BAD, references=["else", *TEXTS[1:]]))


def many(wrong, count=60):
    """`count` documents of one line; every `wrong`-th is misread."""
    found = [
        Prediction(
            i, "ink on paper", "ink an baper" if i % wrong == 0 else "ink on paper", 0.5, 0.7, f"{i}", "a", f"{i}"
        )
        for i in range(count)
    ]
    return Evaluation(found, [STORE] * count, {"model": "m", "device": "cpu", "lines_per_second": 1.0})


def test_a_real_difference_is_called_real_and_none_is_not():
    worse, better = many(2), many(6)
    found = compare(worse, better)["comparisons"]
    assert set(found) == {"CER, plain", "WER, whitespace words", "WER, punctuation split"}
    for c in found.values():
        assert c["real"]
        assert c["difference"] == pytest.approx(c["B"] - c["A"])
        assert c["interval"][0] < c["difference"] < c["interval"][1] < 0
        assert c["verdict"].startswith("B is better than A")
    same = compare(worse, worse)["comparisons"]["CER, plain"]
    assert (same["difference"], same["real"], same["p_value"]) == (0, False, 1)
    assert same["verdict"].startswith("No real difference")


def test_a_comparison_as_files(tmp_path):
    a, b = match_lines(evaluation(BAD, model="a"), evaluation(["ink", *TEXTS[1:]], model="b"))
    result = compare(a, b)
    assert list(result["sets"]) == ["a", "b"]
    assert most_different(a, b) == [0, 2, 3, 1]  # six, five, two and one error apart
    write_comparison(tmp_path, a, b, result, worst=2)
    stored = json.loads((tmp_path / "evaluation.json").read_text())
    assert stored["models"] == {"A": "a", "B": "b"}
    assert stored["predictions"] == line_rows(a, b)
    assert stored["predictions"][0].items() >= {"text_A": "ink first", "text_B": "ink", "errors_B": 6}.items()
    for letter, single in (("A", a), ("B", b)):
        own = json.loads((tmp_path / letter / "evaluation.json").read_text())
        assert own["rates"] == result[letter]["rates"] == whole_result(single)["rates"]
    page = parser.parse(str(tmp_path / "report.html")).getroot()
    assert len(page.findall(".//figure")) == 2
    assert "4 of 4 lines have more character errors" in page.text_content()
    assert "CER, plain: No real difference" in page.text_content()
