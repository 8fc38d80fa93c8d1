"""`spikehtr export` as a person meets it. What `onnx` and `torch` write is tested in tests/export, by the command."""

import io
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cli_help import run as command
from PIL import Image

from conftest import draw_line, micro
from spikehtr.config import Config
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.weights import save_model

CHARSET = Charset.from_texts(["ink pen"])


def write_model(path, config):
    torch.manual_seed(0)
    save_model(path, build(config.model, len(CHARSET)), config, CHARSET)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    write_model(folder / "m.safetensors", micro(timesteps=1).with_overrides({"data.max_width": 96}))
    write_model(folder / "gelu.safetensors", micro(timesteps=1, neuron="gelu"))
    baseline = Config.preset("cnn-blstm").with_overrides({"model.baseline.scale": 0.05, "model.height": 32})
    write_model(folder / "blstm.safetensors", baseline)
    (folder / "noise.safetensors").write_bytes(bytes(range(256)))
    (folder / "lines").mkdir()
    rows = []
    for number, word in enumerate(["ink", "pen"]):
        png = io.BytesIO()
        Image.fromarray(draw_line(word, seed=number)).save(png, "PNG")
        rows.append({"image": {"bytes": png.getvalue()}, "text": word, "split": "test"})
    pq.write_table(pa.Table.from_pylist(rows), folder / "lines" / "lines.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPIKEHTR_CACHE", str(folder / "cache"))
        patch.chdir(folder)
        yield folder


@pytest.fixture
def run(place):
    """The command where `place` is: its exit code, output and messages."""

    def call(*args):
        done = command("export", *args)
        return done.returncode, done.stdout, done.stderr

    return call


def test_nir_writes_two_files_and_checks_every_spike(run, place):
    pytest.importorskip("nir", reason="the extra `export` is not installed")
    code, out, err = run("nir", "m.safetensors", "--check", "lines")
    assert (code, err) == (0, "")
    assert "wrote m.nir" in out
    assert "values of 24 layers of neurons differ" in out
    assert "same text in 2 of 2 lines" in out
    code, out, _ = run("nir", "m.safetensors", "-o", "other.nir", "--width", 64, "--check", "lines", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["check"]["different"] == 0
    assert 0 < told["check"]["spikes"] < told["check"]["values"]
    assert told["check"]["neurons"] == 24
    assert json.loads((place / told["manifest"]).read_text())["width"] == 64


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["abacus", "m.safetensors"], "no export called 'abacus': there are onnx, torch, nir"),
        (["torch", "nowhere.safetensors"], "nowhere.safetensors: no such file"),
        (["torch", "lines"], "lines: a folder, not a model file"),
        (["torch", "noise.safetensors"], "noise.safetensors: damaged, or not a model file"),
        (["torch", "m.safetensors", "-o", "nowhere/m.pt2"], "nowhere/m.pt2: the folder nowhere does not exist"),
        (["torch", "m.safetensors", "-o", "m.onnx"], "m.onnx: this writes .pt2 files"),
        (["torch", "m.safetensors", "--channels", "2"], "--channels is 1 (grey) or 3"),
        (["torch", "m.safetensors", "--check", "nowhere"], "no such file or folder: nowhere"),
        (["torch", "m.safetensors", "--check", "lines", "--split", "train"], "no line of split 'train'"),
        (["onnx", "blstm.safetensors", "--fp64"], "onnxruntime has no LSTM in fp64"),
        (["nir", "blstm.safetensors"], "nothing in this one fires: it is a cnn-blstm"),
        (["nir", "gelu.safetensors"], "nothing in this one fires: its neuron is GELU"),
        (["nir", "m.safetensors", "--width", "30"], "--width must be a multiple of 4"),
        (["nir", "m.safetensors", "-o", "lines"], "lines: is a folder"),
    ],
)
def test_wrong_use_is_explained_in_a_line_and_exits_with_2(run, place, args, says):
    for package in {"onnx": ["onnx", "onnxscript", "onnxruntime"], "nir": ["nir"]}.get(args[0], []):
        pytest.importorskip(package, reason="the extra `export` is not installed")
    before = set(place.iterdir())
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert says in err
    assert err.startswith("spikehtr: ")
    assert err.count("\n") == 1
    assert {path for path in set(place.iterdir()) - before if path.name != "cache"} == set()


@pytest.mark.parametrize("kind", ["onnx", "nir"])
def test_the_extra_is_named_where_it_is_missing(run, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, kind, None)  # what an import finds where a package is not installed
    code, _, err = run(kind, "m.safetensors")
    assert code == 2
    assert err == f"spikehtr: {kind} is not installed: pip install 'spikehtr[export]'\n"


def test_help_names_the_kinds(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(kind in out for kind in ("onnx", "torch", "nir"))
