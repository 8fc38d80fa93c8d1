"""When a file counts as the model it was made from, whatever its format."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_help import WORDS, images, loaded, png, reader
from typer.testing import CliRunner

from spikehtr.cli import app
from spikehtr.export.check_export import too_different
from spikehtr.weights import save_model

NETWORK = {"timesteps": 1, "mixer__blocks": ["QK"]}


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Run the command on a model of this neuron, as if what it wrote held the network of this seed."""

    def call(neuron, seed):
        rows = [{"image": {"bytes": png(image)}, "text": word} for image, word in zip(images(), WORDS, strict=True)]
        (tmp_path / "lines").mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lines" / "lines.parquet")
        model = loaded(neuron=neuron, **NETWORK)
        save_model(tmp_path / "m.safetensors", model.net, model.config, model.charset)
        monkeypatch.setattr("spikehtr.export.program.save", lambda _, path, channels: path.write_bytes(b"a file"))
        monkeypatch.setattr("spikehtr.export.program.read", lambda path: reader(loaded(seed, neuron=neuron, **NETWORK)))
        args = ["torch", tmp_path / "m.safetensors", "--check", tmp_path / "lines", "--split", "all", "--json"]
        done = CliRunner(env={"SPIKEHTR_CACHE": str(tmp_path / "cache")}).invoke(app, ["export", *map(str, args)])
        return done.exit_code, json.loads(done.stdout)["check"]

    return call


@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_the_same_network_passes(check, neuron):
    code, found = check(neuron, seed=0)
    assert (code, found["identical"], found["different"]) == (0, 5, [])
    assert found["confidence_difference"] == 0
    assert (found["identical_in_double"] is None) == (neuron == "gelu")  # without spikes a last digit stays one


@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_another_network_does_not(check, neuron):
    code, found = check(neuron, seed=1)
    assert code == 1
    assert found["identical"] == 0
    assert found["too_different"]
    assert {line["reference"] for line in found["different"]} == set(WORDS)


def test_rounding_excuses_as_much_as_it_changes():
    assert not too_different(0, None)
    assert too_different(1, None)
    assert not too_different(3, 6)
    assert not too_different(9, 6)
    assert too_different(20, 6)
    assert not too_different(4, 0)
    assert too_different(5, 0)
