"""Training of what follows a frozen encoder, whose tokens of each line are kept."""

import pytest
import torch
from training_help import SETTINGS, kill_at, run

from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.registry import build
from spikehtr.training.devices import make_fabric
from spikehtr.training.frozen import FEW_LINES, FrozenStep, freeze_remark, suited_freeze, versions
from spikehtr.training.monitoring import TrainingError
from spikehtr.training.step import TrainStep

FROZEN = {"training__freeze": "encoder", "training__batch_size": 12, "training__epochs": 3}
PLAIN = {
    "data.augment.probability": 0.0,
    "data.augment.blank": 0.0,
    "model.mixer.dropout": 0.0,
    "model.mixer.drop_path": 0.0,
    "training.clip_norm": 1e6,
}


def steps(store, changes=None):
    """A step with a frozen encoder and one without, of the same network, and a batch of lines of several widths."""
    config = Config().with_overrides(SETTINGS | {"training.freeze": "encoder"} | (changes or {}))
    lines = Lines(store, store.rows(), store.charset, config.data.max_width)
    found = []
    for kind in (FrozenStep, TrainStep):
        torch.manual_seed(0)
        found.append(kind(config, build(config.model, len(store.charset)), make_fabric("cpu", precision="fp32")))
    return *found, lines.batch(torch.arange(4).numpy())


def test_what_follows_learns_what_it_would_with_the_whole_network(store):
    frozen, whole, batch = steps(store, PLAIN)
    numbers = [step(batch, 1e-3, 1) for step in (frozen, whole)]
    assert torch.allclose(numbers[0][:4], numbers[1][:4], rtol=1e-5)
    for (name, one), other in zip(frozen.net.named_parameters(), whole.net.parameters(), strict=True):
        if name.startswith("encoder."):
            assert one.grad is None
        elif other.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5)


def test_each_line_is_read_once_a_version_and_the_versions_differ(store, monkeypatch):
    frozen, _, batch = steps(store)
    calls, tokens = [], frozen._tokens
    monkeypatch.setattr(frozen, "_tokens", lambda given: calls.append(1) or tokens(given))
    frozen.versions = 5
    for epoch in range(7):
        frozen.epoch = epoch
        frozen(batch, 1e-3, epoch)
    assert len(calls) == len(frozen.kept) == 5 * len(batch.rows)
    row = int(batch.rows[0])
    sums = {float(frozen.kept[row, version].tokens.abs().sum()) for version in range(5)}
    assert len(sums) == 5


def test_the_compiled_encoder_says_what_the_network_s_does(store, monkeypatch):
    (compiled, _, batch), (plain, *_) = steps(store), steps(store)
    compiled(batch, 1e-3, 0)
    if compiled.engine is None:
        pytest.skip("the native kernels were not built")
    monkeypatch.setattr("spikehtr.training.frozen.unsupported_reason", lambda net: "not now")
    plain(batch, 1e-3, 0)
    assert plain.engine is None
    assert compiled.kept.keys() == plain.kept.keys()
    for place, one in compiled.kept.items():
        torch.testing.assert_close(one.tokens, plain.kept[place].tokens, rtol=1e-3, atol=1e-3)


def test_a_version_hangs_on_no_other_line(store):
    frozen, _, batch = steps(store)
    frozen(batch, 1e-3, 0)
    alone, *_ = steps(store)
    alone(type(batch)(*(value[2:3] for value in batch)), 1e-3, 5)
    row = int(batch.rows[2])
    assert torch.equal(frozen.kept[row, 0].tokens, alone.kept[row, 0].tokens)


@pytest.mark.parametrize(
    "at", [pytest.param(1, marks=pytest.mark.slow), 5]
)  # while lines are still read anew, and when all are kept
def test_a_killed_run_goes_on_exactly(store, tmp_path, monkeypatch, at):
    monkeypatch.setattr("spikehtr.training.frozen.versions", lambda lines: 2)
    whole = run(store, tmp_path / "whole", **FROZEN)
    before = {name: value.clone() for name, value in whole.net.named_parameters()}
    whole.fit()
    after = dict(whole.net.named_parameters())
    changed = {name.partition(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert "encoder" not in changed
    assert {"mixer", "head"} <= changed
    killed = run(store, tmp_path / "killed", **FROZEN)
    kill_at(killed, at, monkeypatch)
    resumed = run(store, tmp_path / "killed", **FROZEN)
    resumed.resume()
    assert resumed.step == at
    resumed.fit()
    assert all(torch.equal(a, b) for a, b in zip(whole.net.parameters(), resumed.net.parameters(), strict=True))
    assert whole.best == resumed.best


def test_few_lines_freeze_the_encoder_and_that_is_said(store):
    config = Config().with_overrides(SETTINGS)
    net = build(config.model, 5)
    assert [versions(lines) for lines in (1, 60, 200, 1000)] == [20, 20, 6, 4]
    assert suited_freeze(net, FEW_LINES) == "encoder"
    assert suited_freeze(net, FEW_LINES + 1) == "nothing"
    assert freeze_remark(config, 60) is None
    said = freeze_remark(config.with_overrides({"training.freeze": "encoder"}), 60)
    assert "the encoder stays as it is" in said
    assert "60 lines" in said
    assert "-s training.freeze=nothing" in said


def test_a_baseline_has_no_encoder_to_freeze(store):
    config = Config.preset("kraken").with_overrides({"training.freeze": "encoder"})
    with pytest.raises(TrainingError, match="is for Spike-HTR, not kraken"):
        FrozenStep(config, build(config.model, 5), make_fabric("cpu", precision="fp32"))
    assert suited_freeze(build(config.model, 5), 1) == "nothing"
