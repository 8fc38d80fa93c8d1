import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from conftest import micro
from spikehtr import Config, SpikeHTR
from spikehtr.config import ConfigError
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.recognizer import Recognizer
from spikehtr.registry import build as build_baseline
from spikehtr.text import Charset
from spikehtr.weights import Loaded, load_header, load_model, read_with, save_model, update_notes

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


def test_the_same_weights_read_under_other_settings_of_reading():
    net, config = build()
    loaded = Loaded(net, config, CHARSET, {"seed": 7})
    images = torch.rand(2, 1, 32, 50)
    whole = read_with(loaded, ["model.reducer.mode=none", "data.max_width=96"])
    assert (whole.config.data.max_width, whole.notes, whole.charset) == (96, {"seed": 7}, CHARSET)
    assert whole.net(images).keep_ratio.tolist() == [1.0, 1.0]
    assert not whole.net.training
    for now, then in zip(whole.net.parameters(), net.parameters(), strict=True):
        assert torch.equal(now, then)
    free = ["model.reducer.gamma=0", "model.reducer.eta=9"]  # so that tau alone decides
    kept = [read_with(loaded, [*free, f"model.reducer.tau={tau}"]).net(images) for tau in (0.0, 1.0)]
    assert (kept[0].keep_ratio < kept[1].keep_ratio).all()
    assert read_with(loaded, ["data.max_width=96"]).net is net  # nothing to build
    rebuilt = read_with(loaded, ["model.reducer.preview_gradient=true"]).net
    assert rebuilt is not net
    assert torch.equal(rebuilt(images).logits, net(images).logits)


@pytest.mark.parametrize("change", ["model.timesteps=2", "model.dim=64", "model.neuron=gelu", "training.seed=1"])
def test_what_was_learned_with_stays(change):
    net, config = build()
    with pytest.raises(SpikeHTRError, match="a trained network cannot be changed"):
        read_with(Loaded(net, config, CHARSET, {}), [change])


def test_a_baseline_without_a_preview_cannot_read_with_one():
    config = Config.preset("cnn-blstm")
    net = build_baseline(config.model, len(CHARSET))
    preview = config.with_overrides(["training.aux_weight=0.2"])  # of a head that was not there
    with pytest.raises(SpikeHTRError, match="it has no weights to read with keep-and-merge"):
        read_with(Loaded(net, preview, CHARSET, {}), ["model.reducer.mode=keep-and-merge"])
    with_one = config.with_reducer()
    loaded = Loaded(build_baseline(with_one.model, len(CHARSET)), with_one, CHARSET, {})
    assert read_with(loaded, ["model.reducer.mode=none"]).net.config.reducer.mode == "none"


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
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "cut.safetensors").write_bytes(good.read_bytes()[:-100])
    (tmp_path / "noise.SAFETENSORS").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "report.html").write_text("<!doctype html>")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    for name, says in [
        ("nowhere", "no such file"),
        ("empty.safetensors", "damaged"),
        ("cut.safetensors", "damaged"),
        ("noise.SAFETENSORS", "damaged"),
        ("report.html", r"not a model file, whose name ends in \.safetensors"),
    ]:
        with pytest.raises(SpikeHTRError, match=rf"{name}: .*{says}"):
            load_model(tmp_path / name)
    with pytest.raises(SpikeHTRError, match="not a Spike-HTR model"):
        load_model(tmp_path / "other")


@pytest.mark.parametrize("half", [False, True])
def test_notes_can_be_added_and_the_weights_stay_bit_for_bit(tmp_path, half):
    net, config = build()
    path = tmp_path / "m.safetensors"
    save_model(path, net, config, CHARSET, {"seed": 7, "temperature": 3.0}, half=half)
    (tmp_path / "link").symlink_to(path)

    def content():
        with safe_open(str(path), "np") as file:
            header = file.metadata()
            tensors = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        data = path.read_bytes()
        return header, tensors, data[8 + int.from_bytes(data[:8], "little") :]

    before, weights, raw = content()
    update_notes(tmp_path / "link", {"temperature": 1.25, "calibration": {"split": "validation", "of": "é"}})
    after, same, same_raw = content()
    assert weights
    assert (same, same_raw) == (weights, raw)
    notes = json.loads(after.pop("notes"))
    assert notes == {"seed": 7, "temperature": 1.25, "calibration": {"split": "validation", "of": "é"}}
    before.pop("notes")
    assert after == before
    assert load_model(path).temperature == Recognizer.load(path).temperature == 1.25
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "m.safetensors"]


def test_a_file_without_notes_has_none_and_can_get_some(tmp_path):
    net, config = build()
    path, bare = tmp_path / "m.safetensors", tmp_path / "bare.safetensors"
    save_model(path, net, config, CHARSET, {"seed": 7})
    with safe_open(str(path), "pt") as file:
        header = {key: value for key, value in file.metadata().items() if key != "notes"}
        save_file({name: file.get_tensor(name) for name in file.keys()}, bare, header)  # noqa: SIM118
    assert load_model(bare).notes == {}
    update_notes(bare, {"temperature": 2.0})
    assert load_model(bare).temperature == 2.0


def test_notes_are_added_to_model_files_only(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    before = (tmp_path / "other").read_bytes()
    for name, says in (("other", "not a Spike-HTR model"), ("nowhere", "no such file"), (".", "a folder")):
        with pytest.raises(SpikeHTRError, match=says):
            update_notes(tmp_path / name, {"temperature": 2.0})
        with pytest.raises(SpikeHTRError, match=says):
            load_header(tmp_path / name)
    assert (tmp_path / "other").read_bytes() == before


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError("first\nsecond"), "first"), (KeyError(), "KeyError"), (ValueError("\n"), "ValueError")],
)
def test_what_other_software_says_is_a_line_and_never_nothing(error, reason):
    assert reason_of(error) == reason


def test_a_checkpoint_is_told_from_a_model(tmp_path):
    save_file({"x": torch.zeros(1)}, tmp_path / "last.safetensors", {"state": "{}"})
    with pytest.raises(SpikeHTRError, match=r"a checkpoint to go on with a training, no model: best\.safetensors"):
        load_model(tmp_path / "last.safetensors")


def test_the_public_names_can_be_listed():
    import spikehtr

    assert {"Config", "SpikeHTR", "Recognizer", "Line", "Page"} <= set(dir(spikehtr))


OFF = {
    "training": {"consistency": 0.0, "spike_anneal": {"until": 0.0, "steps": 12}, "teacher_weight": 0.5},
    "decoding": {"method": "greedy"},
}


def rewritten(path, config, extra):
    """A file with these settings beside its own, as an earlier version would have written it."""
    values = config.to_dict()
    for section, settings in extra.items():
        values[section] = values.get(section, {}) | settings
    with safe_open(str(path), "pt") as file:
        tensors, header = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    save_file(tensors, path, header | {"config": json.dumps(values)})


def test_settings_that_are_gone_and_were_off_are_left_out_of_old_files(tmp_path):
    net, config = build()
    save_model(path := tmp_path / "m.safetensors", net, config, CHARSET)
    rewritten(path, config, OFF)  # a teacher's weight changed nothing of how a file reads, whatever it was
    loaded = load_model(path)
    assert loaded.config == config
    assert torch.equal(loaded.net(images := torch.rand(1, 1, 32, 50)).logits, net(images).logits)
    with pytest.raises(ConfigError, match=r"training\.consistency"):  # never in what a user writes
        Config.from_dict({"training": {"consistency": 0.0}})


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"training": {"consistency": 0.2}}, r"m\.safetensors: made with training\.consistency = 0\.2, a setting that"),
        (
            {"training": {"spike_anneal": {"until": 0.6, "steps": 12}}},
            r"made with training\.spike_anneal\.until = 0\.6",
        ),
        ({"model": {"span_mask": {"ratio": 0.1, "span": 8}}}, r"made with model\.span_mask\.ratio = 0\.1"),
        ({"model": {"spam_mask": 0}}, r"spam_mask"),
    ],
)
def test_settings_that_are_gone_and_were_on_are_an_error_that_names_them(extra, says, tmp_path):
    net, config = build()
    save_model(path := tmp_path / "m.safetensors", net, config, CHARSET)
    rewritten(path, config, extra)
    with pytest.raises(SpikeHTRError, match=says):
        load_model(path)
