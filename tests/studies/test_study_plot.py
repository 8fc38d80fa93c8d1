import pytest

from spikehtr.studies.study_overlay import Paper, load_study
from spikehtr.studies.study_plot import study_figure
from spikehtr.studies.study_runs import Block
from studies_help import row


def test_every_row_and_every_published_value_is_drawn():
    study = load_study("main")
    rows = [row(study, v.name, *([] if v.why else [6 + place])) for place, v in enumerate(study.variants)]
    figure = study_figure(study, [Block("one", rows), Block("two", rows)])
    first, second, paper = figure.axes
    assert [label.get_text().replace("\n", " ") for label in first.get_yticklabels()] == [
        v.label for v in study.variants
    ]
    assert (first.get_title(), second.get_title(), paper.get_title()) == ("ours: one", "ours: two", "paper: test")
    assert [len(bars[0].get_xdata()) for bars in first.containers] == 2 * [
        len([v for v in study.variants if not v.why])
    ]
    drawn = {line.get_label(): list(line.get_xdata()) for line in paper.lines}
    for place, name in enumerate(study.paper.columns[1:], 1):
        assert drawn[name] == [float(v.paper[place]) for v in study.variants if v.paper and v.paper[place] != "--"]
    assert paper.get_xlabel() == "CER, %"


def test_rows_with_nothing_to_show_are_left_out():
    study = load_study("main")
    rows = [row(study, v.name, *([6] if v.name == "fine-t1" else [])) for v in study.variants]
    first, paper = study_figure(study, [Block("one", rows)]).axes
    shown = [v for v in study.variants if v.paper or v.name == "fine-t1"]
    assert [label.get_text().replace("\n", " ") for label in first.get_yticklabels()] == [v.label for v in shown]
    (place,) = first.containers[0][0].get_ydata()
    assert round(place) == [v.name for v in shown].index("fine-t1")
    assert max(y for line in paper.lines for y in line.get_ydata()) == len(shown) - 1, "the paper's last row"


def test_a_study_of_ones_own_has_no_panel_of_the_paper():
    study = load_study("ann-control").model_copy(update={"paper": Paper()})
    rows = [row(study, v.name, 6 + place) for place, v in enumerate(study.variants)]
    assert [panel.get_title() for panel in study_figure(study, [Block("one", rows)]).axes] == ["ours: one"]


def test_each_seed_is_drawn_where_there_are_several():
    study = load_study("ann-control")
    rows = [row(study, "spiking", 6, 30), row(study, "gelu", 12), row(study, "pure")]
    panel = study_figure(study, [Block("one", rows)]).axes[0]
    crosses = [(list(line.get_xdata()), list(line.get_ydata())) for line in panel.lines if line.get_marker() == "x"]
    assert [x for x, _ in crosses] == [pytest.approx([1.0, 5.0])] * 2, "six and thirty errors in 600 characters"
    assert [y for _, y in crosses] == [[-0.16, -0.16], [0.16, 0.16]], "in the first row, validation above test"
