"""`spikehtr train --arch`: the baselines as a person meets them."""

import json

import pytest
from cli_help import run, start

from spikehtr.assets import FONTS, SAMPLE_LINE
from spikehtr.config import Config
from spikehtr.data.synth import synthesise
from spikehtr.weights import load_model

SMALL = [
    *("-s", "model.baseline.scale=0.125", "-s", "model.height=32", "-s", "data.max_width=96", "-s", "data.workers=0"),
    *("-s", "training.batch_size=8", "-s", "training.epochs=2", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"], FONTS, 24, folder, height=32)
    return folder


@pytest.mark.slow  # without a shell: tests/baselines/test_training.py
def test_train_a_baseline_with_the_reducer_and_evaluate_it(lines, tmp_path):
    done = run("train", "-d", lines, "--arch", "cnn-blstm", "--reducer", "-o", tmp_path / "r", *SMALL)
    assert done.returncode == 0, done.stderr
    model = tmp_path / "r" / "best.safetensors"
    config = load_model(model).config
    assert config.model.arch == "cnn-blstm"
    assert config.model.reducer.mode == "keep-and-merge"
    assert config.training.aux_weight == Config().training.aux_weight
    assert config.training.learning_rate == Config.preset("cnn-blstm").training.learning_rate
    assert "cnn-blstm with the reducer (keep-and-merge), a baseline" in (tmp_path / "r" / "best.md").read_text()
    shown = run("evaluate", model, "-d", lines, "--split", "all", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["lines"] == 24


@pytest.mark.slow
def test_two_processes_train_a_network_with_batch_normalisation(lines, tmp_path):
    process = start(
        "spikehtr", "train", "-d", lines, "--arch", "retsinas", "-o", tmp_path / "r", *SMALL, "--devices", 2
    )
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert load_model(tmp_path / "r" / "best.safetensors").net.stages[0][0].norm1.num_batches_tracked in (3, 6)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "-d", ".", "-o", "r", "--arch", "pylaia"], "pylaia"),
        (["train", "-d", ".", "-o", "r", "--arch", "kraken", "-p", "tiny"], "--arch kraken has its own settings"),
        (["train", "-d", ".", "-o", "r", "--arch", "kraken", "-c", "x.yaml"], "without -p or -c"),
        (["train", "-d", ".", "-o", "r", "--arch", "kraken", "--from", "m.safetensors"], "leave --arch out"),
        (
            ["train", "-d", ".", "-o", "r", "--arch", "spike-htr", "-p", "kraken"],
            "kraken is for kraken, not spike-htr: leave --arch out",
        ),
        (["train", "-d", ".", "-o", "r", "--arch", "retsinas", "-s", "model.height=100"], "multiple of 16"),
        (["inspect", str(SAMPLE_LINE), "-p", "retsinas"], "retsinas has no steps"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(args, says, tmp_path):
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_profile_counts_a_baseline():
    shown = run("profile", "--counts", "-p", "kraken").stdout
    assert "120 x 1920 px" in shown
    assert "4.02 M" in shown
