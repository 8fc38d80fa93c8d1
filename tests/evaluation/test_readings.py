"""What other programs have read: every shape it comes in, and what is wrong with it said."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.readings import are_readings, evaluate_readings, load_readings
from spikehtr.evaluation.writing import write_table
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
        "text\tid\tmore\nto Paris\tx/1\t\nink\tx/2.tif\t3\n",
    ],
    ids=["tabs", "spaces", "file names", "PyLaia", "named columns"],
)
def test_tables(tmp_path, table):
    path = written(tmp_path, table)
    assert are_readings(path)
    assert texts(path) == {"x/1": "to Paris", "x/2": "ink"}


def test_a_line_in_which_nothing_was_read(tmp_path):
    assert texts(written(tmp_path, "1\n2\t\n3 ink\n")) == {"1": "", "2": "", "3": "ink"}


def test_a_quote_is_a_character_of_a_plain_table(tmp_path):
    assert texts(written(tmp_path, '1\t"ink\n2\tpen\n')) == {"1": '"ink', "2": "pen"}


def test_folders(tmp_path):
    written(tmp_path, "ink\n", "of/texts/book/1.pred.txt")
    written(tmp_path, "", "of/texts/book/2.txt")
    assert texts(tmp_path / "of") == {"texts/book/1": "ink", "texts/book/2": ""}
    page = (
        '<PcGts xmlns="x"><Page><TextRegion><TextLine id="l1"><TextEquiv><Unicode>pen</Unicode></TextEquiv></TextLine>'
    )
    written(tmp_path, f"{page}</TextRegion></Page></PcGts>", "pages/p1.xml")
    line = '<TextLine ID="l2"><String CONTENT="to"/><SP/><String CONTENT="Paris"/></TextLine>'
    layout = f"<Layout><Page><PrintSpace><TextBlock>{line}</TextBlock></PrintSpace></Page></Layout>"
    written(tmp_path, f'<alto xmlns="x">{layout}</alto>', "pages/p2.xml")
    assert texts(tmp_path / "pages") == {"p1/l1": "pen", "p2/l2": "to Paris"}


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
        ("their.tsv", "1\tink\n1.png\tpen\n", "line 2: '1' was there before .*line 1"),
        ("their.tsv", "id\ttext\tconfidence\n1\tink\thigh\n", "line 2: the confidence 'high' is no number"),
        ("their.tsv", "id\ttext\n1\n", "line 2: has fewer columns"),
        ("their.tsv", 'id\ttext\n1\t"ink\n', "after line 1: .*in quotes"),
        ("pages/a.xml", "<html/>", "a.xml: its root element is <html>, neither PAGE nor ALTO"),
        ("pages/a.xml", "<PcGts>", "a.xml: "),
    ],
)
def test_what_is_wrong_is_said(tmp_path, name, text, message):
    path = written(tmp_path, text, name)
    with pytest.raises(SpikeHTRError, match=message):
        load_readings(path if path.suffix == ".tsv" else path.parent)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "their.tsv").write_bytes(b"1\t\xe9t\xe9\n")
    with pytest.raises(SpikeHTRError, match=r"their\.tsv"):
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
    assert "1 lines are not in it ('2'" in told[0]
    assert "('9'" in told[1]


def test_no_line_in_common(tmp_path):
    with pytest.raises(SpikeHTRError, match="ids are like 'x1', those of the data like '1'"):
        evaluate_readings(written(tmp_path, "x1\tink\n"), {"a": part(("1", "ink"))})


def test_sets_that_share_ids_are_told_apart(tmp_path):
    parts = {"in/old": part(("1", "ink"), ("2", "a")), "in/new": part(("1", "pen"))}
    with pytest.raises(SpikeHTRError, match="'1' is a line of new and of old"):
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
