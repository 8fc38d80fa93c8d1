"""The CPU engine reads what the network reads, whatever the settings, widths and threads."""

import copy
import multiprocessing
import os
import warnings

import numpy as np
import pytest
import torch
from engine_help import batch, network

from conftest import ask_for
from spikehtr import ops
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.model.encoder import SpikingConv2d
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.mixer import SpikingLinear
from spikehtr.model.watching import watch
from spikehtr.readers import make_reader
from spikehtr.readers.cpu.engine import Engine, unsupported_reason
from spikehtr.readers.cpu.layers import Layer, Memory, Products
from spikehtr.readers.cpu.library import EVENTS, library
from spikehtr.readers.cpu.library import TILES as TILES_MODE
from spikehtr.readers.torch import TorchReader
from spikehtr.registry import build

try:
    TILES = library().tiles
except SpikeHTRError as error:
    pytest.skip(f"no native kernels here: {error}", allow_module_level=True)

VARIANTS = {
    "paper": {},
    "one step": {"timesteps": 1},
    "four steps": {"timesteps": 4},
    "repeat": {"entry": "repeat"},
    "no shortcut": {"encoder__bypass": False},
    "one resolution": {"encoder__dual_resolution": False},
    "max": {"encoder__downsample": "max"},
    "avg": {"encoder__downsample": "avg"},
    "spikes first": {"encoder__spikes_first": True},
    "bursts": {"encoder__pw1_burst": 4},
    "spikes first, bursts": {"encoder__spikes_first": True, "encoder__pw1_burst": 3, "lif__burst_step": 0.25},
    "coarse": {
        "encoder__stem_stride": (4, 2),
        "encoder__strides": ((1, 1), (2, 2), (2, 1)),
        "encoder__depths": (1, 2, 1),
    },
    "patches": {
        "encoder__stem_stride": (4, 4),
        "encoder__strides": ((1, 1), (2, 1), (2, 1)),
        "encoder__channels": (12, 20),
    },
    "edges only": {"inkcoder__evidence": "edge", "inkcoder__gamma_density": 1.5, "inkcoder__edge_scale": 3},
    "mixers, bursts": {"mixer__blocks": ("LA", "QK", "LK"), "mixer__burst": 3, "lif__burst_step": 0.25},
    "read, bursts": {
        "encoder__neurons": "read",
        "encoder__pw1_burst": 3,
        "mixer__neurons": "read",
        "mixer__blocks": ("LA", "QK", "LK"),
    },
    "alone, bursts": {"mixer__neurons": "alone", "mixer__blocks": ("LK",), "mixer__burst": 3},
    "mixers": {"mixer__blocks": ("LA", "QK", "LK"), "mixer__lk_expansion": 1.25},
    "recurrence": {"mixer__blocks": ("SR", "LK")},
    "recurrence, bursts": {"timesteps": 1, "mixer__neurons": "alone", "mixer__blocks": ("SR",), "mixer__burst": 3},
    "merge only": {"reducer__mode": "merge-only", "reducer__tau": 1e-4},
    "prune only": {"reducer__mode": "prune-only", "reducer__eta": 9.0, "reducer__gamma": 0.3, "reducer__tau": 1e-4},
    "no reduction": {"reducer__mode": "none"},
    "grey": {"in_channels": 1},
}


def assert_same(found, expected, atol):
    assert torch.equal(found.lengths, expected.lengths)
    assert torch.allclose(found.keep_ratio, expected.keep_ratio.float())
    for row, n in enumerate(expected.lengths.tolist()):
        assert torch.allclose(found.logits[row, :n], expected.logits[row, :n].float(), atol=atol)
        assert torch.equal(found.spans[row, :n], expected.spans[row, :n])


@pytest.mark.parametrize("name", VARIANTS)
def test_it_reads_what_the_network_reads(name):
    net = network(**VARIANTS[name])
    images, widths = batch(97, 60, 33, 5, 1)
    expected = TorchReader(net.double())(images.double() / 255, widths)  # the most exact answer there is
    found = Engine(net.float(), events="never")(images, widths)
    assert found.aux_logits is None
    assert_same(found, expected, atol=2e-4)
    assert (found.keep_ratio < 1).any() or name == "no reduction"


@pytest.mark.parametrize("name", [name for name in VARIANTS if "bursts" in name])
def test_lists_of_bursts_read_what_the_network_reads(name):
    net, most = network(**VARIANTS[name]), []
    images, widths = batch(97, 60, 5)
    with watch(net, lambda _, __, ___, fired: most.append(float(fired.max())), MultiStepLIF):
        expected = TorchReader(net.double())(images.double() / 255, widths)
    assert max(most) > 1
    assert_same(Engine(net.float(), events="always")(images, widths), expected, atol=2e-4)


@pytest.mark.parametrize("name", ["paper", "spikes first", "coarse"])
def test_lists_of_spikes_give_the_dense_result_to_the_last_bit(name):
    net = network(**VARIANTS[name])
    lines = batch(90, 41)
    dense, events = (Engine(net, events=events)(*lines) for events in ("never", "always"))
    assert torch.equal(dense.logits, events.logits)


@pytest.mark.parametrize("events", ["never", "always"])
def test_a_line_does_not_depend_on_the_batch_or_on_threads(events):
    net = network()
    images, widths = batch(120, 77, 34)
    whole = Engine(net, events=events, threads=3)(images, widths)
    alone = Engine(net, events=events, threads=1)
    for row, width in enumerate(widths.tolist()):
        out = alone(images[row : row + 1, :, :, : width + 7], widths[row : row + 1])
        n = int(out.lengths[0])
        assert n == int(whole.lengths[row])
        assert torch.equal(out.logits[0, :n], whole.logits[row, :n])


def rounding(net, lines, half):
    """How far bf16 logits are from a network's own in fp32, in standard deviations of those."""
    exact, found = Engine(net)(*lines), Engine(half, "bf16")(*lines)
    assert torch.equal(exact.lengths, found.lengths)
    return float((exact.logits - found.logits).abs().mean() / exact.logits.std())


@pytest.mark.skipif(not TILES, reason="this CPU has no tile unit (AMX)")
def test_bf16_is_nearer_than_any_network_with_one_wrong_layer():
    """With bursts and neurons only where a product reads them, as presets have it: there rounding moves logits by 0.13
    to 0.16 standard deviations, and one layer whose outputs are in the wrong order by 0.35 and more. Where every sum
    goes through a threshold, rounding alone flips so many spikes that a wrong layer does not show."""
    net = network(
        timesteps=1,
        reducer__mode="none",
        encoder__neurons="read",
        encoder__pw1_burst=8,
        encoder__bypass_init=1.0,
        mixer__neurons="alone",
        mixer__burst=8,
        mixer__blocks=("LK", "LK"),
    )
    lines = batch(90, 41)
    assert 0 < rounding(net, lines, net) < 0.25
    layers = [m for m in net.modules() if isinstance(m, SpikingConv2d | SpikingLinear)]
    assert len(layers) > 10
    for layer in layers:
        wrong = copy.deepcopy(net)
        twin = next(w for m, w in zip(net.modules(), wrong.modules(), strict=True) if m is layer)
        weight = next(p for name, p in twin.named_parameters() if p.dim() > 1 and "norm" not in name)
        with torch.no_grad():
            weight.copy_(weight.flip(0))
        assert rounding(net, lines, wrong) > 0.25, layer


def test_layers_that_fire_seldom_are_read_as_lists():
    net = network(encoder__spikes_first=True)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, SpikingConv2d | SpikingLinear):
                module.norm.bias.sub_(1.0)  # few neurons fire
    quiet = Engine(net)
    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, SpikingConv2d | SpikingLinear):
                module.norm.bias.add_(3.0)  # most neurons fire
    busy = Engine(net)
    listed = [sum(layer.mode == EVENTS for layer in engine.layers()) for engine in (busy, quiet)]
    assert listed[1] > listed[0]
    assert sum(quiet.density.values()) < sum(busy.density.values())
    assert all(0 <= share <= 1 for share in busy.density.values())


def test_the_recogniser_takes_it_by_itself_and_steps_back_where_it_must(monkeypatch):
    net = network()
    chosen = make_reader(net)
    assert isinstance(chosen, Engine)
    assert chosen.precision == ("bf16" if library().tiles else "fp32")  # the faster one
    assert make_reader(net, "fp32").precision == "fp32"
    assert isinstance(make_reader(network(neuron="gelu")), TorchReader)
    assert isinstance(make_reader(network(entry="poisson")), TorchReader)
    assert isinstance(make_reader(network().double()), TorchReader)
    small = Config.preset("kraken").with_overrides({"model.baseline.scale": 0.1})
    assert isinstance(make_reader(build(small.model, 9).eval()), TorchReader)
    with ops.reference():
        assert "reference is asked for" in (unsupported_reason(net) or "")
    assert unsupported_reason(net) is None
    ask_for(monkeypatch, "reference")
    assert isinstance(make_reader(net), TorchReader)
    with pytest.raises(SpikeHTRError, match="the reference is asked for"):
        Engine(net)


def test_wrong_use_is_an_error():
    net = network()
    with pytest.raises(SpikeHTRError, match="precision"):
        Engine(net, "fp8")
    with pytest.raises(SpikeHTRError, match="events"):
        Engine(net, events="sometimes")
    with pytest.raises(SpikeHTRError, match="images must be"):
        Engine(net)(torch.rand(1, 1, 48, 40))
    with pytest.raises(SpikeHTRError, match="grey lines"):  # it would read something else than the network does
        Engine(net)(torch.rand(1, 3, 32, 40))
    assert Engine(network(in_channels=1))(torch.rand(1, 3, 32, 40)).lengths[0] > 0


@pytest.mark.parametrize("events", ["never", "always", "auto"])
def test_everything_is_packed_before_threads_share_it(events):
    assert all(layer._structure is not None for layer in Engine(network(), events=events).layers())


def test_it_takes_no_more_threads_than_pytorch():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert Engine(network()).threads == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_reads_too():
    engine = Engine(network(), threads=2)
    images = torch.rand(4, 1, 32, 40)
    expected = engine(images).logits.tolist()
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=lambda: sending.send(engine(images).logits.tolist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads: just these are meant
        child.start()
    assert receiving.poll(60)
    assert receiving.recv() == expected
    child.join(60)


@pytest.mark.skipif(not TILES, reason="needs a tile unit")
def test_tiles_read_nothing_behind_their_buffer():
    """A wide layer on a short line: 32 whole rows are read, so many must lie in the buffer."""
    memory = Memory()
    layer = Layer.of("wide", torch.nn.Linear(1344, 16))
    layer.choose(TILES_MODE)
    run = Products(library(), memory)
    out = run.map("wide", (1, 1, 3, 1344), layer)
    assert out.half is not None
    behind = memory._buffers["wide.half"].nbytes - out.half.nbytes
    assert behind >= (32 - 3) * 1344 * 2
    assert len(out.half) == 3 * 1344


def test_pale_lines_lose_no_digits():
    """Nearly all of a pale line's squares is its mean's: what is left must not be what rounding left."""
    net = network(timesteps=1, entry="repeat")
    net.encoder.stem.conv.weight.data.abs_()  # so that the mean counts
    images = torch.randint(254, 256, (1, 1, 32, 900), generator=torch.Generator().manual_seed(3))
    run = Products(library(), Memory())
    found = Engine(net, events="never").encoder._entry(run, (images[0, 0].float() / 255).numpy()).dense
    with torch.no_grad():
        expected = net.double().encoder.stem(images.double().expand(-1, 3, -1, -1) / 255, torch.tensor([900]))
    expected = expected[0].movedim(0, 2).flatten().numpy()
    assert np.linalg.norm(found - expected) <= 3e-6 * np.linalg.norm(expected)
