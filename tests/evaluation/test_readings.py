"""What other programs have read: every shape it comes in, and what is wrong with it said."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.reading_files import are_readings, load_readings
from spikehtr.evaluation.readings import evaluate_readings
from spikehtr.evaluation.write_report import write_table
from spikehtr.text import normalise


class Store:
    """Lines without pictures: ids, texts and documents of one source."""

    sources = ("a",)

    def __init__(self, lines):
        self.lines = lines

    def record(self, row):
        name, text = self.lines[row]
        return {"id": name, "text": text, "source": "a", "document": None}


def part(*lines):
    return Store(lines), np.arange(len(lines))


def texts(path):
    return {reading.id: reading.text for reading in load_readings(path)}


def written(folder, text, name="their.tsv"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize(
    "table",
    [
        "x/1\tto Paris\nx/2\tink  \n",
        "x/1 to Paris\nx/2 ink\n\n",
        "\ufeffx/1.png\tto Paris\r\nx/2.PNG\tink\r\n",
        "x/1 t o <space> P a r i s\nx/2 i n k\n",
        "Text\tID\tmore\nto Paris\tx/1\t\nink\tx/2.tif\t3\n",
        'id\ttext\nx/1\t"to Paris"\nx\\2.jpg\tink\n',
    ],
    ids=["tabs", "spaces", "file names", "PyLaia", "named columns", "quoted"],
)
def test_tables(tmp_path, table):
    path = written(tmp_path, table)
    assert are_readings(path)
    assert texts(path) == {"x/1": "to Paris", "x/2": "ink"}


def test_a_line_in_which_nothing_was_read(tmp_path):
    assert texts(written(tmp_path, "1\n2\t\n3 ink\n")) == {"1": "", "2": "", "3": "ink"}


def test_words_spelt_without_a_space(tmp_path):
    assert texts(written(tmp_path, "1 i n k\n2 e\u0301 t e\u0301\n3 I\n")) == {"1": "ink", "2": "été", "3": "I"}
    assert texts(written(tmp_path, "1 i n k\n2 pen\n")) == {"1": "i n k", "2": "pen"}


def test_commas(tmp_path):
    assert texts(written(tmp_path, 'id,text\n1,"ink, pen"\n', "their.csv")) == {"1": "ink, pen"}


def test_a_quote_is_a_character_of_a_plain_table(tmp_path):
    assert texts(written(tmp_path, '1\t"ink\n2\tpen\n')) == {"1": '"ink', "2": "pen"}


def test_folders_of_texts(tmp_path):
    written(tmp_path, "ink\n", "of/texts/1.pred.txt")
    written(tmp_path, "", "of/texts/2.txt")
    written(tmp_path, "not this", "of/texts/1.gt.txt")
    assert texts(tmp_path / "of") == {"texts/1": "ink"}  # where there are any .pred.txt, they alone
    (tmp_path / "of/texts/1.pred.txt").rename(tmp_path / "of/texts/1.TXT")
    assert texts(tmp_path / "of") == {"texts/1": "ink", "texts/2": ""}


def page(text):
    line = f'<TextLine id="l1"><TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>'
    return f'<PcGts xmlns="x"><Page><TextRegion>{line}</TextRegion></Page></PcGts>'


def test_folders_of_pages(tmp_path):
    written(tmp_path, page("pen"), "p1.xml")
    line = '<TextLine ID="l2"><String CONTENT="to"/><SP/><String CONTENT="Paris"/></TextLine>'
    layout = f"<Layout><Page><PrintSpace><TextBlock>{line}</TextBlock></PrintSpace></Page></Layout>"
    written(tmp_path, f'<alto xmlns="x">{layout}</alto>', "p2.alto.xml")
    written(tmp_path, "<mets/>", "mets.xml")
    told = []
    found = load_readings(tmp_path, told.append)
    assert {r.id: r.text for r in found} == {"p1/l1": "pen", "p2/l2": "to Paris"}
    assert len(told) == 1
    assert "mets.xml: neither PAGE nor ALTO" in told[0]
    assert texts(tmp_path / "p1.xml") == {"p1/l1": "pen"}


def test_pages_of_one_name_are_all_there_or_refused(tmp_path):
    data = {"a": part(("0001/l1", "ink"), ("0001~2/l1", "pen"))}
    written(tmp_path, page("pen"), "their/b/0001.xml")
    with pytest.raises(SpikeHTRError, match="1 files of the name 0001, where the data has 2"):
        evaluate_readings(tmp_path / "their", data)
    written(tmp_path, page("ink"), "their/a/0001.xml")
    assert [p.text for p in evaluate_readings(tmp_path / "their", data).predictions] == ["ink", "pen"]
    with pytest.raises(SpikeHTRError, match="2 files of the name 0001, where the data has 1"):
        evaluate_readings(tmp_path / "their", {"a": part(("0001/l1", "ink"))})


def test_the_folder_of_an_evaluation_is_its_table(tmp_path):
    written(tmp_path, "id\ttext\n1\tink\n", "report/lines.tsv")
    assert are_readings(tmp_path / "report")
    assert texts(tmp_path / "report") == {"1": "ink"}


def test_what_is_no_reading(tmp_path):
    (tmp_path / "run").mkdir()
    written(tmp_path, "", "run/error.txt")
    written(tmp_path, "", "run/best.safetensors")
    assert not are_readings(tmp_path / "run")
    assert not are_readings(tmp_path / "run/best.safetensors")
    assert not are_readings(tmp_path / "none.tsv")
    assert not are_readings(Path("bundled"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("their.tsv", "", "their.tsv: holds no line's text"),
        ("their.tsv", "1\tink\t0.9\n", "line 1: has 3 columns; give the table a first line"),
        ("their.tsv", "file\tprediction\n1\tink\n", "its first line has to name its columns, `id` and `text`"),
        ("their.csv", "1,ink\n", "its first line has to name its columns"),
        ("lines.tsv", "id\ttext_A\ttext_B\n1\tink\tpen\n", "two readings; take lines.tsv of the folders A or B"),
        ("their.tsv", "1 0.97 i n k <space> a\n", "line 1: '0.97' among texts that are spelt"),
        ("their.tsv", 'id\ttext\n1\t"ink\n2\tpen"\n', "line 3: a text of several lines; .*in quotes"),
        ("their.tsv", "id\ttext\tconfidence\n1\tink\thigh\n", "line 2: the confidence 'high' is no number"),
        ("their.tsv", "id\ttext\n1\n", "line 2: has 1 columns, where the first line names 2"),
        ("their.tsv", 'id\ttext\n1\t"ink\n', "line 2: .*in quotes"),
        ("pages/a.xml", "<html/>", "holds no line's text"),
        ("pages/a.xml", "<PcGts>", "a.xml: "),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, text, message):
    path = written(tmp_path, text, name)
    with pytest.raises(SpikeHTRError, match=message):
        load_readings(path if path.suffix != ".xml" else path.parent)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "their.tsv").write_bytes(b"1\t\xe9t\xe9\n")
    with pytest.raises(SpikeHTRError, match=r"their\.tsv.*UTF-8"):
        load_readings(tmp_path / "their.tsv")


def test_missing_lines_count_as_read_as_nothing_and_are_told(tmp_path):
    told = []
    path = written(tmp_path, "1\tink\n9\tpen\n")
    read = evaluate_readings(path, {"a": part(("1", "ink"), ("2", "pine"))}, {"model": "their"}, told.append)
    assert [(p.id, p.text) for p in read.predictions] == [("1", "ink"), ("2", "")]
    assert read.summary["rates"]["CER, plain"]["errors"] == 4
    assert read.summary["keep_ratio"] is None
    assert "calibration" not in read.summary
    assert len(told) == 2
    assert "read as nothing: 1 of 2 lines ('2'" in told[0]
    assert "not counted: 1 of its 2 ('9'" in told[1]


def test_a_line_that_is_there_twice(tmp_path):
    with pytest.raises(SpikeHTRError, match=r"line 2: '1' was there before .*line 1"):
        evaluate_readings(written(tmp_path, "1\tink\n1.png\tpen\n"), {"a": part(("1", "ink"))})
    with pytest.raises(SpikeHTRError, match=r"'y/1' was there before .*line 1\) as 'x/1', for the data's line '1'"):
        evaluate_readings(written(tmp_path, "x/1\tink\ny/1\tpen\n"), {"a": part(("1", "ink"))})


def test_a_table_of_other_lines_is_told_by_what_they_say(tmp_path):
    """Ids are often bare numbers, and those of another set are the same: an error rate of such would mean nothing."""
    path = written(tmp_path, "id\treference\ttext\n1\tink \tinc\n2\tpen\tpen\n3\tdip\tdip\n4\t\tnib\n")
    told = []
    read = evaluate_readings(
        path, {"a": part(("1", "ink"), ("2", "pen"), ("3", "sip"), ("4", "nib"))}, tell=told.append
    )
    assert [p.reference for p in read.predictions] == ["ink", "pen", "sip", "nib"]
    assert len(told) == 1
    assert "1 of 3 references differ from the data's, as 'dip' from 'sip'" in told[0]
    other = {"a": part(("1", "ink"), ("2", "nib"), ("3", "sip"), ("4", "nib"))}
    with pytest.raises(
        SpikeHTRError, match=r"line 3: seems read from other lines than the data's '2'.*2 of 3.*'pen' from 'nib'"
    ):
        evaluate_readings(path, other)


def test_a_table_of_references_alone_is_no_reading(tmp_path):
    with pytest.raises(SpikeHTRError, match=r"first line has to name its columns, `id` and `text`"):
        load_readings(written(tmp_path, "id\treference\n1\tink\n"))


@pytest.mark.parametrize("name", ["test/l0", "l0.png", "/data/lines/test/l0.webp", "lines\\test\\l0", "./test/l0"])
def test_ids_as_paths(tmp_path, name):
    read = evaluate_readings(written(tmp_path, f"{name}\tink\n"), {"a": part(("test/l0", "ink"), ("test/l1", "pen"))})
    assert [p.text for p in read.predictions] == ["ink", ""]


def test_an_end_that_several_have_and_one_of_another_page(tmp_path):
    data = {"a": part(("p1/l0", "ink"), ("p2/l0", "pen"), ("p2/l7", "nib"))}
    with pytest.raises(SpikeHTRError, match="'l0' may be any of 2 lines of a"):
        evaluate_readings(written(tmp_path, "l0\tink\n"), data)
    read = evaluate_readings(written(tmp_path, "p1/l0\tink\np1/l7\tnib\n"), data)
    assert [p.text for p in read.predictions] == ["ink", "", ""]


def test_no_line_in_common(tmp_path):
    with pytest.raises(SpikeHTRError, match="ids are like 'x1', those of the data like '1' of the set a"):
        evaluate_readings(written(tmp_path, "x1\tink\n"), {"a": part(("1", "ink"))})


def test_a_set_of_another_name_where_there_is_but_one(tmp_path):
    path = written(tmp_path, "set\tid\ttext\nthen\t1\tink\n")
    assert [p.text for p in evaluate_readings(path, {"now": part(("1", "ink"))}).predictions] == ["ink"]


def test_sets_that_share_ids_are_told_apart(tmp_path):
    parts = {"in/old": part(("1", "ink"), ("2", "a")), "in/new": part(("1", "pen"))}
    with pytest.raises(SpikeHTRError, match="'1' may be any of 2 lines of new and old"):
        evaluate_readings(written(tmp_path, "1\tink\n"), parts)
    path = written(tmp_path, "set\tid\ttext\tconfidence\nold\t1\tink\t0.5\nnew\t1\tpen\t\n\t2\ta\t1\n")
    read = evaluate_readings(path, parts).predictions
    assert [(p.set, p.text) for p in read] == [("old", "ink"), ("old", "a"), ("new", "pen")]
    assert read[0].confidence == 0.5
    assert read[1].confidence == 1
    assert math.isnan(read[2].confidence)


WORD = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)


@given(st.dictionaries(st.integers(0, 99).map(lambda n: f"line {n}"), WORD, min_size=1))
def test_a_table_that_an_evaluation_wrote_is_read_as_it_was(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("readings") / "lines.tsv"
    write_table(path, ("set", "id", "text"), (("a", name, normalise(text)) for name, text in lines.items()))
    found = load_readings(path)
    assert [(r.set, r.id, r.text) for r in found] == [("a", name, normalise(text)) for name, text in lines.items()]
