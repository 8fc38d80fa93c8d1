"""What stops `train` is an error of `data check`: the same words, the same exit code."""

import json

import numpy as np
import pytest
import torch
from cli_help import run
from PIL import Image

from conftest import MICRO, draw_line
from spikehtr.config import Config
from spikehtr.data.compiling import compile_store
from spikehtr.data.store import encode
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.text import Charset
from spikehtr.weights import save_model

SETTINGS = MICRO | {"model.height": 24, "model.timesteps": 1, "data.workers": 0, "data.max_width": 96}
SETTINGS |= {"training.batch_size": 4, "training.epochs": 1, "training.warmup_epochs": 0}
WORDS = ["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice", "pic", "nip", "bice", "kine"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Config().with_overrides(SETTINGS).save(tmp_path / "micro.yaml")
    return tmp_path


def add(folder, words=WORDS):
    folder.mkdir(parents=True, exist_ok=True)
    for number, word in enumerate(words):
        Image.fromarray(draw_line(word, seed=number)).save(folder / f"{number:02d}.png")
        (folder / f"{number:02d}.gt.txt").write_text(word)
    return folder


def store(place, **how):
    return compile_store([add(place / "lines")], place / "lines.arrow", **{"height": 24} | how)[0]


def model(place, characters):
    config, charset = Config().with_overrides(SETTINGS), Charset.from_texts([characters])
    torch.manual_seed(0)
    save_model(place / "old.safetensors", SpikeHTR(config.model, len(charset)), config, charset)


def nowhere(place):
    return ["nowhere"]


def something_else(place):
    (place / "notes").mkdir()
    (place / "notes" / "README.md").write_text("no handwriting")
    return ["notes"]


def nothing_there(place):
    (place / "lines").mkdir()
    return ["page:lines"]


def an_empty_folder(place):
    (place / "lines").mkdir()
    return ["lines"]


def images_missing(place):
    for image in add(place / "lines").glob("*.png"):
        image.unlink()
    return ["folder:lines"]


def images_broken(place):
    for image in add(place / "lines").glob("*.png"):
        image.write_bytes(image.read_bytes()[:60])
    return ["lines"]


def nothing_to_train_on(place):
    add(place / "lines" / "test")
    add(place / "lines" / "validation")
    return ["lines"]


def all_too_narrow(place):
    for image in add(place / "lines", ["far too many letters"] * 3).glob("*.png"):
        Image.fromarray(np.full((24, 24), 200, np.uint8)).save(image)
    return ["lines"]


def unknown_in_validation(place):
    add(place / "lines" / "train")
    add(place / "lines" / "validation", ["pie", "snow ☃"])
    return ["lines"]


def unknown_in_what_is_held_out(place):
    add(place / "lines", [*WORDS[:9], "quiz", *WORDS[9:], *WORDS])  # every fifth is held out, the tenth too
    return ["lines"]


def unknown_because_its_line_is_too_narrow(place):
    add(place / "lines" / "train", [*WORDS, "quizquizquizquiz"])
    Image.fromarray(np.full((24, 24), 200, np.uint8)).save(place / "lines" / "train" / "12.png")
    add(place / "lines" / "validation", ["quiz"])
    return ["lines"]


def damaged_store(place):
    made = store(place)
    content = bytearray(made.path.read_bytes())
    content[content.find(encode(made.line(2))[20:60])] ^= 0xFF
    made.path.write_bytes(content)
    return ["lines.arrow"]


def cut_store(place):
    made = store(place)
    made.path.write_bytes(made.path.read_bytes()[:1000])
    return ["lines.arrow"]


def store_for_another_width(place):
    store(place, max_width=64)
    return ["lines.arrow"]


def store_for_another_width_and_height(place):
    store(place, max_width=64, height=32)
    return ["lines.arrow"]


def straightened_store(place):
    store(place, straighten=True)
    return ["lines.arrow"]


def nothing_that_the_model_can_write(place):
    add(place / "lines", ["uvw"])
    model(place, "abc")
    return ["lines", "--from", "old.safetensors", "--charset", "keep"]


def validation_that_the_model_cannot_write(place):
    add(place / "lines" / "train", ["abc", "cab"])
    add(place / "lines" / "validation", ["abd"])
    model(place, "abc")
    return ["lines", "--from", "old.safetensors"]


def an_unknown_charset(place):
    add(place / "lines")
    return ["lines", "--charset", "keep"]


BAD = (
    nowhere,
    something_else,
    nothing_there,
    an_empty_folder,
    images_missing,
    images_broken,
    nothing_to_train_on,
    all_too_narrow,
    unknown_in_validation,
    unknown_in_what_is_held_out,
    unknown_because_its_line_is_too_narrow,
    damaged_store,
    cut_store,
    store_for_another_width,
    store_for_another_width_and_height,
    straightened_store,
    nothing_that_the_model_can_write,
    validation_that_the_model_cannot_write,
    an_unknown_charset,
)


def both(source, *options):
    """`train` and `data check` on the same, with the same settings."""
    settings = () if "--from" in options else ("-c", "micro.yaml")
    trained = run("train", "-d", source, "-o", "run", "--worst", 0, "--device", "cpu", *settings, *options)
    return trained, run("data", "check", source, *settings, *options)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
def test_what_stops_train_is_an_error_of_check_in_the_same_words(place, bad):
    trained, checked = both(*bad(place))
    assert trained.returncode == checked.returncode == 2
    assert trained.stderr.startswith("spikehtr: ")
    assert checked.stderr == trained.stderr


def test_what_does_not_stop_train_is_no_stop_for_check(place):
    add(place / "lines")
    trained, checked = both("lines")
    assert (trained.returncode, checked.returncode) == (0, 0), trained.stderr + checked.stdout


def test_lines_that_train_leaves_out_are_to_mend_but_stop_nothing(place):
    add(place / "lines")
    Image.fromarray(np.full((24, 8), 200, np.uint8)).save(place / "lines" / "03.png")
    (place / "lines" / "04.png").write_bytes(b"broken")
    trained, checked = both("lines")
    assert (trained.returncode, checked.returncode) == (0, 1), trained.stderr + checked.stderr
    assert "too narrow: 1 line" in checked.stdout
    assert "unreadable image: 1 line" in checked.stdout


def test_characters_that_are_allowed_stop_neither(place):
    trained, checked = both(*unknown_in_validation(place), "--allow-unknown")
    assert (trained.returncode, checked.returncode) == (0, 0), trained.stderr + checked.stderr
    assert "warning: unknown character: 1 line" in checked.stdout


def test_the_lines_that_stop_train_are_listed(place):
    unknown_in_what_is_held_out(place)
    add(place / "lines" / "test", ["zoo"])
    found = json.loads(run("data", "check", "lines", "-c", "micro.yaml", "--json").stdout)
    listed = {p["where"].split("/")[-1]: (p["severity"], p["message"]) for p in found["problems"]}
    assert listed["09.png"][0] == "error"
    assert "U+0071" in listed["09.png"][1]
    assert listed["00.png"][0] == "warning"  # nothing is chosen by a test line
    assert found["stops_training"].startswith("1 validation line holds characters that training never shows")
    assert found["ok"] is False
