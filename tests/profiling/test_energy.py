import pytest

from spikehtr.profiling.energy import E_AC, E_MAC, RHO, EnergyRow, Traffic, hybrid, ideal, totals
from spikehtr.profiling.firing import Firing
from spikehtr.profiling.ledger import LayerWork, Ledger


def layer(name, macs, additions=0, spikes=False, inputs=100, outputs=50, weights=10):
    zeros = inputs if spikes else 0
    return LayerWork(name, macs, additions, inputs, outputs, weights, zeros, float(spikes), spikes)


LEDGER = Ledger(
    [
        layer("encoder.stem.conv", 1000),
        layer("encoder.stage1.conv.conv", 6000),
        layer("mixer.blocks.0.mlp.fc2.linear", 4000, 120, spikes=True),
        layer("head.linear", 1000),
    ],
    lines=2,
    timesteps=2,
)
FIRING = [Firing("Enc-S1-CONV", 200, [10, 14]), Firing("Seq-0-MLP-FC1", 100, [4, 8])]  # 36 of 600: 0.06


def test_the_papers_numbers_follow_from_its_counts():
    """tab:energy_compare: the ratio column from the count columns."""
    assert pytest.approx(4.6 / 0.9) == RHO
    for dense, macs, additions, ratio in (
        (1.952e11, 1.250e11, 1.517e9, 0.642),
        (1.953e11, 1.021e11, 1.945e9, 0.525),
        (1.953e11, 1.699e8, 4.07e9, 0.00495),
    ):
        assert EnergyRow("", dense, macs, additions, 0, "").ratio() == pytest.approx(ratio, abs=6e-4)


def test_rows():
    row = hybrid("Default", LEDGER, "")
    assert (row.dense_macs, row.macs, row.additions) == (6000, 4000, 60)
    assert row.eligible_share == pytest.approx(1 / 3)
    assert row.ratio() == pytest.approx((4000 + 60 * E_AC / E_MAC) / 6000)
    assert row.ratio(10) == pytest.approx(4006 / 6000)
    best = ideal("Ideal", LEDGER, FIRING, "")
    assert (best.macs, best.additions) == (500, pytest.approx(0.06 * 5500))
    assert "memory" in row.note


def test_totals_by_hand():
    fp32, int8, spiking, small = totals(LEDGER, FIRING, pj_byte=2.0)
    one_pass = (2000 + 10_000 / 2) / 2  # stem and head once, the rest half as often
    assert fp32.arithmetic == pytest.approx(one_pass * 4.6e-6)
    assert int8.arithmetic == pytest.approx(one_pass * 0.3e-6)
    assert fp32.neurons == int8.neurons == 0
    assert spiking.arithmetic == pytest.approx((4000 * 4.6 + 60 * 0.9) * 1e-6)
    assert spiking.neurons == pytest.approx(150 * 4.6e-6)  # 300 neurons, one update each, two lines
    maps = (100 + 50) / 2  # of a layer and line
    assert fp32.memory == pytest.approx(2 * 4 * (40 + 2 * maps + 2 * maps / 2) * 1e-6)
    assert int8.memory == pytest.approx(fp32.memory / 4)
    moved = 4 * (40 + 3 * 50 + 4 * 25 + 2 * 150) + 50 / 8  # weights, analog inputs, outputs, membranes; spikes in bits
    assert spiking.memory == pytest.approx(2 * moved * 1e-6)
    assert small.memory == pytest.approx(2 * ((moved - 50 / 8) / 4 + 50 / 8) * 1e-6)
    assert spiking.whole == spiking.arithmetic + spiking.neurons + spiking.memory


def test_one_timestep_has_no_decay():
    ledger = Ledger(LEDGER.layers, 2, 1)
    firing = [Firing(row.name, row.neurons, row.spikes[:1]) for row in FIRING]
    assert totals(ledger, firing)[2].neurons == 0
    assert Traffic.of(ledger, firing).membranes == 0
    assert ledger.one_pass == ledger.dense
