from dataclasses import replace

from spikehtr.report import environment
from spikehtr.studies.study_overlay import load_study
from spikehtr.studies.study_page import made_with, render
from spikehtr.studies.study_plan import FAILED, StudyPlan, run_folder
from spikehtr.studies.study_runs import Block
from studies_help import row


def test_a_page_says_what_its_runs_were_trained_with_not_what_drew_it():
    study, here = load_study("ann-control"), environment()
    spiking, gelu, pure = row(study, "spiking", 6, 7), row(study, "gelu", 5), row(study, "pure")
    assert made_with([Block("d", [spiking, gelu, pure])]) == here, "runs that do not say"
    runs = [replace(run, made=here | {"torch": f"9.{run.seed}", "seed": 3}) for run in spiking.runs]
    found = made_with([Block("d", [replace(spiking, runs=runs), gelu, pure])])
    assert found == here | {"torch": "9.0 / 9.1"}
    runs = [replace(run, made={"torch": "9.2"}) for run in spiking.runs]  # by code that noted less
    assert made_with([Block("d", [replace(spiking, runs=runs)])]) == {"torch": "9.2"}


def test_tables_and_page_show_only_what_was_asked_for_or_has_failed(tmp_path):
    study = load_study("main")
    asked, failed = (study.variant(name) for name in ("cnn-blstm-64", "tiny-t1"))
    broken = run_folder(tmp_path, "d", failed.name, 0)
    broken.mkdir(parents=True)
    (broken / FAILED).write_text("no memory")
    render(StudyPlan(study, tmp_path, {"d": "/d"}, only=(asked.name,)))
    rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {asked.label}", "not run yet"],
        [f"| {failed.label}", "failed: no memory"],
    ]
    hidden = f"Not asked for and not shown: {len(study.variants) - 2} other variants of the study."
    page = (tmp_path / "report.html").read_text()
    assert hidden in page
    assert "not run: not asked for" not in page
    render(StudyPlan(study, tmp_path, {"d": "/d"}))
    assert (tmp_path / "table.md").read_text().count("\n| ") == 2 + len(study.variants)
