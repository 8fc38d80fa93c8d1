"""What changes while a run goes on: where it should be, what it touches, and that a resumed run is where it was."""

from itertools import pairwise

import pytest
import torch
from test_loop import SETTINGS, Killed, run, store  # noqa: F401 - a fixture

from conftest import micro
from inference_help import Rehearsals
from spikehtr import SpikeHTR
from spikehtr.config import Config, ConfigError
from spikehtr.data.batching import Lines
from spikehtr.model.lif import MultiStepLIF, set_softness, set_surrogate
from spikehtr.training.annealing import bypass_ceiling, hold_below, shortcuts, spike_softness, surrogate_sharpness
from spikehtr.training.devices import make_fabric
from spikehtr.training.graphs import GraphedStep, GraphedUpdate, pad_batch
from spikehtr.training.loop import Run
from spikehtr.training.step import Moment, TrainStep

KNOBS = {
    "model.encoder.bypass_init": 0.5,
    "model.span_mask.ratio": 0.3,
    "model.span_mask.span": 2,
    "training.bypass_anneal.until": 0.6,
    "training.bypass_anneal.to": 0.02,
    "training.surrogate_anneal.until": 0.8,
    "training.surrogate_anneal.start": 0.5,
    "training.surrogate_anneal.steps": 3,
}


def config(**changes):
    return Config().with_overrides(SETTINGS | KNOBS | changes)


def test_nothing_changes_by_default():
    assert bypass_ceiling(Config(), 0.5) is None
    assert {surrogate_sharpness(Config(), p / 10) for p in range(11)} == {2.0}
    assert {spike_softness(Config(), p / 10) for p in range(11)} == {0.0}
    assert SpikeHTR(micro().model, 5).mask_token is None


@pytest.mark.parametrize(("progress", "ceiling"), [(0.0, 0.5), (0.3, 0.26), (0.6, 0.02), (1.0, 0.02)])
def test_the_ceiling_falls_linearly_and_stays(progress, ceiling):
    assert bypass_ceiling(config(), progress) == pytest.approx(ceiling)


def test_a_ceiling_above_its_start_is_refused():
    with pytest.raises(ConfigError, match=r"bypass_anneal.to 0.1 is above model.encoder.bypass_init 0.05"):
        Config().with_overrides({"training.bypass_anneal": {"until": 0.5, "to": 0.1}})


@pytest.mark.parametrize("aim", [{"bypass_anneal": {"until": 0.5, "to": 0.01}}, {"bypass_penalty": 0.1}])
@pytest.mark.parametrize("without", [{"neurons": "read"}, {"spikes_first": True}, {"bypass": False}])
def test_what_is_asked_of_shortcuts_that_are_not_there_is_refused(aim, without):
    asked = Config().with_overrides({f"training.{key}": value for key, value in aim.items()})
    with pytest.raises(ConfigError, match=r"none with model.encoder.neurons=read"):
        asked.with_overrides({f"model.encoder.{key}": value for key, value in without.items()})


def test_alphas_are_held_from_both_sides():
    net = SpikeHTR(micro().model, 5)
    alphas = shortcuts(net)
    with torch.no_grad():
        for number, alpha in enumerate(alphas):
            alpha.fill_((-1.0, 0.01, 1.0)[number % 3])
    hold_below(alphas, 0.2)
    assert {round(alpha.item(), 3) for alpha in alphas} == {-0.2, 0.01, 0.2}
    hold_below([], 0.2)


def test_the_surrogate_sharpens_in_a_few_equal_ratios():
    values = [surrogate_sharpness(config(), step / 100) for step in range(100)]
    assert values[0] == 0.5
    assert values[80] == values[-1] == 2.0
    distinct = sorted(set(values))
    assert len(distinct) == 4
    assert values == sorted(values)
    ratios = [b / a for a, b in pairwise(distinct)]
    assert ratios == pytest.approx([4 ** (1 / 3)] * 3)


def test_spikes_harden_in_equal_steps():
    settings = config(**{"training.spike_anneal.until": 0.5, "training.spike_anneal.steps": 4})
    values = [spike_softness(settings, step / 100) for step in range(101)]
    assert values[0] == 1.0
    assert set(values[50:]) == {0.0}
    assert values == sorted(values, reverse=True)
    assert sorted(set(values)) == pytest.approx([0, 0.25, 0.5, 0.75, 1])


def test_soft_spikes_are_a_share_of_the_way_to_the_surrogates_integral_and_reset_as_hard_ones_do():
    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=2).model, 5)
    neuron = next(module for module in net.modules() if isinstance(module, MultiStepLIF))
    drive = torch.randn(2, 1000, dtype=torch.float64).requires_grad_()
    hard = neuron(drive)
    set_softness(net, 1.0)
    soft = neuron(drive)
    # At one step the gradient is that of the very function.
    (slope,) = torch.autograd.grad(soft[0].sum(), drive, retain_graph=True)
    nudged = neuron(drive.detach() + 1e-6)
    assert torch.allclose(slope[0], (nudged[0] - soft[0]) / 1e-6, atol=1e-4)
    # The second step's membrane is that of hard spikes: its excess is the soft spike's inverse.
    excess = torch.tan((soft[1] - 0.5) * torch.pi) / torch.pi
    assert torch.equal(excess >= 0, hard[1] > 0)
    set_softness(net, 0.25)
    assert torch.allclose(neuron(drive), 0.75 * hard + 0.25 * soft)


def test_sharpness_changes_every_neuron_s_gradient_and_no_output():
    torch.manual_seed(0)
    net = SpikeHTR(micro(timesteps=1, mixer__dropout=0.0, mixer__drop_path=0.0).model, 5)
    images = torch.rand(2, 1, 32, 40)
    outputs, gradients = [], []
    for sharpness in (None, 0.5):
        if sharpness:
            set_surrogate(net, sharpness)
        net.zero_grad()
        out = net(images).logits
        out.square().mean().backward()
        outputs.append(out.detach())
        gradients.append({name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None})
    assert torch.equal(*outputs)
    for name in ("encoder.stage1.conv.conv.weight", "mixer.blocks.1.operator.qk.linear.weight"):
        assert not torch.allclose(gradients[0][name], gradients[1][name])
    neurons = [module.config for module in net.modules() if isinstance(module, MultiStepLIF)]
    assert {c.surrogate_alpha for c in [*neurons, net.mixer.blocks[1].operator.lif]} == {0.5}
    assert {c.threshold for c in neurons} == {1.0}


def test_sharpness_reaches_the_kernels(monkeypatch):
    pytest.importorskip("triton", exc_type=ImportError)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = SpikeHTR(micro(timesteps=1, dim=16).model, 5).to(device)
    mix, mask = net.mixer.blocks[1].operator, torch.ones(1, 2, dtype=torch.bool, device=device)
    x = torch.randn(1, 1, 2, 16, device=device)
    found = {}
    for way in ("reference", "triton"):
        monkeypatch.setenv("SPIKEHTR_KERNELS", way)
        for sharpness in (0.5, 2.0):
            set_surrogate(net, sharpness)
            mix.zero_grad()
            mix(x, mask).square().sum().backward()
            found[way, sharpness] = mix.qk.linear.weight.grad.clone()
    for sharpness in (0.5, 2.0):
        assert torch.allclose(found["triton", sharpness], found["reference", sharpness], atol=1e-5)
    assert not torch.allclose(found["triton", 0.5], found["triton", 2.0], atol=1e-5)


def step_and_batch(store, changes, graphed):  # noqa: F811
    settings = config(**changes)
    lines = Lines(store, store.rows(), store.charset, settings.data.max_width)
    torch.manual_seed(0)
    net = SpikeHTR(settings.model, len(store.charset))
    step = TrainStep(settings, net, make_fabric())
    if graphed:
        step.graphed = GraphedStep(step._gradients, net.parameters(), [], step.device)
        step.graphed.recordings = Rehearsals()
        step.graphed_update = GraphedUpdate(step._update, net.parameters(), step.optimizer, step.device)
        step.graphed_update.recordings = Rehearsals()
    return step, pad_batch(lines.batch(range(8)))


def test_recorded_steps_are_the_steps_they_stand_for_with_every_knob(store):  # noqa: F811
    """On a CPU a recording is rehearsed: the same work on the same tensors."""
    nets, numbers = [], []
    for graphed in (False, True):
        step, batch = step_and_batch(store, {"training.spike_anneal.until": 0.5}, graphed)
        told = []
        for number in range(8):
            told.append(step(batch, Moment(number / 8, 1e-3 * (number + 1), seed=number)))
        nets.append(step.net)
        numbers.append(torch.stack(told))
        if graphed:
            assert len(step.graphed.recordings.kept) == 1
            assert len(step.graphed_update.recordings.kept) == 1
    assert torch.allclose(*numbers, atol=1e-6)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_recordings_are_dropped_when_the_surrogate_changes(store):  # noqa: F811
    step, batch = step_and_batch(store, {}, graphed=True)
    kept, recordings = [], step.graphed.recordings
    forgotten = []
    forget = recordings.forget
    recordings.forget = lambda: (forgotten.append(step.sharpness), forget())
    for number in range(10):
        step(batch, Moment(number / 10, 1e-3, seed=number))
        kept.append(len(recordings.kept))
    assert forgotten == pytest.approx([0.5, 0.5 * 4 ** (1 / 3), 0.5 * 4 ** (2 / 3), 2.0])
    assert set(kept[1:]) == {1}  # recorded anew at once


def test_a_killed_run_with_every_knob_ends_with_the_very_same_weights(store, tmp_path, monkeypatch):  # noqa: F811
    knobs = {key.replace(".", "__"): value for key, value in KNOBS.items()} | {"training__spike_anneal__until": 0.7}
    whole = run(store, tmp_path / "whole", **knobs)
    whole.fit()
    alphas = shortcuts(whole.net)
    assert alphas
    assert all(abs(alpha.item()) <= 0.02 for alpha in alphas)
    assert (whole.take.sharpness, whole.take.softness) == (2.0, 0.0)
    step = Run._train_on

    def until(self, batch, indices):
        if self.step == 5:
            raise Killed
        return step(self, batch, indices)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_train_on", until)
        with pytest.raises(Killed):
            run(store, tmp_path / "killed", **knobs).fit(save_every=1)
    resumed = run(store, tmp_path / "killed", **knobs)
    resumed.resume()
    resumed.fit()
    assert all(torch.equal(a, b) for a, b in zip(whole.net.parameters(), resumed.net.parameters(), strict=True))
