"""Results without text give the same tables and paired tests, and never mix what is not alike."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import line_facts
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.summary import summarise
from spikehtr.files import write_json
from spikehtr.studies.archive import holds_kept, keep
from spikehtr.studies.study_overlay import load_study
from spikehtr.studies.study_page import to_json
from spikehtr.studies.study_plan import RESULT, STUDY, StudyPlan
from spikehtr.studies.study_runs import KEPT, gather
from spikehtr.studies.study_tables import tables

ONE, OTHER = "fine-t1", "retsinas-64"
TEXTS = [("the ink is dry", "the ink is dry"), ("a pen", "a hen"), ("nibs", "nib s"), ("", "x"), ("Tinte", "")]


def plan(folder, data=("hand",), **changes):
    sources = {name: f"/somewhere/{name}" for name in data}
    command = ("study", "main", "-d", *sources.values(), "-o", "/somewhere/runs")
    whole = StudyPlan(load_study("main"), folder, sources, budget=8.0, command=command)
    return replace(whole, **changes)


def read_as(texts, split):
    """What `evaluate` writes, of lines in three documents."""
    predictions = [
        Prediction(i, reference, text, 0.5, 0.75, f"{split}/{i}", "hand", f"page {i % 3}")
        for i, (reference, text) in enumerate(texts)
    ]
    facts = {"lines_per_second": 3.0, "predictions": [line_facts(p) for p in predictions]}
    return summarise(predictions) | facts


def finish(made, variant, texts, seed=0, data="hand"):
    """The folder of a run that has read these lines, of both splits."""
    (task,) = [t for t in made.tasks() if (t.variant, t.seed, t.data) == (variant, seed, data)]
    task.write()
    numbers = {"parameters": 9, "macs": 8, "firing_rate": 0.05, "minutes": 8.0, "epochs": 7, "device": "cpu"}
    write_json(task.folder / RESULT, {"variant": variant, "data": data, "seed": seed} | numbers)
    write_json(
        task.folder / "environment.json", {"command": f"spikehtr study main -d /somewhere/{data}/ --only {variant}"}
    )
    for split in ("validation", "test"):
        (task.folder / split).mkdir(exist_ok=True)
        write_json(task.folder / split / "evaluation.json", read_as(texts, split))


def study(folder, texts=TEXTS, variants=(ONE, OTHER), **changes):
    """A study's folder in which these variants are finished."""
    made = plan(folder, **changes)
    made.write()
    for variant in variants:
        finish(made, variant, [(reference, text if variant == ONE else reference) for reference, text in texts])
    return made


def numbers(made):
    found = to_json(made, gather(made))
    return {name: found[name] for name in ("data", "budget")}


line = st.tuples(st.text("ab c", max_size=8), st.text("ab c", max_size=8))


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(line, max_size=8))
def test_what_is_kept_gives_the_same_numbers(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    made = study(folder / "runs", [("a b", "a"), *texts])  # without any reference there is no rate
    assert keep(made, folder / "kept") == 2
    kept = StudyPlan.read(folder / "kept")
    assert numbers(kept) == numbers(made)
    assert tables(kept.study, gather(kept)) == tables(made.study, gather(made))


def test_no_text_and_no_place_is_kept(tmp_path):
    keep(study(tmp_path / "runs"), tmp_path / "kept")
    files = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "kept").as_posix() for path in files} == {STUDY, f"hand/{KEPT}"}
    whole = "".join(path.read_text() for path in files)
    assert "page 1" in whole
    for word in ("ink", "Tinte", "nib", "somewhere"):
        assert f"{word}" not in whole.replace("inkcoder", "")


def test_runs_of_several_folders_come_together(tmp_path):
    kept = tmp_path / "kept"
    keep(study(tmp_path / "a", variants=[ONE]), kept)
    assert not holds_kept(tmp_path / "a")
    assert holds_kept(kept)
    keep(study(tmp_path / "b", variants=[OTHER]), kept)
    other = study(tmp_path / "c", data=("mill",), variants=())
    finish(other, ONE, TEXTS, data="mill")
    keep(other, kept)
    blocks = {block.data: block for block in gather(StudyPlan.read(kept))}
    assert list(blocks) == ["hand", "mill"]
    assert [len(blocks[data].row(name).runs) for data in blocks for name in (ONE, OTHER)] == [1, 1, 1, 0]
    together = numbers(study(tmp_path / "d"))["data"]["hand"]
    assert numbers(StudyPlan.read(kept))["data"]["hand"] == together
    made = [("hand", OTHER), ("hand", ONE), ("mill", ONE)]  # as in the tables
    assert to_json(StudyPlan.read(kept), list(blocks.values()))["command"].splitlines() == [
        f"spikehtr study main -d {data} --only {name}" for data, name in made
    ]


def test_a_run_that_was_made_again_takes_the_place_of_the_first(tmp_path):
    kept = tmp_path / "kept"
    keep(study(tmp_path / "a"), kept)
    again = study(tmp_path / "b", variants=())
    finish(again, ONE, [(reference, reference) for reference, _ in TEXTS])
    assert keep(again, kept) == 1
    (block,) = gather(StudyPlan.read(kept))
    assert block.row(ONE).values("test", "cer") == [0.0]
    assert len(block.row(OTHER).runs) == 1


def test_more_seeds_are_kept_beside_the_first(tmp_path):
    kept = tmp_path / "kept"
    keep(study(tmp_path / "a", variants=[ONE]), kept)
    second = study(tmp_path / "b", variants=(), seeds=2)
    finish(second, ONE, TEXTS, seed=1)
    keep(second, kept)
    assert [run.seed for run in gather(StudyPlan.read(kept))[0].row(ONE).runs] == [0, 1]


def test_what_is_not_alike_is_not_put_together(tmp_path):
    kept = tmp_path / "kept"
    keep(study(tmp_path / "a"), kept)
    before = (kept / "hand" / KEPT).read_bytes(), (kept / STUDY).read_bytes()
    with pytest.raises(SpikeHTRError, match=r"budget is 8\.0, not 7\.0"):
        keep(study(tmp_path / "b", budget=7.0), kept)
    with pytest.raises(SpikeHTRError, match="read other validation lines than the runs in"):
        keep(study(tmp_path / "c", TEXTS[1:]), kept)
    with pytest.raises(SpikeHTRError, match="holds the study main, not ann-control"):
        keep(replace(study(tmp_path / "d"), study=load_study("ann-control")), kept)
    with pytest.raises(SpikeHTRError, match="no finished run to keep"):
        keep(study(tmp_path / "e", variants=()), kept)
    with pytest.raises(SpikeHTRError, match="is where a study was trained"):
        keep(study(tmp_path / "f"), tmp_path / "a")
    assert before == ((kept / "hand" / KEPT).read_bytes(), (kept / STUDY).read_bytes())


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    made = study(tmp_path / "a")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.html").write_text("learning curves")
    for folder in (tmp_path / "run", tmp_path / "run" / "report.html"):
        with pytest.raises(SpikeHTRError, match="holds other things than a study's results"):
            keep(made, folder)
    with pytest.raises(SpikeHTRError, match="is where the study is trained"):
        keep(made, made.folder)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["report.html"]


def test_a_damaged_file_and_a_row_that_is_gone_are_named(tmp_path):
    kept = tmp_path / "kept"
    made = study(tmp_path / "a")
    keep(made, kept)
    fewer = [v for v in made.study.variants if v.name not in ("retsinas-light", OTHER)]
    names = [v.name for v in fewer]
    pair = made.study.pair.model_copy(update={"others": tuple(n for n in made.study.pair.others if n in names)})
    smaller = made.study.model_copy(update={"variants": tuple(fewer), "pair": pair})
    with pytest.raises(SpikeHTRError, match=rf"runs\.json holds runs of {OTHER}, which main no longer has"):
        keep(replace(study(tmp_path / "b", variants=[ONE]), study=smaller), kept)
    (kept / "hand" / KEPT).write_text('{"lines"')
    with pytest.raises(SpikeHTRError, match=r"runs\.json is damaged"):
        gather(StudyPlan.read(kept))


def test_a_row_whose_settings_have_changed_since_is_told(tmp_path):
    """The study's overlay may be edited between two days: its row would no longer say what the run was."""
    kept = tmp_path / "kept"
    keep(study(tmp_path / "a"), kept)
    values = json.loads((kept / "hand" / KEPT).read_text())
    values["runs"][0]["config"]["training"]["weight_decay"] = 0.125
    (kept / "hand" / KEPT).write_text(json.dumps(values))
    with pytest.raises(SpikeHTRError, match=rf"{OTHER}, seed 0, was trained with other settings than main has now"):
        keep(study(tmp_path / "b", variants=[ONE]), kept)
