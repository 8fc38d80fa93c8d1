"""The baselines in the harness: loop, checkpoints, averaged weights, model files, fine-tuning, reading."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from baselines_help import ARCHS, LONG, small
from PIL import Image
from safetensors.torch import load_file

from spikehtr import Recognizer
from spikehtr.assets import FONTS
from spikehtr.data.batching import Lines
from spikehtr.data.check import check_data
from spikehtr.data.compiling import compile_store
from spikehtr.data.synth import synthesise
from spikehtr.registry import build
from spikehtr.text import BLANK, Charset
from spikehtr.training.datasets import training_sets
from spikehtr.training.finetune import starting_weights
from spikehtr.training.loop import BEST, TrainingError, TrainingRun
from spikehtr.training.optim import kept_buffers
from spikehtr.training.records import _network
from spikehtr.weights import load_model, save_model

SETTINGS = {"training__batch_size": 8, "training__epochs": 2, "training__warmup_epochs": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("lines")
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"], FONTS, 24, place / "made", height=32)
    return compile_store([place / "made"], place / "s.arrow", height=32)[0]


def run(store, folder, arch, reducer=False, **changes):
    config = small(arch, reducer=reducer, **(SETTINGS | changes))
    lines = Lines(store, store.rows(), store.charset, config.data.max_width)
    held_out = Lines(store, store.rows()[:6], store.charset, config.data.max_width, labelled=False)
    folder.mkdir(exist_ok=True)
    return TrainingRun(config, lines, held_out, folder)


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize(
    ("arch", "reducer"),
    [pytest.param(arch, False, marks=pytest.mark.slow if arch in LONG else ()) for arch in ARCHS]
    + [("retsinas", True), ("kraken", True)],
)
def test_a_killed_and_resumed_run_ends_with_the_very_same_state(store, tmp_path, monkeypatch, arch, reducer):
    whole = run(store, tmp_path / "whole", arch, reducer)
    whole.fit()
    step = TrainingRun._train_on

    def until(self, batch, indices):
        if self.step == 4:
            raise Killed
        return step(self, batch, indices)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "_train_on", until)
        with pytest.raises(Killed):
            run(store, tmp_path / "killed", arch, reducer).fit(save_every=1)
    resumed = run(store, tmp_path / "killed", arch, reducer)
    resumed.resume()
    assert resumed.step == 4
    resumed.fit()
    assert resumed.step == whole.step == 6
    a, b = whole.net.state_dict(), resumed.net.state_dict()
    assert all(torch.equal(a[name], b[name]) for name in a)
    for a, b in ((whole.average.values, resumed.average.values), (whole.average.buffers, resumed.average.buffers)):
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole.best == resumed.best


def test_running_statistics_are_averaged_and_reach_the_model_file(store, tmp_path):
    done = run(store, tmp_path / "r", "cnn-blstm", training__validate_every=2)  # so that the last weights are kept
    done.fit()
    live, kept = done.net.norms[0], load_model(tmp_path / "r" / BEST)
    norm = kept.net.norms[0]
    assert norm.num_batches_tracked == live.num_batches_tracked == 6
    assert norm.num_batches_tracked.dtype == torch.int64
    assert torch.equal(norm.running_mean, done.average.buffers["norms.0.running_mean"])
    assert norm.running_mean.any()
    assert not torch.equal(norm.running_mean, live.running_mean)
    assert Recognizer.load(tmp_path / "r" / BEST).charset == store.charset


def test_the_average_of_what_stands_still_is_what_it_is(store, tmp_path):
    still = run(store, tmp_path / "r", "retsinas")
    for _ in range(3):
        still.average.update(still.net)
    averaged = still._averaged()
    assert all(torch.equal(a, b) for a, b in zip(averaged.buffers(), still.net.buffers(), strict=True))
    still.net.stages[0][0].norm1.running_mean += 1
    still.average.update(still.net)  # decay 5 / 14 at the fourth update
    moved = still.average.buffers["stages.0.0.norm1.running_mean"]
    assert torch.allclose(moved, torch.full_like(moved, 9 / 14))


def test_several_devices_take_the_first_one_s_running_statistics(store, tmp_path, monkeypatch):
    first, other = run(store, tmp_path / "a", "cnn-blstm"), run(store, tmp_path / "b", "cnn-blstm")
    for each in (first, other):
        each.average.buffers["norms.0.running_mean"] += torch.rand(2)
    given = {name: value.clone() for name, value in first.average.buffers.items()}
    fabric = SimpleNamespace(world_size=2, broadcast=lambda mine: given)
    monkeypatch.setattr(other, "fabric", fabric)
    other._share_buffers()
    assert all(torch.equal(other.average.buffers[name], value) for name, value in given.items())


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("half", [False, True])
def test_model_file_round_trip(arch, half, tmp_path):
    config, charset = small(arch, reducer=True), Charset(tuple("abc"))
    torch.manual_seed(0)
    net = build(config.model, 4).train()
    images = torch.rand(3, 1, 32, 90)
    for _ in range(3):
        net(images)  # moves the running statistics
    net.eval()
    save_model(tmp_path / "m.safetensors", net, config, charset, half=half)
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.config == config
    if not (half and net.full_precision):  # which such a network is too delicate for
        assert torch.allclose(loaded.net(images).logits, net(images).logits, atol=0.05 if half else 0.0)
    for name, value in kept_buffers(net).items():
        assert torch.equal(kept_buffers(loaded.net)[name], value)
    stored = load_file(tmp_path / "m.safetensors")
    sizes = {stored[name].dtype for name, _ in net.named_parameters()}
    assert sizes == {torch.float16 if half else torch.float32}
    assert arch in _network(loaded)
    assert "reducer" in _network(loaded)


@pytest.mark.parametrize("arch", ARCHS)
def test_positions_of_characters_are_the_image_s_own(arch):
    config = small(arch)
    torch.manual_seed(3)
    net = build(config.model, 4)
    net.get_parameter(next(name for name in net.per_label if name.endswith("bias"))).data[BLANK] -= 5  # reads something
    reader = Recognizer(net, config, Charset(tuple("abc")))
    wide = np.random.default_rng(0).integers(0, 255, (64, 150), np.uint8)  # is read at 32 x 75
    line = reader.transcribe(Image.fromarray(wide))
    places = [(c.x0, c.x1) for c in line.characters]
    unit = 2 * config.model.stride
    assert places
    assert all(0 <= x0 < x1 <= 150 for x0, x1 in places)
    assert all(x0 % unit == 0 and (x1 % unit == 0 or x1 == 150) for x0, x1 in places)


@pytest.mark.parametrize(("arch", "reducer"), [("retsinas", False), ("htr-vt", True)])
def test_fine_tuning_keeps_the_rows_of_known_characters(arch, reducer, tmp_path):
    config = small(arch, reducer=reducer)
    save_model(tmp_path / "m.safetensors", build(config.model, 4), config, Charset(tuple("abc")))
    loaded = load_model(tmp_path / "m.safetensors")
    start = starting_weights(loaded, config, Charset(tuple("cda"))).weights
    old = loaded.net.state_dict()
    for name in ("head.weight", "head.bias", "shortcut.conv.weight", "shortcut.conv.bias"):
        assert torch.equal(start[name][[0, 1, 3]], old[name][[0, 3, 1]])
        if start[name].dim() > 1:
            assert not any(torch.equal(start[name][2], row) for row in old[name])
    build(config.model, 4).load_state_dict(start)


def test_a_reducer_added_to_weights_that_have_no_preview_starts_with_a_fresh_one(tmp_path):
    config, reduced = small("kraken"), small("kraken", reducer=True)
    save_model(tmp_path / "m.safetensors", build(config.model, 4), config, Charset(tuple("abc")))
    loaded = load_model(tmp_path / "m.safetensors")
    found = starting_weights(loaded, reduced, Charset(tuple("abc")))
    assert "fresh: shortcut" in found.remark
    old = loaded.net.state_dict()
    assert all(torch.equal(found.weights[name], value) for name, value in old.items())
    build(reduced.model, 4).load_state_dict(found.weights)


@pytest.mark.parametrize(("arch", "narrow", "enough"), [("cnn-blstm", 24, 25), ("htr-vt", 12, 13)])
def test_lines_are_judged_by_the_network_s_own_stride(store, arch, narrow, enough):
    """A word of four characters takes four frames: of 8 pixels each, or of 4."""
    config = small(arch, data__max_width=enough)
    assert training_sets(store, config).remarks == [
        "no line is marked as training: every 5th of 24 is held out to validate (4 lines: a rough guide)"
    ]
    assert check_data([store.path], config).report.count("error") == 0
    config = small(arch, data__max_width=narrow)
    assert any(
        "too narrow for their text" in remark for remark in training_sets(store, config, allow_unknown=True).remarks
    )
    problems = [problem for problem in check_data([store.path], config).report.problems if problem.kind == "too narrow"]
    assert problems
    assert f"data.max_width above {4 * config.model.stride} " in problems[0].remedy


def test_out_of_memory_speaks_of_no_timesteps(store, tmp_path, monkeypatch):
    def full(self, batch, indices):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TrainingRun, "_train_on", full)
    with pytest.raises(TrainingError, match=r"a batch of 8 lines, 32 x \d+ px: lower training.batch_size"):
        run(store, tmp_path / "r", "kraken").fit()
