"""The study of fine-tuning: from a model to a table and curves; and what it asks of its user."""

import json

import pytest
from cli_help import run

from spikehtr.studies.study_overlay import Study, load_study
from spikehtr.studies.study_plan import StudyPlan
from spikehtr.studies.study_plot import study_figure
from spikehtr.studies.study_runs import Block, gather
from spikehtr.weights import load_model, save_model
from studies_help import SETTINGS, row, write_lines

pytestmark = pytest.mark.usefixtures("no_drawing")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fine-tuning")
    lines = write_lines(folder / "words")
    done = run("train", "-d", lines, "-o", folder / "model", "--max-steps", 2, "--device", "cpu", *SETTINGS)
    assert done.returncode == 0, done.stderr
    return folder


def study(place, *more, name="fine-tuning"):
    return run("study", name, "-d", place / "words", "-o", place / "study", "--device", "cpu", *more)


@pytest.mark.slow  # fine-tuning: tests/training/test_finetune.py; tables: test_study.py
def test_from_a_model_to_a_table(place):
    model = place / "model" / "best.safetensors"
    only = ["--only", "as-is,model-50,scratch-50", "--epochs", 2, "-s", "data.workers=0"]
    done = study(place, "--from", model, *only)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        r["variant"]: r for r in json.loads((place / "study" / "results.json").read_text())["data"]["words"]["rows"]
    }
    assert all(rows[name]["rates"]["test"]["cer"]["mean"] > 0 for name in ("as-is", "model-50", "scratch-50"))
    runs = place / "study" / "words"
    facts = {
        name: json.loads((runs / name / "seed0" / "result.json").read_text()) for name in rows if rows[name]["rates"]
    }
    assert (facts["as-is"]["steps"], facts["model-50"]["steps"]) == (0, 2)
    assert "data.train_lines: 6 of 6 lines" in (runs / "model-50" / "seed0" / "run.log").read_text()
    origin = json.loads((runs / "model-50" / "seed0" / "task.json").read_text())["start"]
    assert origin == str(model)
    assert json.loads((runs / "scratch-50" / "seed0" / "task.json").read_text())["start"] is None
    # the network is the model's, for those from scratch too
    assert facts["scratch-50"]["parameters"] == facts["as-is"]["parameters"]
    again = study(place, "--from", model, *only)  # nothing is left to do
    assert again.returncode == 0
    assert "3 runs are there already" in again.stdout.replace("3 of 3", "3")


def test_a_model_without_notes_is_judged_and_gone_on_from(place, tmp_path):
    """Neither calibration nor provenance in its file: rates and speeds are there all the same."""
    trained = load_model(place / "model" / "best.safetensors")
    save_model(tmp_path / "bare.safetensors", trained.net, trained.config, trained.charset)
    options = [
        "--from",
        tmp_path / "bare.safetensors",
        "--only",
        "as-is,model-50",
        "--epochs",
        1,
        "-s",
        "data.workers=0",
    ]
    done = run("study", "fine-tuning", "-d", place / "words", "-o", tmp_path / "s", "--device", "cpu", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = gather(StudyPlan.read(tmp_path / "s"))
    for name in ("as-is", "model-50"):
        assert found.row(name).fact("speed") > 0
        assert found.row(name).values("test", "cer")[0] > 0
    (as_is,) = found.row("as-is").runs
    assert all(reading.values["temperature"] == 1.0 for reading in as_is.readings.values())
    assert found.row("as-is").fact("minutes") == 0


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("fine-tuning", [], "name it by --from"),
        ("t-sweep", ["--from", "model.safetensors", "-p", "tiny"], "leave out --from"),
        ("fine-tuning", ["--from", "none.safetensors"], "none.safetensors"),
        ("fine-tuning", ["--from", "none.safetensors", "-p", "tiny"], "leave --preset out"),
    ],
)
def test_what_it_needs_is_said(place, name, options, complaint):
    done = study(place, *options, name=name)
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())


def test_curves_over_the_lines_trained_on():
    chosen = load_study("fine-tuning")
    rows = [row(chosen, v.name, *([] if v.asked else [20 - place])) for place, v in enumerate(chosen.variants)]
    (panel,) = study_figure(chosen, [Block("hand", rows)]).axes
    drawn = {bars.get_label(): list(bars[0].get_xdata()) for bars in panel.containers}
    assert drawn == {"from the model": [0, 50, 200, 1000], "from scratch": [50, 200, 1000]}
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "50", "200", "1,000"]
    assert panel.get_xlabel() == "lines trained on"


def test_every_variant_has_its_place_on_the_axis():
    values = load_study("fine-tuning").model_dump(by_alias=True)
    del values["variants"][1]["at"]
    with pytest.raises(ValueError, match="model-50: no place"):
        Study.model_validate(values)
