"""The whole promise at once: a small spiking network learns to read drawn lines within a minute or two on a CPU, and
the same training killed at three random moments and resumed ends with the very same weights."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from safetensors import safe_open
from safetensors.torch import load_file
from test_cli import run

from conftest import MICRO
from spikehtr.assets import FONTS
from spikehtr.config import Config
from spikehtr.data.synth import synthesise

SETTINGS = MICRO | {
    "model.height": 24,
    "model.timesteps": 1,
    "model.encoder.bypass_init": 1.0,
    "model.mixer.dropout": 0.03,
    "model.mixer.drop_path": 0.0,
    "data.workers": 0,
    "data.max_width": 128,
    "data.augment.probability": 0.0,
    "training.batch_size": 8,
    "training.epochs": 3,
    "training.warmup_epochs": 0.5,
    "training.learning_rate": 6e-3,
    "training.ema_decay": 0.99,
}


def made_up_words(seed, count):
    rng = random.Random(seed)
    return ["".join(rng.choices("einost", k=rng.randint(2, 5))) for _ in range(count)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learning")
    (folder / "fonts").mkdir()
    shutil.copy(FONTS / "Caveat-Regular.ttf", folder / "fonts")
    synthesise(made_up_words(0, 2000), folder / "fonts", 2000, folder / "seen", height=24)
    synthesise(made_up_words(1, 150), folder / "fonts", 150, folder / "unseen", height=24, seed=1)
    Config().with_overrides(SETTINGS).save(folder / "small.yaml")
    return folder


def start(place, name, *more):
    words = ["train", "-d", place / "seen", "-c", place / "small.yaml", "-o", place / name, "--save-every", "40", *more]
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


def test_a_small_network_learns_to_read_and_three_kills_change_nothing(place):
    with start(place, "whole") as whole:
        deadline = time.monotonic() + 600
        for at in sorted(random.SystemRandom().sample(range(1, 500), 3)):
            with start(place, "killed", *again(place / "killed")) as killed:
                while steps_done(place / "killed") < at - at % 40 and killed.poll() is None:
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
    assert json.loads(done.stdout)["rates"]["CER, plain"]["rate"] < 0.10
