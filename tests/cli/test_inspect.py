"""`spikehtr inspect --streams` and `--reduction` as a person meets them."""

import pytest
from cli_help import run
from PIL import Image

from conftest import draw_line, micro
from spikehtr.config import Config
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.weights import save_model


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inspect")
    Image.fromarray(draw_line("some ink", 40)).save(folder / "line.png")
    charset = Charset(tuple("eikmnos "))
    for name, config in (
        ("m", micro()),
        ("whole", micro(reducer__mode="none")),
        ("crnn", Config.preset("cnn-blstm").with_overrides({"model.baseline.scale": 1 / 16})),
    ):
        save_model(folder / f"{name}.safetensors", build(config.model, len(charset)), config, charset)
    return folder


@pytest.mark.parametrize(
    ("args", "file", "says"),
    [
        (["--streams", "-T", 3], "streams.png", "ttfs"),
        (["--streams", "-m", "m.safetensors"], "streams.png", "t = 1..2"),
        (["--reduction", "-m", "m.safetensors"], "reduction.png", "positions"),
        (["-m", "m.safetensors"], "inkcoder.png", "mean gate"),
    ],
)
def test_pictures(place, args, file, says, tmp_path):
    args = [place / part if str(part).endswith(".safetensors") else part for part in args]
    done = run("inspect", place / "line.png", *args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [file]
    with Image.open(tmp_path / file) as image:
        assert image.width > 600


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--streams", "--reduction"], "ask for one of them"),
        (["--reduction"], "--model"),
        (["--reduction", "-m", "whole.safetensors"], "does not reduce"),
        (["--reduction", "-m", "m.safetensors", "-T", "1"], "leave --timesteps out"),
        (["--streams", "-m", "m.safetensors", "-p", "tiny"], "its own settings"),
        (["--streams", "-m", "crnn.safetensors"], "cnn-blstm has no steps"),
        (["--streams", "-p", "kraken"], "kraken has no steps"),
        (["--streams", "-m", "nowhere.safetensors"], "no such file"),
    ],
)
def test_wrong_use_is_explained(place, args, says, tmp_path):
    done = run("inspect", place / "line.png", *args, "-o", tmp_path / "x.png", cwd=place)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
