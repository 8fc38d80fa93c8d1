import pytest
import torch
from safetensors.torch import save_file

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.errors import SpikeHTRError
from spikehtr.text import Charset
from spikehtr.weights import load_model, save_model

CHARSET = Charset.from_texts(["abç é\u0301"])


def build():
    torch.manual_seed(0)
    config = micro(timesteps=1, entry="ttfs")
    return SpikeHTR(config.model, len(CHARSET)).eval(), config


def test_a_file_holds_all_that_rebuilds_the_network(tmp_path):
    net, config = build()
    save_model(tmp_path / "m.safetensors", net, config, CHARSET, {"scores": {"cer": 0.05}, "seed": 7})
    loaded = load_model(tmp_path / "m.safetensors")
    images = torch.rand(2, 1, 32, 50)
    assert torch.equal(loaded.net(images).logits, net(images).logits)
    assert loaded.config == config
    assert loaded.charset == CHARSET
    assert loaded.notes == {"scores": {"cer": 0.05}, "seed": 7}
    assert not loaded.net.training
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_half_files_are_half_the_size(tmp_path):
    net, config = build()
    save_model(tmp_path / "full.safetensors", net, config, CHARSET)
    save_model(tmp_path / "half.safetensors", net, config, CHARSET, half=True)
    full, half = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("full", "half"))
    assert half < 0.6 * full
    loaded = load_model(tmp_path / "half.safetensors").net
    assert all(p.dtype == torch.float32 for p in loaded.parameters())
    assert all(torch.allclose(a, b, atol=1e-3) for a, b in zip(loaded.parameters(), net.parameters(), strict=True))


def test_a_charset_that_does_not_fit_is_refused(tmp_path):
    net, config = build()
    with pytest.raises(SpikeHTRError, match="does not fit"):
        save_model(tmp_path / "m.safetensors", net, config, Charset(("a",)))
    assert not list(tmp_path.iterdir())


def test_what_is_no_model_file_is_named(tmp_path):
    net, config = build()
    good = tmp_path / "good.safetensors"
    save_model(good, net, config, CHARSET)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "cut").write_bytes(good.read_bytes()[:-100])
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 10)
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    for name, says in [("nowhere", "no such file"), ("empty", "damaged"), ("cut", "damaged"), ("noise", "damaged")]:
        with pytest.raises(SpikeHTRError, match=rf"{name}: .*{says}"):
            load_model(tmp_path / name)
    with pytest.raises(SpikeHTRError, match="not a Spike-HTR model"):
        load_model(tmp_path / "other")
