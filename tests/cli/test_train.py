"""`spikehtr train` and `evaluate` as a person meets them, kill -9 included."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from cli_help import LOADER, SETTINGS, run
from PIL import Image
from safetensors.torch import load_file

from conftest import draw_line
from spikehtr.assets import FONTS
from spikehtr.config import Config
from spikehtr.data.compiling import compile_store
from spikehtr.data.store import LineStore
from spikehtr.data.synth import synthesise
from spikehtr.evaluation.calibration import GRID, Fit
from spikehtr.training.log import read_log
from spikehtr.version import __version__, code_digest, training_digest
from spikehtr.weights import load_model


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
    done = run(*train(place, tmp_path / "r", *LOADER))
    assert done.returncode == 0, done.stderr
    assert "every 5th of 30 is held out" in done.stdout
    assert "24 lines to train on, 6 to validate" in done.stdout
    assert "epoch 2, step 12" in done.stdout
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["training"]["epochs"] == 2
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert {"best.safetensors", "best.md", "data.json", "environment.json", "log.csv", "report.html"} <= names
    made = json.loads((tmp_path / "r" / "environment.json").read_text())
    assert made["command"].startswith("spikehtr train -d")
    page = (tmp_path / "r" / "report.html").read_text()
    assert "Not calibrated: " in page  # six lines say too little
    assert "Learning curves" in page
    assert "Worst validation lines" in page
    assert "24 to train on, 6 to validate" in page
    model = tmp_path / "r" / "best.safetensors"
    shown = run("evaluate", model, "-d", place / "lines.arrow", "--split", "all")
    assert shown.returncode == 0, shown.stderr
    assert "CER, plain" in shown.stdout
    assert "95 % interval" in shown.stdout
    result = json.loads(run("evaluate", model, "-d", place / "lines.arrow", "--split", "all", "--json").stdout)
    assert len(result["predictions"]) == result["lines"] == 30
    rate = result["rates"]["CER, plain"]
    assert rate["rate"] == pytest.approx(rate["errors"] / rate["length"])


def start(*args):
    """The command as a process that can be killed; all on one thread, so that sums have one order."""
    code = "import torch; torch.set_num_threads(1); from spikehtr.cli import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], stdout=subprocess.DEVNULL)


@pytest.fixture
def one_thread():
    """As in `start`, for what is run in this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow  # without processes that load lines: test_learning.py
@pytest.mark.usefixtures("one_thread")
def test_kill_9_and_resume_end_with_the_very_same_weights(place, tmp_path):
    with start(*train(place, tmp_path / "killed", *LOADER)) as killed:
        deadline = time.monotonic() + 120
        while not (tmp_path / "killed" / "last.safetensors").exists() and killed.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.send_signal(signal.SIGKILL)
    assert run(*train(place, tmp_path / "whole", *LOADER)).returncode == 0
    assert run(*train(place, tmp_path / "killed")).returncode == 2  # not begun again by mistake
    begun = json.loads((tmp_path / "killed" / "environment.json").read_text())["command"]
    again = run("train", "-o", tmp_path / "killed", "--resume")  # how it was begun is in its folder
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "killed" / "environment.json").read_text())["command"] == begun
    whole, again = (load_file(tmp_path / name / "last.safetensors") for name in ("whole", "killed"))
    assert whole.keys() == again.keys()
    assert all((whole[name] == again[name]).all() for name in whole)


def test_a_model_file_tells_how_it_was_made(place, tmp_path):
    assert run(*train(place, tmp_path / "r", "--half")).returncode == 0
    whole, small = tmp_path / "r" / "last.safetensors", tmp_path / "r" / "best.safetensors"
    notes = load_model(small).notes
    data = json.loads((tmp_path / "r" / "data.json").read_text())
    assert notes["data"]["digest"] == data["digest"] == LineStore(place / "lines.arrow").digest()
    assert notes["data"]["sources"] == ["made"]
    assert (notes["seed"], notes["code_version"], notes["code_digest"]) == (0, __version__, code_digest())
    assert notes["training_digest"] == training_digest()
    assert f"| code | spikehtr {__version__}, code `{code_digest()}` |" in (tmp_path / "r" / "best.md").read_text()
    assert notes["epochs"] in (1, 2)
    weights = load_file(small)
    assert {str(value.dtype) for value in weights.values()} == {"torch.float16"}
    assert small.stat().st_size < whole.stat().st_size / 4
    card = (tmp_path / "r" / "best.md").read_text()
    assert data["digest"] in card
    assert f"CER {notes['validation_cer']:.2%}" in card
    assert "not calibrated: " in card


def test_a_finished_run_is_calibrated_by_its_validation_lines(place, tmp_path, monkeypatch):
    judged = []

    def fit(characters):
        judged.append(characters)
        return Fit(GRID[40], len(characters.right), 0)

    monkeypatch.setattr("spikehtr.evaluation.evaluation.fit_temperature", fit)
    assert run(*train(place, tmp_path / "r", "--half")).returncode == 0
    assert [len(one.confidences[0]) for one in judged] == [len(GRID)]
    model = load_model(tmp_path / "r" / "best.safetensors")
    assert model.temperature == GRID[40] != 1.0
    assert (model.notes["calibration"]["split"], model.notes["calibration"]["lines"]) == ("validation", 6)
    assert model.notes["data"]["sources"] == ["made"]  # the other notes are still there
    result = json.loads((tmp_path / "r" / "validation" / "evaluation.json").read_text())
    assert result["calibration"]["temperature"] == GRID[40]
    assert f"Temperature {GRID[40]:.3f}" in (tmp_path / "r" / "report.html").read_text()
    assert f"temperature {GRID[40]:.3f} by the validation lines" in (tmp_path / "r" / "best.md").read_text()


@pytest.mark.parametrize(
    ("mode", "says", "characters"),
    [
        ("keep", "4 of 6 training lines hold characters that the model does not know", 7),
        ("extend", "8 characters; added 1: 's' (U+0073)", 8),
        ("replace", "5 characters; added 1: 's' (U+0073); dropped 3: 'b' (U+0062), 'c' (U+0063), 'p' (U+0070)", 5),
    ],
)
def test_fine_tuning_says_what_becomes_of_the_characters(place, tuned, tmp_path, mode, says, characters):
    data = tmp_path / "new"
    data.mkdir()
    for number, word in enumerate(["skin", "kin", "seek", "sine", "ken", "kiss"]):
        Image.fromarray(draw_line(word, 24, number)).save(data / f"{number}.png")
        (data / f"{number}.txt").write_text(word)
    words = ["train", "-d", data, "--from", tuned, "--charset", mode, "-o", tmp_path / "r", "-s", "training.epochs=1"]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert done.stdout.index(says) < done.stdout.index("epoch 1")
    model = load_model(tmp_path / "r" / "best.safetensors")
    assert len(model.charset) - 1 == characters
    assert model.notes["started_from"] == "best.safetensors"
    again = run(*words, "--resume")  # a finished run: nothing left to do, and the same result
    assert again.returncode == 0, again.stderr


def test_fine_tuning_has_a_length_and_a_rate_of_its_own(place, tuned, tmp_path):
    """Not those of the model's own training, which may have gone on for days."""
    words = ["train", "-d", place / "lines.arrow", "--from", tuned, "--max-steps", 1, "--device", "cpu"]
    done = run(*words, "-o", tmp_path / "a")
    assert done.returncode == 0, done.stderr
    assert "fine-tuning: batches of 4, a learning rate of 0.0003, validated after every 4 epochs" in done.stdout
    assert re.search(r"before the first step: validation CER \S+%", done.stdout)
    model = load_model(tmp_path / "a" / "best.safetensors").config
    assert (model.training.epochs, model.training.batch_size, model.training.validate_every) == (60, 4, 4)
    assert (model.training.optimizer, model.training.weight_decay, model.training.hold) == ("adamw", 0.05, 0.0)
    assert "the encoder stays as it is: what it makes of 20 versions of each of the " in done.stdout
    assert re.search(r"best CER \S+% \(before the first step \S+%\)", done.stdout)
    assert model.training.freeze == "encoder"
    assert model.model == load_model(tuned).config.model
    kept, start = (load_model(path).net.encoder for path in (tmp_path / "a" / "best.safetensors", tuned))
    assert all(torch.equal(a, b) for a, b in zip(kept.parameters(), start.parameters(), strict=True))
    changes = ("training.batch_size=3", "training.epochs=7", "training.freeze=nothing")
    done = run(*words, "-o", tmp_path / "b", *(word for change in changes for word in ("-s", change)))
    assert "the encoder stays" not in done.stdout
    assert "batches of 3" in done.stdout
    assert load_model(tmp_path / "b" / "best.safetensors").config.training.epochs == 7


def test_an_encoder_that_was_never_trained_is_not_frozen(place, tmp_path):
    done = run(*train(place, tmp_path / "r", "-s", "training.freeze=encoder"))
    assert done.returncode == 2
    assert "would keep an encoder that was never trained: add --from MODEL" in done.stderr


def test_hand_over_to_another_neuron(place, tuned, tmp_path):
    changes = ("-s", "model.neuron=gelu", "-s", "model.encoder.dual_resolution=false", "-s", "training.epochs=1")
    done = run("train", "-d", place / "lines.arrow", "-o", tmp_path / "r", "--from", tuned, *changes)
    assert done.returncode == 0, done.stderr
    assert "of the network's weights are those of the start; fresh: none" in done.stdout
    model = load_model(tmp_path / "r" / "best.safetensors")
    assert (model.config.model.neuron, model.notes["started_from"]) == ("gelu", "best.safetensors")


@pytest.fixture(scope="module")
def tuned(place):
    """A model to start from, trained in a way of its own."""
    changes = ("optimizer=muon", "weight_decay=0.2", "hold=0.5")
    more = [word for change in changes for word in ("-s", f"training.{change}")]
    assert run(*train(place, place / "start", *more)).returncode == 0
    return place / "start" / "best.safetensors"


@pytest.mark.slow
def test_a_run_by_the_clock(place, tmp_path):
    done = run(*train(place, tmp_path / "r", "--max-minutes", "0.05"))
    assert done.returncode == 0, done.stderr
    assert "the run takes 0.05 minutes" in done.stdout
    log = read_log(tmp_path / "r")
    assert log[-1]["seconds"] >= 3  # how the rate falls meanwhile: tests/training/test_loop.py
    assert run("train", "-o", tmp_path / "r", "--resume").returncode == 0
    assert read_log(tmp_path / "r") == log  # its time was over


def test_validation_characters_that_training_never_shows(place, tmp_path):
    for split, word in (("train", "ink"), ("train", "kin"), ("validation", "pink")):
        folder = tmp_path / "data" / split
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw_line(word, 24)).save(folder / f"{word}.png")
        (folder / f"{word}.txt").write_text(word)
    command = ["train", "-d", tmp_path / "data", "-c", place / "micro.yaml", "-o", tmp_path / "r"]
    done = run(*command)
    assert done.returncode == 2
    assert "1 validation line holds characters that training never shows: 'p' (U+0070)" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert run(*command, "--allow-unknown").returncode == 0


def test_resuming_with_another_configuration(place, tmp_path):
    assert run(*train(place, tmp_path / "r")).returncode == 0
    done = run(*train(place, tmp_path / "r", "--resume", "-s", "training.seed=1"))
    assert done.returncode == 2
    assert "was begun with other settings" in done.stderr
    done = run("train", "-o", tmp_path / "r", "--resume", "-s", "training.seed=1", "--half")
    assert done.returncode == 2
    assert "goes on as the run was begun: leave out --set, --half" in done.stderr
    (tmp_path / "r" / "job.json").unlink()
    done = run("train", "-o", tmp_path / "r", "--resume")
    assert done.returncode == 2
    assert "repeat the command that began it" in done.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "-d", "nowhere", "-o", "r"], "nowhere"),
        (["train", "-d", ".", "-o", "r", "--device", "cuda:99x"], "device"),
        (["train", "-d", ".", "-o", "r", "-p", "huge"], "no preset"),
        (["train", "-o", "r"], "--data"),
        (["train", "-o", "r", "--resume"], "r holds no run to go on with"),
        (["train", "-d", ".", "-o", "a-file/r"], "a-file/r: cannot be written"),
        (["train", "-d", ".", "-o", "r", "--device", "cuda"], "a GPU was asked for and none is here"),
        (["train", "-d", ".", "-o", "r", "--max-steps", "9", "--max-minutes", "1"], "give one of them"),
        (["train", "-d", ".", "-o", "r", "--charset", "keep"], "--from MODEL"),
        (["train", "-d", ".", "-o", "r", "--from", "x.safetensors", "-p", "tiny"], "without -p or -c"),
        (["train", "-d", ".", "-o", "r", "--from", "x.safetensors"], "x.safetensors: no such file"),
        (["evaluate", "nowhere.safetensors", "-d", "."], "nowhere.safetensors"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(args, says, tmp_path):
    if "cuda" in args and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    (tmp_path / "a-file").touch()
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_to_resume_and_a_split_that_is_not_there(place, tmp_path):
    done = run(*train(place, tmp_path / "new", "--resume"))
    assert done.returncode == 2
    assert "no checkpoint to resume from" in done.stderr


def test_lines_without_marks_can_be_evaluated(place, tmp_path):
    assert run(*train(place, tmp_path / "r")).returncode == 0
    model, data = tmp_path / "r" / "best.safetensors", place / "lines.arrow"
    wrong = run("evaluate", model, "-d", data)
    assert wrong.returncode == 2
    assert "--split validation for those that `train` holds out of it" in wrong.stderr
    held = run("evaluate", model, "-d", data, "--split", "validation", "--json")
    assert "every 5th of 30 is held out" in held.stderr
    assert json.loads(held.stdout)["lines"] == 6
    everything = run("evaluate", model, "-d", data, "--split", "all", "--json")
    assert "was trained on lines that are among these" in everything.stderr
