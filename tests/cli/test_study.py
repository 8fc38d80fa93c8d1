"""Every study of the paper from end to end, at a size that takes seconds."""

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from cli_help import run
from PIL import Image

from conftest import draw_line
from spikehtr.studies.study_overlay import load_study, study_names
from spikehtr.training.log import read_log
from studies_help import SETTINGS, write_lines

pytestmark = pytest.mark.usefixtures("no_drawing")
EIGHT = ["ann-control", "encoder", "inkcoder", "main", "mixer", "reduction", "scale", "t-sweep"]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    os.environ["SPIKEHTR_CACHE"] = str(folder / "cache")
    gc.freeze()  # a study collects garbage after each run, and would search all that the other tests have loaded
    yield write_lines(folder / "words")
    gc.unfreeze()
    del os.environ["SPIKEHTR_CACHE"]


def command(name, lines, output, *more):
    return ["study", name, "-d", lines, "-o", output, "--epochs", 1, "--device", "cpu", *SETTINGS, *more]


@pytest.mark.parametrize(
    "name",
    [name if name in ("ann-control", "reduction") else pytest.param(name, marks=pytest.mark.slow) for name in EIGHT],
)
def test_a_study_from_data_to_table(name, lines, tmp_path):
    done = run(*command(name, lines, tmp_path / "s"))
    assert done.returncode == 0, done.stdout + done.stderr
    study = load_study(name)
    found = json.loads((tmp_path / "s" / "results.json").read_text())
    rows = {row["variant"]: row for row in found["data"]["words"]["rows"]}
    assert list(rows) == [v.name for v in study.variants]
    texts = {suffix: (tmp_path / "s" / f"table.{suffix}").read_text() for suffix in ("md", "tex")}
    page = (tmp_path / "s" / "report.html").read_text()
    for variant in study.variants:
        row = rows[variant.name]
        assert list(row["paper"].values()) == list(variant.paper)
        if study.left_out(variant):
            assert row["why"].startswith(("not reproduced", "not run"))
            assert row["why"] in texts["md"]
            continue
        assert row["why"] == ""
        for split in ("validation", "test"):
            assert row["rates"][split]["cer"]["mean"] > 0
            assert (tmp_path / "s" / "words" / variant.name / "seed0" / split / "evaluation.json").is_file()
        line = next(line for line in texts["md"].splitlines() if line.startswith(f"| {variant.label} |"))
        assert all(value in line for value in variant.paper)
    assert study.paper.table in texts["md"]
    assert "bootstrap over the 2 lines" in texts["md"]
    assert texts["tex"].count(r"\begin{tabular}") == texts["tex"].count(r"\end{tabular}") >= 1
    assert f"spikehtr study {name}" in page
    assert page.count("data:image/png") == 1


def test_the_names_are_all_there():
    assert set(study_names()) == {*EIGHT, "fine-tuning", "ann-reduction"}


@pytest.mark.slow
def test_the_same_command_goes_on_and_more_seeds_give_other_intervals(lines, tmp_path):
    first = run(*command("ann-control", lines, tmp_path / "s", "--only", "spiking,gelu"))
    assert first.returncode == 0, first.stderr
    best = tmp_path / "s" / "words" / "gelu" / "seed0" / "best.safetensors"
    before = best.stat().st_mtime_ns
    again = run(*command("ann-control", lines, tmp_path / "s", "--seeds", 2))
    assert again.returncode == 0, again.stderr
    assert "2 of 6 runs are there already" in again.stdout
    assert best.stat().st_mtime_ns == before
    assert (tmp_path / "s" / "plot.png").is_file()
    found = json.loads((tmp_path / "s" / "results.json").read_text())["data"]["words"]
    assert all(len(row["rates"]["test"]["cer"]["by_seed"]) == 2 for row in found["rows"])
    assert "over 2 seeds" in found["intervals"]
    assert "3 degrees of freedom" in found["intervals"]
    assert [(o["a"], o["b"]) for o in found["orderings"]] == [
        ("Spike-HTR, T = 1", "ANN-isomorphic (GELU), T = 1"),
        ("Spike-HTR, T = 1", "ANN-pure: no InkCoder / no mem residual, T = 1"),
    ]
    (tmp_path / "s" / "table.md").unlink()
    assert run("study", "ann-control", "-o", tmp_path / "s", "--render").returncode == 0
    assert "| ANN-isomorphic (GELU), T = 1 |" in (tmp_path / "s" / "table.md").read_text()
    other = run(*command("ann-control", lines, tmp_path / "s", "-s", "training.learning_rate=1e-3"))
    assert other.returncode == 2
    assert "use the same settings to go on" in other.stderr
    wrong = run("study", "mixer", "-o", tmp_path / "s", "--render")
    assert "holds the study ann-control" in wrong.stderr


def test_results_are_kept_without_the_runs(lines, tmp_path):
    made = run(*command("ann-control", lines, tmp_path / "s", "--only", "spiking,gelu", "--keep", tmp_path / "kept"))
    assert made.returncode == 0, made.stderr
    assert f"2 runs kept in {tmp_path / 'kept'}, without any line's text" in made.stdout
    tables = [(tmp_path / folder / "table.md").read_text() for folder in ("s", "kept")]
    assert tables[0].split("\n## ")[1:] == tables[1].split("\n## ")[1:] != []
    assert "| Spike-HTR, T = 1 |" in tables[0]
    assert (str(tmp_path) in tables[0], str(tmp_path) in tables[1]) == (True, False), "where things lay is not kept"
    (tmp_path / "kept" / "table.md").unlink()
    assert run("study", "ann-control", "-o", tmp_path / "kept", "--render").returncode == 0
    assert (tmp_path / "kept" / "table.md").read_text() == tables[1]
    other = run(*command("ann-control", lines, tmp_path / "t", "--keep", tmp_path / "kept", "-s", "training.seed=3"))
    assert other.returncode == 2
    assert "holds a study whose set is" in " ".join(other.stderr.split())
    assert not (tmp_path / "t").exists(), "told before anything is trained"
    there = run(*command("ann-control", lines, tmp_path / "kept"))
    assert there.returncode == 2
    assert "train into another folder, and --keep them here" in " ".join(there.stderr.split())


def test_runs_of_another_study_are_taken_over_where_nothing_differs(lines, tmp_path):
    first = run(*command("reduction", lines, tmp_path / "a", "--only", "full"))
    assert first.returncode == 0, first.stderr
    full = tmp_path / "a" / "words" / "full" / "seed0"
    log = (full / "run.log").read_text()
    words = command("mixer", lines, tmp_path / "b", "--only", "auto,all-la", "--reuse", tmp_path / "a")
    planned = run(*words, "--dry-run")
    assert planned.stdout.count("taken from") == 1
    assert not (tmp_path / "b").exists()
    again = run(*words)
    assert again.returncode == 0, again.stderr
    assert f"seed 0: taken from {full}" in again.stdout
    assert "1 of 2 runs are there already" in again.stdout
    auto, other = (tmp_path / "b" / "words" / name / "seed0" for name in ("auto", "all-la"))
    assert (auto / "best.safetensors").read_bytes() == (full / "best.safetensors").read_bytes()
    assert (other / "best.safetensors").read_bytes() != (full / "best.safetensors").read_bytes()
    assert json.loads((auto / "result.json").read_text())["variant"] == "auto"
    rates = [json.loads((tmp_path / name / "results.json").read_text())["data"]["words"]["rows"][0] for name in "ab"]
    assert rates[0]["rates"] == rates[1]["rates"]
    (auto / "run.log").write_text("mine")
    assert (full / "run.log").read_text() == log  # nothing of the other study is written into
    assert json.loads((full / "result.json").read_text())["variant"] == "full"


def test_runs_of_another_study_are_not_taken_over_where_something_differs(lines, tmp_path):
    first = run(*command("reduction", lines, tmp_path / "a", "--only", "full"))
    assert first.returncode == 0, first.stderr
    words = command("mixer", lines, tmp_path / "c", "--only", "auto", "--reuse", tmp_path / "a", "--dry-run")
    assert "taken from" in run(*words).stdout
    moved = [shutil.copytree(lines, tmp_path / "elsewhere" / lines.name) if word == lines else word for word in words]
    assert "taken from" in run(*moved).stdout, "the same lines from another place"
    named = [shutil.copytree(lines, tmp_path / "elsewhere" / "other") if word == lines else word for word in words]
    assert "taken from" not in run(*named).stdout, "their evaluations name the set"
    assert "taken from" not in run(*words, "--allow-unknown").stdout
    assert "taken from" not in run(*words, "-s", "training.learning_rate=0.01").stdout
    Image.fromarray(draw_line("ink", 32, 9)).save(lines / "validation" / "more.png")
    (lines / "validation" / "more.txt").write_text("ink")
    try:
        assert "taken from" not in run(*words).stdout  # the lines are others now
    finally:
        for kind in ("png", "txt"):
            (lines / "validation" / f"more.{kind}").unlink()
    by_minutes = [
        "study",
        "mixer",
        "-d",
        lines,
        "-o",
        tmp_path / "d",
        "--budget",
        1,
        "--reuse",
        tmp_path / "a",
        *SETTINGS,
    ]
    assert "by --epochs" in run(*by_minutes).stderr
    wrong = run(*command("mixer", lines, tmp_path / "d", "--reuse", tmp_path / "words"))
    assert wrong.returncode == 2
    assert "no study here to take runs from" in wrong.stderr
    assert not (tmp_path / "d").exists()


def start(*args):
    program = [sys.executable, "-c", "from spikehtr.cli import main; main()"]
    return subprocess.Popen(
        [*program, *map(str, args)], stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def long_study(lines, output):
    """The command, and the folders of its two runs."""
    words = ["study", "mixer", "-d", lines, "-o", output, "--epochs", 12, "--device", "cpu", *SETTINGS]
    words += ["-s", "model.timesteps=1", "-s", "training.validate_every=6", "--only", "auto,all-la"]
    return words, [output / "words" / name / "seed0" for name in ("auto", "all-la")]


def check_gone_on(folders):
    """What was stopped went on from there, and every step was done once."""
    logs = [(folder / "run.log").read_text() for folder in folders]
    assert any("stopped at step" in log for log in logs)
    for folder, log in zip(folders, logs, strict=True):
        if "stopped at step" in log:
            step = int(log.split("stopped at step")[1].split()[0])
            assert 0 < step < 24
            assert f"step {step} of 24" in log
        assert [row["step"] for row in read_log(folder) if row["step"] % 2 == 0] == list(range(2, 25, 2))
        assert (folder / "result.json").is_file()


@pytest.mark.slow  # in one process: the test below; several: tests/studies/test_runner.py; a kill: training's own tests
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_and_killed_studies_go_on(sign, lines, tmp_path):
    """The study is stopped while two processes train for it."""
    words, folders = long_study(lines, tmp_path / "s")
    with start(*words, "--jobs", 2) as study:
        wait_for(lambda: any((folder / "last.safetensors").exists() for folder in folders))
        study.send_signal(sign)
        told, _ = study.communicate(timeout=60)
    assert study.returncode == (1 if sign == signal.SIGTERM else -sign)
    if sign == signal.SIGTERM:
        assert "the same command goes on" in told
    again = run(*words, "--jobs", 1)  # waits until workers that lost their parent have saved and left
    assert again.returncode == 0, again.stdout + again.stderr
    check_gone_on(folders)


@pytest.mark.slow
def test_one_at_a_time_stops_too(lines, tmp_path):
    words, folders = long_study(lines, tmp_path / "s")

    def terminate():
        wait_for((folders[0] / "last.safetensors").exists)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    stopped = run(*words)
    assert stopped.returncode == 1
    assert "stopped: 0 of 2 runs are finished; the same command goes on" in stopped.stdout
    assert "not run yet" in (tmp_path / "s" / "table.md").read_text()
    assert run(*words).returncode == 0
    check_gone_on(folders)


def test_one_that_fails_does_not_hold_up_the_others(lines, tmp_path):
    (tmp_path / "o.yaml").write_text(
        "title: Two\npreset: tiny\npaper: {table: t, caption: c, columns: [IAM], rates: [IAM], split: test}\n"
        "variants:\n- {name: wild, label: Wild, set: {training.learning_rate: 1e30, training.warmup_epochs: 0}}\n"
        "- {name: tame, label: Tame}\n"
    )
    done = run(*command(str(tmp_path / "o.yaml"), lines, tmp_path / "s", "--epochs", 3))
    assert done.returncode == 1
    assert "not finite" in done.stdout
    rows = json.loads((tmp_path / "s" / "results.json").read_text())["data"]["words"]["rows"]
    assert rows[0]["why"].startswith("failed: the loss or its gradient is not finite")
    assert rows[1]["rates"]


def write_unmarked(folder, count):
    """As `write_lines`, without splits."""
    folder.mkdir()
    for number in range(count):
        word = ("ink", "pen", "nib", "kin")[number % 4]
        Image.fromarray(draw_line(word, 32, number)).save(folder / f"{number:02}.png")
        (folder / f"{number:02}.txt").write_text(word)
    return folder


def test_where_no_split_is_marked_some_lines_are_held_out(lines, tmp_path):
    done = run(*command("ann-control", write_unmarked(tmp_path / "flat", 21), tmp_path / "s", "--only", "spiking"))
    assert done.returncode == 0, done.stderr
    assert "flat: no line is marked as training: every 5th of 21 is held out to validate" in done.stdout
    seed = tmp_path / "s" / "flat" / "spiking" / "seed0"
    read = json.loads((seed / "validation" / "evaluation.json").read_text())["predictions"]
    assert [line["id"] for line in read] == ["04", "09", "14", "19"]
    assert "17 lines to train on, 4 to validate" in (seed / "run.log").read_text()
    assert not (seed / "test").exists()
    (row,) = [row for row in (tmp_path / "s" / "table.md").read_text().splitlines() if row.startswith("| Spike-HTR")]
    assert [cell.strip() for cell in row.split("|")][3] == "--"  # no test lines


def test_lines_marked_as_test_are_never_trained_on(lines, tmp_path):
    data = write_unmarked(tmp_path / "flat", 20)
    shutil.copytree(lines / "test", data / "test")
    done = run(*command("ann-control", data, tmp_path / "s", "--only", "spiking"))
    assert done.returncode == 0, done.stderr
    told = "no line is marked as training and 2 as validation or test: every 5th of 20 is held out to validate"
    assert told in " ".join(done.stdout.split())
    seed = tmp_path / "s" / "flat" / "spiking" / "seed0"
    assert "16 lines to train on, 4 to validate" in (seed / "run.log").read_text()
    assert len(json.loads((seed / "test" / "evaluation.json").read_text())["predictions"]) == 2
    alone = run(*command("ann-control", data / "test", tmp_path / "t", "--only", "spiking"))
    assert alone.returncode == 2
    assert "all 2 lines are marked as validation or test: mark some as train" in " ".join(alone.stderr.split())
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("marked", [True, False])
def test_without_lines_to_judge_by_nothing_is_trained(marked, lines, tmp_path):
    data = write_unmarked(tmp_path / ("train" if marked else "flat"), 9)
    done = run(*command("ann-control", data, tmp_path / "s"))
    assert done.returncode == 2
    assert "has no validation or test lines to judge a run by" in done.stderr
    assert "too few to hold any out" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "s").exists()


def test_dry_run(lines, tmp_path):
    done = run("study", "main", "-d", lines, "-o", tmp_path / "s", "--budget", 5, "--seeds", 2, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "5.0" in done.stdout
    assert "ask for it with --only base-t2" in done.stdout
    assert list(tmp_path.iterdir()) == []
    done = run(*command("ann-control", lines, tmp_path / "s", "--dry-run"))
    assert "from one timed step of each kind" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["mixr", "-o", "s"], "did you mean 'mixer'"),
        (["mixer", "-o", "s"], "--data"),
        (["mixer", "-o", "s", "--render"], "no study here"),
        (["mixer", "-o", "s", "--render", "--only", "auto", "--seeds", "2"], "leave out --seeds, --only"),
        (["mixer", "-o", "s", "-d", "nowhere", "--budget", "1", "--epochs", "1"], "give one of them"),
        (["mixer", "-o", "s", "-d", "nowhere", "--only", "autto"], "did you mean 'auto'"),
        (["scale", "-o", "s", "-d", "nowhere", "-p", "tiny"], "leave --preset out"),
        (["mixer", "-o", "s", "-d", "nowhere", "-s", "model.timestep=1"], "did you mean 'model.timesteps'"),
        (["mixer", "-o", "s", "-d", "nowhere", "-p", "tinny"], "did you mean 'tiny'"),
        (["main", "-o", "s", "-d", "nowhere", "--protocol", "none.yaml"], "none.yaml"),
    ],
)
def test_wrong_use_is_explained(args, says, tmp_path):
    done = run("study", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
