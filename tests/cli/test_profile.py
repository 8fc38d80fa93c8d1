"""`spikehtr profile` of a trained model, as a person meets it."""

import json

import pytest
from cli_help import run
from PIL import Image

from conftest import draw_line, micro
from spikehtr.config import Config
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.weights import load_model, save_model, update_notes

WORDS = ("ink", "pen and ink", "nib", "paper", "quill")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Five lines and a network of 32 channels that never was trained."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "lines").mkdir()
    for number, word in enumerate(WORDS):
        Image.fromarray(draw_line(word, 32, number)).save(folder / "lines" / f"{number}.png")
        (folder / "lines" / f"{number}.txt").write_text(word)
    save(folder / "lif.safetensors", micro())
    save(folder / "gelu.safetensors", micro(neuron="gelu"))
    save(folder / "read.safetensors", micro(encoder__neurons="read", mixer__neurons="read"))
    save(folder / "crnn.safetensors", Config.preset("cnn-blstm").with_overrides({"model.baseline.scale": 1 / 8}))
    return folder


def save(path, config):
    charset = Charset.from_texts(WORDS)
    config = config.with_overrides({"data.workers": 0})
    save_model(path, build(config.model, len(charset)), config, charset)


def test_a_whole_profile(place, tmp_path):
    args = ("profile", place / "lif.safetensors", "-d", place / "lines", "--split", "all", "-n", 4)
    done = run(*args, "-o", tmp_path / "out", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    for told in ("2D encoder", "1D mixer", "Default", "Pure-spike, binary only", "Ideal", "0.0379", "INT8", "report:"):
        assert told in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "profile.json", "modules.tsv", "layers.tsv", "firing.png", "energy.png"}
    found = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert found["lines"] == 4
    assert sum(m["share"] for m in found["firing"]["modules"]) == pytest.approx(1)
    assert [step["timesteps"] for step in found["timesteps"]] == [1, 2, 4]
    assert found["energy"]["Default"]["dense_macs"] == pytest.approx(sum(row["macs"] for row in found["layers"]) / 4)
    assert found["energy"]["Ideal"]["ratio"] < found["energy"]["Default"]["ratio"] < 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("data:image/png") == 2
    for told in ("leaves out", "spikehtr profile", "0.642", "0.9665", "one pass"):
        assert told in page


def test_json(place):
    args = ("profile", place / "lif.safetensors", "-d", place / "lines", "--split", "all", "-n", 1)
    found = json.loads(run(*args, "--json", "--pj-byte", 0).stdout)
    assert all(total["memory"] == 0 for total in found["totals"])


def test_where_there_is_no_shortcut_none_is_switched_off(place):
    args = ("profile", place / "read.safetensors", "-d", place / "lines", "--split", "all", "-n", 1)
    found = json.loads(run(*args, "--json").stdout)
    assert set(found["energy"]) == {"Default", "Ideal"}
    modules = {m["name"] for m in found["firing"]["modules"]}
    assert {name for name in modules if name.startswith("Enc")} == {f"Enc-S{stage}-B0-PW1" for stage in (1, 2, 3)}


def test_calibration_has_no_part_in_it(place, tmp_path):
    """A file without any notes is measured as one that is calibrated: what fires does not hang on confidences."""
    bare, calibrated = place / "lif.safetensors", tmp_path / "lif.safetensors"
    calibrated.write_bytes(bare.read_bytes())
    update_notes(calibrated, {"temperature": 2.5})
    assert load_model(bare).notes == {}
    done = [run("profile", m, "-d", place / "lines", "--split", "all", "-n", 2, "--json") for m in (bare, calibrated)]
    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 2
    assert json.loads(done[0].stdout) == json.loads(done[1].stdout)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["lif.safetensors"], "--data"),
        (["lif.safetensors", "-d", "lines", "--counts"], "its own settings"),
        (["lif.safetensors", "-d", "lines"], "no line of split 'test'"),
        (["gelu.safetensors", "-d", "lines"], "no spiking neurons"),
        (["crnn.safetensors", "-d", "lines"], "no spiking neurons"),
        (["nowhere.safetensors", "-d", "lines"], "no such file"),
        ([], "--counts"),
        (["--counts", "-o", "out", "-d", "nowhere", "--device", "cuda"], "leave out --data, --output, --device"),
        (["--counts", "-n", "2", "--pj-byte", "0"], "leave out --lines, --pj-byte"),
    ],
)
def test_wrong_use_is_explained(place, args, says):
    done = run("profile", *args, cwd=place)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
