"""Training on several devices, here two processes on the CPU (gloo): the same run as on one."""

import os
import signal
import time

import pytest
from cli_help import LOADER, REPEATABLE, SETTINGS, curve, drawn_words, run, start
from safetensors.torch import load_file

from spikehtr.config import Config
from spikehtr.data.compiling import compile_store

STEPS = 8
# A batch of all 27 lines: an epoch is a step, so each is in the log, and two processes cannot share it evenly.
BATCH = {"training.batch_size": 27}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    drawn_words(folder / "made", 16)
    compile_store([folder / "made"], folder / "lines.arrow", height=16)
    Config().with_overrides(SETTINGS | REPEATABLE | BATCH).save(folder / "micro.yaml")
    done = run(*command(folder, "one"))
    assert done.returncode == 0, done.stderr
    return folder


def command(place, name, *more):
    data = ["-d", place / "lines.arrow", "-c", place / "micro.yaml"]
    return ["train", *data, "-o", place / name, "--max-steps", STEPS, *more]


@pytest.mark.slow  # gradients of two processes: test_nodes.py
@pytest.mark.parametrize("launcher", ["--devices", "torchrun"])
def test_two_processes_give_the_loss_curve_of_one(place, launcher):
    if launcher == "torchrun":
        runner = ["torch.distributed.run", "--standalone", "--nproc-per-node", 2, "-m", "spikehtr"]
        process = start(*runner, *command(place, launcher))
    else:
        process = start("spikehtr", *command(place, launcher, "--devices", 2))
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    one, two = curve(place / "one"), curve(place / launcher)
    assert len(one) == len(two) == STEPS
    for a, b in zip(one, two, strict=True):
        for name in ("loss", "ctc", "aux", "kl", "gradient", "validation_cer", "learning_rate"):
            assert a[name] == pytest.approx(b[name], rel=1e-4, abs=1e-6), (name, a["step"])
    assert one[-1]["loss"] < 0.9 * one[0]["loss"]  # it did learn
    weights, shared = (load_file(place / name / "best.safetensors") for name in ("one", launcher))
    assert all((weights[name] - shared[name]).abs().max() < 1e-4 for name in weights)


@pytest.mark.slow  # of one process: tests/training/test_loop.py, tests/cli/test_study.py
def test_ctrl_c_stops_all_processes_and_the_run_goes_on_on_one(place):
    # The terminal sends Ctrl-C to the whole group, those that load lines included.
    process = start("spikehtr", *command(place, "stopped", "--devices", 2, *LOADER), start_new_session=True)
    log = place / "stopped" / "log.csv"
    deadline = time.monotonic() + 200
    while not (log.exists() and len(log.read_text().splitlines()) > 2) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode in (0, 1), errors  # 0 where it was done before the signal came
    again = run(*command(place, "stopped", "--resume", *LOADER))
    assert again.returncode == 0, again.stderr
    one, stopped = curve(place / "one"), curve(place / "stopped")
    assert [row["step"] for row in stopped] == [row["step"] for row in one]
    assert stopped[-1]["loss"] == pytest.approx(one[-1]["loss"], rel=1e-4)


@pytest.mark.slow
def test_a_mistake_in_several_processes_is_told_once(place):
    process = start("spikehtr", *command(place, "wrong", "--devices", 2, "-s", "data.max_width=8"))
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 2, errors
    assert errors.count("no line to train on") == 1
