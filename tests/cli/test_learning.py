"""The whole promise at once: a small spiking network learns to read drawn lines within a minute on a CPU, and the
same training killed at three random moments and resumed ends with the very same weights."""

import json
import random
import signal
import subprocess
import sys
import time
from itertools import permutations

import pytest
from cli_help import run
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from conftest import MICRO, draw_line
from spikehtr.config import Config

SAVE_EVERY = 15
SETTINGS = MICRO | {
    "model.height": 24,
    "model.timesteps": 1,
    "model.encoder.bypass_init": 1.0,
    "model.encoder.expansion": 1.0,
    "model.mixer.blocks": ["LK"],
    "model.mixer.dropout": 0.03,  # so that the state of random numbers matters
    "model.mixer.drop_path": 0.0,
    "data.workers": 0,
    "data.max_width": 128,
    "data.augment.probability": 0.0,
    "training.batch_size": 8,
    "training.epochs": 3,
    "training.warmup_epochs": 0.5,
    "training.learning_rate": 8e-3,
    "training.ema_decay": 0.98,
}


def write(folder, words):
    folder.mkdir()
    for number, word in enumerate(words):
        Image.fromarray(draw_line(word, 24, number)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(word)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    words = ["".join(letters) for count in (2, 3, 4) for letters in permutations("amosx", count)]
    random.Random(0).shuffle(words)
    # A letter twice takes a blank between, so frames enough: m has nearly three of its own, the others not two.
    words = [word.replace("m", "mm") if number % 2 else word for number, word in enumerate(words)]
    write(folder / "seen", 3 * words[:150])
    write(folder / "unseen", 2 * words[150:])  # 50 other words
    Config().with_overrides(SETTINGS).save(folder / "small.yaml")
    return folder


def start(place, name, *more):
    words = ["train", "-d", place / "seen", "-c", place / "small.yaml", "-o", place / name]
    words += ["--save-every", SAVE_EVERY, *more]
    code = "import torch; torch.set_num_threads(1); from spikehtr.cli import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], stdout=subprocess.DEVNULL)


def steps_done(folder):
    """The step of the newest checkpoint."""
    try:
        with safe_open(str(folder / "last.safetensors"), "pt") as file:
            return json.loads(file.metadata()["state"])["step"]
    except (FileNotFoundError, RuntimeError):  # not there yet, or just being put in place
        return 0


def again(folder):
    """What continues a run, if it has got as far as a checkpoint."""
    return ["--resume"] if (folder / "last.safetensors").exists() or (folder / "previous.safetensors").exists() else []


@pytest.mark.slow  # learning: tests/model/test_overfit.py; resuming: tests/training/test_loop.py
def test_a_small_network_learns_to_read_and_three_kills_change_nothing(place):
    with start(place, "whole") as whole:
        deadline = time.monotonic() + 600
        for at in sorted(random.SystemRandom().sample(range(1, 135), 3)):
            with start(place, "killed", *again(place / "killed")) as killed:
                while steps_done(place / "killed") < at - at % SAVE_EVERY and killed.poll() is None:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                time.sleep(random.SystemRandom().random())  # somewhere within the steps that follow
                killed.send_signal(signal.SIGKILL)
        with start(place, "killed", *again(place / "killed")) as last:
            assert last.wait(timeout=600) == 0
        assert whole.wait(timeout=600) == 0
    a, b = (load_file(place / name / "last.safetensors") for name in ("whole", "killed"))
    assert a.keys() == b.keys()
    assert all((a[name] == b[name]).all() for name in a)
    done = run("evaluate", place / "whole" / "best.safetensors", "-d", place / "unseen", "--split", "all", "--json")
    read = json.loads(done.stdout)
    assert read["rates"]["CER, plain"]["rate"] < 0.10
    doubled = [line["text"] == line["reference"] for line in read["predictions"] if "mm" in line["reference"]]
    assert len(doubled) == 38
    assert sum(doubled) > len(doubled) / 2
