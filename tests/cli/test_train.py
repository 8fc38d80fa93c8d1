"""`spikehtr train` and `evaluate` as a person meets them, kill -9 included."""

import json
import signal
import subprocess
import sys
import time

import pytest
import yaml
from safetensors.torch import load_file
from test_cli import run

from conftest import MICRO
from spikehtr.assets import FONTS
from spikehtr.config import Config
from spikehtr.data.compiling import compile_store
from spikehtr.data.synth import synthesise

SETTINGS = MICRO | {
    "model.height": 24,
    "model.timesteps": 1,
    "data.workers": 1,
    "data.max_width": 96,
    "training.batch_size": 4,
    "training.epochs": 2,
    "training.warmup_epochs": 1,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store of 30 small lines and a configuration to train on them."""
    folder = tmp_path_factory.mktemp("train")
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"], FONTS, 30, folder / "made", height=24)
    compile_store([folder / "made"], folder / "lines.arrow", height=24)
    Config().with_overrides(SETTINGS).save(folder / "micro.yaml")
    return folder


def train(place, output, *more):
    return ["train", "-d", place / "lines.arrow", "-c", place / "micro.yaml", "-o", output, *more]


def test_train_then_evaluate(place, tmp_path):
    done = run(*train(place, tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    assert "every 10th of 30 is held out" in done.stdout
    assert "27 lines to train on, 3 to validate" in done.stdout
    assert "epoch 2, step 14" in done.stdout
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["training"]["epochs"] == 2
    model = tmp_path / "r" / "best.safetensors"
    shown = run("evaluate", model, "-d", place / "lines.arrow", "--split", "all")
    assert shown.returncode == 0, shown.stderr
    assert "CER, plain" in shown.stdout
    assert "95 % interval" in shown.stdout
    result = json.loads(run("evaluate", model, "-d", place / "lines.arrow", "--split", "all", "--json").stdout)
    assert len(result["predictions"]) == result["lines"] == 30
    rate = result["rates"]["CER, plain"]
    assert rate["rate"] == pytest.approx(rate["errors"] / rate["length"])


def test_kill_9_and_resume_end_with_the_very_same_weights(place, tmp_path):
    assert run(*train(place, tmp_path / "whole")).returncode == 0
    command = [
        sys.executable,
        "-c",
        "from spikehtr.cli import main; main()",
        *map(str, train(place, tmp_path / "killed")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "last.safetensors").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run(*train(place, tmp_path / "killed")).returncode == 2  # not begun again by mistake
    resumed = run(*train(place, tmp_path / "killed", "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    whole, again = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == again.keys()
    assert all((whole[name] == again[name]).all() for name in whole)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "-d", "nowhere", "-o", "r"], "nowhere"),
        (["train", "-d", ".", "-o", "r", "--device", "cuda:99x"], "device"),
        (["train", "-d", ".", "-o", "r", "-p", "huge"], "no preset"),
        (["train", "-o", "r"], "--data"),
        (["evaluate", "nowhere.safetensors", "-d", "."], "nowhere.safetensors"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(args, says, tmp_path):
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_nothing_to_resume_and_a_split_that_is_not_there(place, tmp_path):
    done = run(*train(place, tmp_path / "new", "--resume"))
    assert done.returncode == 2
    assert "no checkpoint to resume from" in done.stderr
