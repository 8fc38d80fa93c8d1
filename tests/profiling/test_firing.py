"""Firing rates against spikes counted by hand, and a network that does not notice it is being watched."""

import pytest
import torch

from conftest import micro
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.watching import watch
from spikehtr.profiling.counts import build
from spikehtr.profiling.diagnosis_page import distribution_table
from spikehtr.profiling.firing import Firing, by_stage, distribution, global_rate, recorded_firing, shares
from spikehtr.profiling.paper_names import ENCODER, MIXER, spiking_modules
from spikehtr.profiling.record_activity import recording
from spikehtr.profiling.watched_layers import watched_extent

VARIANTS = [
    {},
    {"timesteps": 1},
    {"encoder__spikes_first": True},
    {"encoder__neurons": "read", "mixer__neurons": "read"},
    {"encoder__stem_stride": [2, 2], "encoder__strides": [[1, 1], [2, 2], [2, 1]]},
]


def fire(net, *lines):
    """The record of lines [C, H, w], each padded to the widest with something that would show."""
    widest = max(line.shape[-1] for line in lines)
    images = torch.full((len(lines), 1, net.config.height, widest), 0.5)
    for image, line in zip(images, lines, strict=True):
        image[..., : line.shape[-1]] = line
    with recording(net) as record, torch.no_grad():
        out = net(images, torch.tensor([line.shape[-1] for line in lines]))
    return record, out


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_is_not_counted(variant):
    net = build(micro(**variant).model, 9)
    torch.manual_seed(1)
    lines = [torch.rand(1, 32, w) for w in (40, 21, 64)]
    together, _ = fire(net, *lines)
    alone = [fire(net, line)[0] for line in lines]
    for name, row in together.firing.items():
        assert row.neurons == sum(record.firing[name].neurons for record in alone)
        assert row.spikes == [sum(n) for n in zip(*(record.firing[name].spikes for record in alone), strict=True)]
    for name, work in together.work.items():
        assert (work.macs, work.additions, work.inputs) == tuple(
            sum(getattr(record.work[name], what) for record in alone) for what in ("macs", "additions", "inputs")
        ), name


@pytest.mark.parametrize("burst", [1, 8])
def test_rates_are_those_of_the_recorded_tensors(burst):
    net = build(micro(encoder__pw1_burst=burst, mixer__burst=burst).model, 9)
    seen = {}
    names = {module: name for name, module in spiking_modules(net).items()}
    with watch(net, lambda _, module, __, fired: seen.__setitem__(names[module], fired), MultiStepLIF):
        record, out = fire(net, torch.rand(1, 32, 48))
    assert list(record.firing) == list(seen)
    for name, fired in seen.items():
        row = record.firing[name]
        assert row.rate == pytest.approx(
            float(fired.double().mean()), abs=1e-12
        )  # one line, a multiple of 4: no padding
        assert row.spikes == fired.flatten(1).sum(1).int().tolist()
        assert row.active == fired.flatten(1).count_nonzero(1).tolist()
        assert row.neurons == fired[0].numel()
    assert int(out.lengths[0]) * 32 == record.firing["Seq-0-LA-OUT"].neurons
    counted_once = sum(sum(row.active) for row in record.firing.values())
    assert (counted_once < sum(sum(row.spikes) for row in record.firing.values())) is (burst > 1)


def test_watching_changes_nothing_and_leaves_nothing():
    net = build(micro().model, 9)
    images, widths = torch.rand(2, 1, 32, 40), torch.tensor([40, 30])
    with torch.no_grad():
        before = net(images, widths)
        with recording(net):
            during = net(images, widths)
        after = net(images, widths)
    for a, b in ((before, during), (before, after)):
        assert all(x is y or torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in net.modules())
    assert all(m.numbers.tap is None for m in net.modules() if hasattr(m, "numbers") and hasattr(m.numbers, "tap"))


def test_hooks_go_even_when_the_network_fails():
    net = build(micro().model, 9)
    with pytest.raises(RuntimeError, match="boom"), watched_extent(net) as extent, recorded_firing(net, extent):
        raise RuntimeError("boom")
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in net.modules())
    assert all(m.numbers.tap is None for m in net.modules() if hasattr(m, "numbers") and hasattr(m.numbers, "tap"))


def test_the_tables():
    rows = [
        Firing("Enc-S1-CONV", 1000, [30, 50]),  # 0.04
        Firing("Enc-S2-B0-PW1", 500, [10, 0]),  # 0.01
        Firing("Seq-0-LA-OUT", 10, [4, 6]),  # 0.5
    ]
    assert shares(rows) == [0.8, 0.1, 0.1]
    assert global_rate(rows) == 100 / (2 * 1510)
    found = distribution(rows)
    assert (found["modules"], found["min"], found["median"], found["max"]) == (3, 0.01, 0.04, 0.5)
    assert found["mean"] == pytest.approx(0.55 / 3)
    bursts = [Firing("Enc-S1-CONV", 1000, [30, 50], [20, 20])]
    assert distribution(bursts, active=True)["mean"] == 0.02
    assert [row[0] for row in distribution_table(bursts)[1]] == ["ours", "ours, a burst counted once", "paper"]
    single = [Firing("Enc-S1-CONV", 1000, [30, 50], [30, 50])]
    assert [row[0] for row in distribution_table(single)[1]] == ["ours", "paper"]
    stages = {part["group"]: part for part in by_stage(rows)}
    assert list(stages) == [ENCODER, "stage 1", "stage 2", MIXER]
    assert stages[ENCODER]["share"] == pytest.approx(0.9)
    assert stages[ENCODER]["mean"] == pytest.approx(0.025)
    assert stages["stage 2"]["modules"] == 1
    assert shares([Firing("Enc-S1-CONV", 10, [0])]) == [0.0]
