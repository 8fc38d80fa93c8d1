import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import micro
from spikehtr.config import LIFConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.lif import MultiStepLIF, expected_firing, numbers_of
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.model.watching import watch
from spikehtr.ops.plain.neuron import fire, spike


def drive(steps, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(steps, 3, 7, 5, generator=g, dtype=torch.float64) * 1.5).to(dtype)


def lif(x, config, burst=1):
    return fire(x, numbers_of(config, burst))


def literal(x, config):
    """Eq. 1 by hand, neuron by neuron, in float64, with its gradient for a given upstream gradient."""
    steps, flat = x.shape[0], x.double().flatten(1)
    spikes = torch.zeros_like(flat)
    slopes = torch.zeros_like(flat)
    for i in range(flat.shape[1]):
        u = s = 0.0
        for t in range(steps):
            u = config.decay * u * (1 - s) + float(flat[t, i])
            s = 1.0 if u >= config.threshold else 0.0
            z = u - config.threshold
            a = config.surrogate_alpha
            if config.surrogate == "atan":
                slope = a / 2 / (1 + (math.pi / 2 * a * z) ** 2)
            else:
                e = 1 / (1 + math.exp(-a * z))
                slope = a * e * (1 - e)
            spikes[t, i], slopes[t, i] = s, slope
    return spikes.view(x.shape), slopes.view(x.shape)


def literal_gradient(spikes, slopes, upstream, decay):
    """dL/dx_t = dL/du_t, dL/du_t = g_t * slope_t + dL/du_{t+1} * decay * (1 - s_t): the reset passes no gradient."""
    grad = torch.zeros_like(slopes)
    after = torch.zeros_like(slopes[0])
    for t in reversed(range(slopes.shape[0])):
        after = upstream[t] * slopes[t] + after * decay * (1 - spikes[t])
        grad[t] = after
    return grad


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("surrogate", ["atan", "sigmoid"])
def test_equals_a_hand_written_loop_in_float64(steps, surrogate):
    config = LIFConfig(surrogate=surrogate, decay=0.6, threshold=0.9, surrogate_alpha=3.0)
    x = drive(steps, dtype=torch.float64).requires_grad_()
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out = lif(x, config)
    out.backward(upstream)
    spikes, slopes = literal(x.detach(), config)
    assert torch.equal(out.detach(), spikes)
    assert torch.allclose(x.grad, literal_gradient(spikes, slopes, upstream, config.decay), atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("decay", [0.25, 0.5, 0.8])
def test_equals_spikingjelly(steps, decay):
    """The same neuron in another library. In the extra `oracle`."""
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
    surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")
    theirs = neuron.LIFNode(
        tau=1 / (1 - decay),
        decay_input=False,
        v_threshold=1.0,
        v_reset=0.0,
        surrogate_function=surrogate.ATan(2.0),
        detach_reset=True,
        step_mode="m",
    )
    x1 = drive(steps, seed=steps).requires_grad_()
    x2 = x1.detach().clone().requires_grad_()
    upstream = torch.randn(x1.shape, generator=torch.Generator().manual_seed(2))
    ours = lif(x1, LIFConfig(decay=decay))
    ours.backward(upstream)
    expected = theirs(x2)
    expected.backward(upstream)
    assert 0 < ours.mean() < 1
    assert torch.equal(ours, expected)
    assert torch.allclose(x1.grad, x2.grad, atol=1e-6)


def test_half_precision_keeps_the_membrane_in_fp32():
    x = drive(4).bfloat16()
    assert torch.equal(lif(x, LIFConfig()), lif(x.float(), LIFConfig()).bfloat16())
    assert lif(x, LIFConfig()).dtype == torch.bfloat16


def test_nothing_is_kept_between_calls():
    neuron = MultiStepLIF(LIFConfig())
    x = drive(3)
    first = neuron(x)
    neuron(drive(3, seed=9) * 10)
    assert torch.equal(neuron(x), first)
    assert not list(neuron.parameters())
    assert not list(neuron.buffers())


def test_reset_and_threshold_are_exact():
    config = LIFConfig()
    x = torch.tensor([1.0, 0.9, 0.55, 0.0])[:, None]
    # fires at exactly the threshold; resets to 0; 0.9 stays below; 0.45 + 0.55 = 1.0 fires again
    assert lif(x, config).flatten().tolist() == [1.0, 0.0, 1.0, 0.0]


@given(st.integers(1, 8), st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 4), st.integers(0, 99))
def test_bursts(burst, step, steps, seed):
    """As often as the membrane is steps above the threshold, and a neuron's course is that without bursts."""
    config = LIFConfig(burst_step=step)
    x = (2 * drive(steps, seed=seed)).requires_grad_()
    once, often = lif(x, config), lif(x, config, burst=burst)
    assert torch.equal(often.clamp(max=1), once)
    membrane = torch.zeros_like(x[0])
    for current, fired in zip(x.detach(), often, strict=True):
        membrane = config.decay * membrane + current
        wanted = ((membrane - config.threshold) / step).floor() + 1
        assert torch.equal(fired, wanted.clamp(0, burst))
        membrane = membrane * (fired == 0)
    (slope,) = torch.autograd.grad(often[0].sum(), x)
    levels = torch.stack([x[0].detach() - config.threshold - n * step for n in range(burst)])
    expected = (config.surrogate_alpha / 2 / (1 + (math.pi / 2 * config.surrogate_alpha * levels) ** 2)).sum(0)
    assert torch.allclose(slope[0], expected, rtol=1e-4)


@given(st.integers(1, 8), st.sampled_from(["atan", "sigmoid"]), st.booleans())
def test_a_burst_is_the_sum_of_its_spikes(burst, surrogate, turned):
    x = drive(2, dtype=torch.float64)
    excess = (x.transpose(0, 1) if turned else x).requires_grad_()
    alone = [spike(excess - 0.25 * n, surrogate, 3.0) for n in range(burst)]
    together, wanted = spike(excess, surrogate, 3.0, burst, 0.25), torch.stack(alone).sum(0)
    assert torch.allclose(together, wanted)
    upstream = torch.randn_like(x).view_as(excess)
    found, expected = (torch.autograd.grad(y, excess, upstream)[0] for y in (together, wanted))
    assert torch.allclose(found, expected)
    assert torch.allclose(
        torch.func.grad(lambda z: (upstream * spike(z, surrogate, 3.0, burst, 0.25)).sum())(excess), expected
    )


def test_bursts_of_pw1_are_its_alone():
    for first in (False, True):
        net = SpikeHTR(micro(encoder__pw1_burst=4, encoder__spikes_first=first).model, 9)
        loud = {name for name, m in net.named_modules() if isinstance(m, MultiStepLIF) and m.burst == 4}
        assert len(loud) == 3
        assert all(name.endswith("pw2.neuron" if first else "pw1.neuron") for name in loud)


def test_bursts_of_the_mixer_are_all_its_neurons():
    net = SpikeHTR(micro(mixer__burst=4, mixer__blocks=("LA", "QK", "LK")).model, 9)
    neurons = {name: m for name, m in net.named_modules() if isinstance(m, MultiStepLIF)}
    assert {m.burst for name, m in neurons.items() if name.startswith("mixer")} == {4}
    assert {m.burst for name, m in neurons.items() if not name.startswith("mixer")} == {1}


def test_neurons_that_a_product_reads():
    """Those alone: elsewhere a norm's output goes on as it is, once."""
    blocks = ("LA", "QK", "LK")
    config = micro(encoder__neurons="read", mixer__neurons="read", mixer__blocks=blocks).model
    net, every = SpikeHTR(config, 9), SpikeHTR(micro(mixer__blocks=blocks).model, 9)
    names, all_names = ({n for n, m in x.named_modules() if isinstance(m, MultiStepLIF)} for x in (net, every))
    ends = ("pw1.neuron", "fc1.neuron", "qkv.neuron", "qk.neuron", "dw_neuron")
    assert names == {name for name in all_names if name.endswith(ends)}
    assert len(all_names) > len(names)
    assert not any(name.endswith(".alpha") for name, _ in net.named_parameters())
    conv, x, widths = net.encoder.stage1.conv, torch.randn(2, 1, config.dim // 4, 4, 6), torch.tensor([6])
    assert torch.equal(conv(x, widths), conv.norm(conv.conv(x.flatten(0, 1)).unflatten(0, (2, 1)), widths))
    mlp, tokens = net.mixer.blocks[0].mlp, torch.randn(2, 1, 3, config.dim)
    expected = mlp.fc2.norm(mlp.fc2.linear(mlp.fc1(mlp.norm(tokens))))
    assert torch.equal(mlp(tokens, torch.ones(1, 3, dtype=torch.bool)), expected)


def test_neurons_whose_spikes_alone_a_product_reads():
    settings = {"encoder__neurons": "read", "mixer__neurons": "alone", "mixer__blocks": ("LA", "QK", "LK")}
    net = SpikeHTR(micro(**settings).model, 9)
    names = {n for n, m in net.named_modules() if isinstance(m, MultiStepLIF) and n.startswith("mixer")}
    assert names == {
        *(f"mixer.blocks.{i}.mlp.fc1.neuron" for i in range(3)),
        "mixer.blocks.0.operator.qkv.neuron",
        "mixer.blocks.1.operator.qk.neuron",
    }


def test_with_spikes_first_a_product_reads_every_neuron_of_the_encoder():
    every, read = (SpikeHTR(micro(encoder__spikes_first=True, encoder__neurons=n).model, 9) for n in ("all", "read"))
    names = [{name for name, m in net.named_modules() if isinstance(m, MultiStepLIF)} for net in (every, read)]
    assert names[0] == names[1]


@pytest.mark.parametrize("first", [False, True])
def test_a_low_start_quietens_every_neuron_and_leaves_gelu_alone(first):
    def rates(**settings):
        torch.manual_seed(0)
        net = SpikeHTR(micro(encoder__spikes_first=first, **settings).model, 9).eval()
        found = []
        with torch.no_grad(), watch(net, lambda _, __, ___, out: found.append(float(out.mean())), MultiStepLIF):
            net(torch.rand(2, 1, 32, 64))
        return torch.tensor(found)

    usual, low = rates(), rates(lif__start_bias=-1.0)
    assert low.mean() < 0.5 * usual.mean()
    gelu = SpikeHTR(micro(neuron="gelu", lif__start_bias=-1.0).model, 9)
    assert all(not p.any() for name, p in gelu.named_parameters() if name.endswith("norm.bias"))


@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_pw1_has_a_start_of_its_own(neuron):
    net = SpikeHTR(micro(neuron=neuron, lif__start_bias=-0.5, encoder__pw1_start_bias=0.25).model, 9)
    starts = {name: set(p.tolist()) for name, p in net.encoder.named_parameters() if name.endswith("w1.norm.bias")}
    others = {name: set(p.tolist()) for name, p in net.encoder.named_parameters() if name.endswith("w2.norm.bias")}
    assert starts
    assert all(start == {0.25 if neuron == "lif" else 0.0} for start in starts.values())
    assert all(start == {-0.5 if neuron == "lif" else 0.0} for start in others.values())


@pytest.mark.parametrize("neuron", ["lif", "gelu"])
def test_the_mixer_has_a_start_of_its_own(neuron):
    net = SpikeHTR(micro(neuron=neuron, lif__start_bias=-0.5, mixer__start_bias=0.25).model, 9)
    for part, start in ((net.encoder, -0.5), (net.mixer, 0.25)):
        drives = [m.driven_by for m in part.modules() if isinstance(m, MultiStepLIF)]
        assert bool(drives) == (neuron == "lif")
        assert all((norm.bias == start).all() for norms in drives for norm in norms)
    if neuron == "gelu":
        assert not any(p.any() for name, p in net.mixer.named_parameters() if name.endswith("norm.bias"))


@pytest.mark.parametrize(("first", "burst"), [(False, 1), (False, 4), (True, 3)])
def test_expected_firing_is_near_the_measured_rate_and_falls_by_its_gradient(first, burst):
    torch.manual_seed(0)
    bursts = {"encoder__pw1_burst": burst, "mixer__burst": burst}
    net = SpikeHTR(micro(timesteps=1, encoder__spikes_first=first, **bursts).model, 9)
    with torch.no_grad():
        for module in net.modules():
            for norm in getattr(module, "driven_by", ()):
                norm.bias.uniform_(-1.0, 0.5)
                norm.weight.uniform_(0.5, 1.5)
    found = []

    def hear(_name, module, _drive, out):
        if module.driven_by:
            found.append(out.mean())

    assert "driven_by" not in dict(net.named_modules())
    with torch.no_grad(), watch(net, hear, MultiStepLIF):
        net(torch.rand(4, 1, 32, 128))
    measured = sum(found) / len(found)
    expected = expected_firing(net)
    assert abs(expected.item() - measured.item()) < 0.05
    expected.backward()
    with torch.no_grad():
        for p in net.parameters():
            if p.grad is not None:
                p -= p.grad
    assert expected_firing(net) < expected
    assert expected_firing(SpikeHTR(micro(neuron="gelu").model, 9)) == 0


def test_wrong_use_is_told():
    with pytest.raises(SpikeHTRError, match="burst must be 1 or more, not 0"):
        MultiStepLIF(LIFConfig(), burst=0)
    with pytest.raises(SpikeHTRError, match="atan or sigmoid, not 'nope'"):
        spike(torch.zeros(2), "nope")
    with pytest.raises(SpikeHTRError, match="at least one step"):
        MultiStepLIF(LIFConfig())(torch.zeros(0, 3))
