"""What a study consists of, and that a folder is never mixed up with another study's."""

import json
from dataclasses import replace

import pytest

from spikehtr.errors import SpikeHTRError
from spikehtr.studies.study_overlay import load_study
from spikehtr.studies.study_plan import STUDY, TASK, StudyPlan, Task, name_data


def plan(folder, **changes):
    whole = StudyPlan(load_study("ann-control"), folder, {"one": "/data/one", "two": "/data/two"}, "tiny", seeds=2)
    return replace(whole, **changes)


def test_a_run_for_each_data_set_variant_and_seed(tmp_path):
    tasks = plan(tmp_path, budget=3.0).tasks()
    assert len(tasks) == len({task.folder for task in tasks}) == 2 * 3 * 2
    assert [(task.data, task.variant, task.seed) for task in tasks[:4]] == [
        ("one", "spiking", 0),
        ("one", "gelu", 0),
        ("one", "pure", 0),
        ("two", "spiking", 0),
    ]
    assert {task.config.training.seed for task in tasks if task.seed == 1} == {1}
    assert all(task.max_minutes == 3.0 for task in tasks)
    assert [task.variant for task in plan(tmp_path, only=("gelu",), seeds=1).tasks()] == ["gelu", "gelu"]


def test_a_task_in_its_folder(tmp_path):
    task = plan(tmp_path, command=("study", "ann-control")).tasks()[0]
    task.write()
    assert Task.read(task.folder) == task
    replace(task, command=("study", "ann-control", "--jobs", "2")).write()  # another command, the same work
    with pytest.raises(SpikeHTRError, match="begun with other settings"):
        replace(task, max_minutes=1.0).write()
    with pytest.raises(SpikeHTRError, match="no task here"):
        Task.read(tmp_path)


def test_a_plan_in_its_folder(tmp_path):
    plan(tmp_path).write()
    assert StudyPlan.read(tmp_path) == plan(tmp_path)
    plan(tmp_path, seeds=1, only=("gelu",)).write()
    assert StudyPlan.read(tmp_path).seeds == 2  # the second seed's runs are still there
    for changes in ({"budget": 5.0}, {"overrides": ("training.seed=3",)}, {"data": {"one": "/data/one"}}):
        with pytest.raises(SpikeHTRError, match="use the same settings"):
            plan(tmp_path, **changes).write()
    with pytest.raises(SpikeHTRError, match="no study here"):
        StudyPlan.read(tmp_path / "nowhere")


def test_variants_that_several_commands_ask_for_are_noted_together(tmp_path):
    plan(tmp_path, only=("gelu",)).write()
    plan(tmp_path, only=("pure", "gelu")).write()
    assert StudyPlan.read(tmp_path).only == ("gelu", "pure")
    plan(tmp_path).write()
    assert StudyPlan.read(tmp_path).only == (), "all of them"
    plan(tmp_path, only=("gelu",)).write()
    assert StudyPlan.read(tmp_path).only == ()


def test_folders_from_before_a_field_was_new_go_on(tmp_path):
    whole = plan(tmp_path)
    whole.write()
    task = whole.tasks()[0]
    task.write()
    noted, values = (json.loads(path.read_text()) for path in (tmp_path / STUDY, task.folder / TASK))
    for old in (noted["study"]["variants"][0], values):
        for name in ("begin", "at", "series", "start", "train"):
            old.pop(name, None)
    del noted["start"], noted["study"]["axis"], values["config"]["data"]["train_lines"]
    (tmp_path / STUDY).write_text(json.dumps(noted))
    (task.folder / TASK).write_text(json.dumps(values))
    whole.write()
    task.write()
    with pytest.raises(SpikeHTRError, match="whose variants are others"):
        plan(tmp_path, study=whole.study.model_copy(update={"title": "another"})).write()


def test_names_of_data_sets():
    assert name_data(["/a/bronod", "iam:/b/IAM lines", "/a/bronod"]) == {
        "bronod": "/a/bronod",
        "IAM_lines": "iam:/b/IAM lines",
    }
    assert list(name_data(["/a/x", "/b/x"])) == ["a_x", "b_x"]
    with pytest.raises(SpikeHTRError, match="called the same"):
        name_data(["/a/x y", "/a/x_y"])
