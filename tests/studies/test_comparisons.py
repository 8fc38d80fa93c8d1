"""Verdicts on the paper's orderings, from made-up readings whose differences are known."""

import pytest

from spikehtr.studies.comparisons import judge, number, orderings, pairs
from spikehtr.studies.study_overlay import load_study
from spikehtr.studies.study_runs import Block
from spikehtr.studies.study_tables import tables, tex, to_latex, to_markdown
from studies_help import row


@pytest.mark.parametrize(
    ("interval", "published", "verdict"),
    [
        ((0.1, 0.9), [0.8, 0.6], "Confirmed"),
        ((-0.9, -0.1), [-0.8, 0.0], "Confirmed"),
        ((-0.9, -0.1), [0.8], "Contradicted"),
        ((-0.1, 0.9), [0.8], "Within noise"),
        ((-0.1, 0.9), [0.0, 0.0], "Agrees: no difference shown, as in the paper"),
        ((0.1, 0.9), [0.0], "Contradicted: the paper shows no difference"),
        ((0.1, 0.9), [], "A real difference"),
        ((-0.1, 0.9), [], "Within noise"),
        ((0.1, 0.9), [0.2, -0.2], "A real difference; the paper's data sets disagree among themselves"),
        (None, [0.1], "No interval is possible, so nothing can be said"),
    ],
)
def test_verdicts(interval, published, verdict):
    assert judge(interval, published) == verdict


def test_a_difference_is_real_where_its_p_value_says_so_too():
    few = (-133.0, -1.7)  # of three lines
    assert judge(few, [0.8], 0.25) == judge(few, [], 0.25) == "Within noise"
    assert judge(few, [0.0], 0.25) == "Agrees: no difference shown, as in the paper"
    assert judge(few, [0.8], 0.05) == judge(few, [0.8], None) == "Contradicted"


def test_numbers_as_the_paper_prints_them():
    assert (number("4.31/16.42", "cer"), number("4.31/16.42", "wer")) == (4.31, 16.42)
    assert (number("3.489", "cer"), number("3.489", "wer"), number("--", "cer")) == (3.489, None, None)


def test_orderings_of_one_seed_are_paired_and_of_several_are_over_seeds():
    study = load_study("ann-control")
    block = Block("d", [row(study, "spiking", 6), row(study, "gelu", 30), row(study, "pure")])
    (one,) = orderings(study, block)  # the third has not run
    assert one.difference == pytest.approx(4.0)
    assert one.p_value < 0.05
    assert one.published == [pytest.approx(0.069)]
    assert one.verdict == "Confirmed"
    assert "Confirmed" in one.sentence()
    block = Block("d", [row(study, "spiking", 6, 8), row(study, "gelu", 30, 31), row(study, "pure", 7, 6)])
    one, other = orderings(study, block)
    assert one.p_value is None
    assert one.difference == pytest.approx(100 * (30.5 - 7) / 600)
    assert (one.verdict, other.verdict) == ("Confirmed", "Within noise")
    assert "3 degrees of freedom" in block.how("validation")


def test_pairs_line_by_line():
    study = load_study("main")
    rows = [row(study, v.name) for v in study.variants]
    names = [v.name for v in study.variants]
    rows[names.index("tiny-t2")] = row(study, "tiny-t2", 3, 4)
    rows[names.index("cnn-blstm-64")] = row(study, "cnn-blstm-64", 20, 22, 60)  # the third seed has no partner
    found = pairs(study, Block("d", rows))
    assert {(o.a, o.b) for o in found} == {("CNN+BLSTM", "Spike-HTR tiny, T = 2")}
    wanted = [(split, metric) for split in ("validation", "test") for metric in ("cer", "wer")]
    assert [(o.split, o.metric) for o in found] == wanted
    rates = [o for o in found if o.metric == "cer"]
    assert all(o.difference == pytest.approx(100 * (7 - 42) / 1200) and o.p_value < 0.05 for o in rates)


def test_tables_tell_what_is_missing():
    study = load_study("reduction")
    block = Block("d|x", [row(study, "full", 6), *(row(study, v.name) for v in study.variants[1:])])
    made = tables(study, [block])
    assert made[0].head == [
        "variant", "validation CER, %", "test CER, %", "r", "paper: r", "paper: IAM", "paper: LAM", "paper: READ2016",
    ]  # fmt: skip
    full = ["Full (keep-and-merge)", "1.00 [0.50, 2.00]", "1.00 [0.50, 2.00]", "0.90", "0.68", "3.49", "2.26", "4.23"]
    assert made[0].rows[0] == full
    assert made[0].rows[1] == ["No reduction (L = L0)", "not run yet", "", "", "1.00", "3.52", "2.28", "4.20"]
    text = to_markdown(made)
    assert "| No reduction (L = L0) | not run yet |  |  | 1.00 |" in text
    assert "bootstrap over the 60 lines, of one seed" in text
    latex = to_latex(made)
    assert r"validation CER, \%" in latex
    assert r"tab:ablate\_reduce" in latex
    assert tex(r"a_b & 5 % {x} \ ~^#$") == (
        r"a\_b \& 5 \% \{x\} \textbackslash{} \textasciitilde{}\textasciicircum{}\#\$"
    )


def test_a_table_tells_what_a_row_cost():
    study = load_study("main")
    block = Block("d", [row(study, v.name, *([6] if v.name == "fine-t1" else [])) for v in study.variants])
    table = tables(study, [block])[0]
    (ours,) = (cells for cells in table.rows if cells[0] == study.variant("fine-t1").label)
    told = dict(zip(table.head, ours, strict=True))
    cost = {"params, M": "1.5", "MACs, G": "2.00", "mean firing rate": "--", "training, min": "1.0", "epochs": "12"}
    assert cost.items() <= told.items()
