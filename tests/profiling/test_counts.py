"""The network's counts against the paper's published ones."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from conftest import micro
from spikehtr import Config, SpikeHTR
from spikehtr.profiling.counts import build, count, count_baseline, counted_macs, dense_macs, eligible_share
from spikehtr.profiling.paper_names import ENCODER, MIXER, group, spiking_modules
from spikehtr.profiling.watched_layers import component

TIERS = [("tiny", 8.5), ("small", 18.6), ("medium", 39.9), ("base", 76.66), ("swift", 4.9), ("fine", 9.85)]


@pytest.mark.parametrize(("name", "millions"), TIERS)
def test_parameters_of_every_tier(name, millions):
    with torch.device("meta"):
        net = SpikeHTR(Config.preset(name).model, 80)
    total = sum(p.numel() for p in net.parameters())
    assert total / 1e6 == pytest.approx(millions, rel=0.01)
    if name == "base":
        assert sum(p.numel() for p in net.mixer.parameters()) / total == pytest.approx(0.596, abs=0.015)


def widened(c, tokens, mixed):
    """The layers of `c` on a longer line: a layer's work is proportional to the tokens that it sees."""
    factors = {
        "mixer": Fraction(mixed, c.tokens_mixed),
        # The head reads all tokens for the reducer, and twice what that one leaves.
        "head": Fraction(tokens + 2 * mixed, c.tokens_in + 2 * c.tokens_mixed),
    }
    whole = Fraction(tokens, c.tokens_in)
    return [replace(row, macs=row.macs * factors.get(component(row.name), whole)) for row in c.layers]


@pytest.mark.parametrize("overrides", [{}, {"encoder__bypass": False, "timesteps": 1}])
def test_work_grows_with_the_tokens(overrides):
    """To the last multiplication, so that the next test may count a large network on a short line."""
    short, long = (count(micro(**overrides), width=width) for width in (64, 512))
    assert (short.tokens_in, short.tokens_mixed) == (16, 11)
    assert (long.tokens_in, long.tokens_mixed) == (128, 87)
    assert widened(short, 128, 87) == long.layers


@pytest.mark.slow
def test_base_meets_the_papers_figures():
    base = Config.preset("base")
    c, pure = count(base, width=64), count(base.with_overrides({"model.encoder.bypass": False}), width=64)
    assert c.parameters / 1e6 == pytest.approx(76.66, rel=0.01)
    assert c.mixer_share == pytest.approx(0.596, abs=0.015)
    assert (c.tokens_in, c.tokens_mixed) == (16, 11)
    assert sum(c.macs.values()) == c.dense_macs == sum(row.macs for row in c.layers)
    assert c.lif_modules == {ENCODER: 24, MIXER: 24}
    assert (c.eligible_share, c.eligible_share_no_bypass) == (eligible_share(c.layers), pure.eligible_share)
    layers = widened(c, 128, 87)  # the paper's line: 512 px
    assert float(sum(row.macs for row in layers)) == pytest.approx(1.952e11, rel=0.015)
    assert sum(row.macs for row in layers if component(row.name) == "stem") == 169_869_312
    assert float(eligible_share(layers)) == pytest.approx(0.359, abs=0.01)
    assert float(eligible_share(widened(pure, 128, 87))) == pytest.approx(0.477, abs=0.01)


def test_what_is_eligible_is_what_reads_spikes():
    c = count(Config.preset("tiny").with_overrides({"model.timesteps": 2}), width=128)
    eligible = {row.name.split(".blocks.")[-1].split(".", 1)[1] for row in c.layers if row.eligible}
    assert eligible == {"pw2.conv", "mlp.fc2.linear", "operator.mean", "operator.out.linear"}
    # In the mixer: LA's products of q, k and v; QK's output, which reads a * k; no other output projection.
    operators = {row.name for row in c.layers if row.eligible and "operator" in row.name}
    assert operators == {
        f"mixer.blocks.{i}.operator.{part}" for i, part in [(0, "mean"), (1, "out.linear"), (3, "mean")]
    }


def test_gelu_has_nothing_eligible():
    c = count(Config.preset("tiny").with_overrides({"model.neuron": "gelu"}), width=64)
    assert c.eligible_share == c.eligible_share_no_bypass == 0
    assert c.lif_modules == {}


def test_counts_equal_torchs_flop_counter():
    """An independent count of the same pass: torch's counter sees every convolution and matrix product."""
    net = build(micro().model, 12)
    images, widths = torch.rand(2, 3, 32, 64), torch.tensor([64, 50])
    with counted_macs(net) as macs, FlopCounterMode(display=False) as flops, torch.no_grad():
        net(images, widths)
    assert macs.total() * 2 == pytest.approx(flops.get_total_flops(), rel=1e-3)
    assert dense_macs(micro(), 12, 64, 0.68) == count(micro(), 12, 64).dense_macs


def test_hooks_are_gone_afterwards():
    net = build(micro().model, 12)
    with counted_macs(net):
        pass
    assert all(not module._forward_hooks for module in net.modules())


def test_counting_leaves_the_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    count(micro(), width=32)
    assert torch.equal(torch.rand(1), expected)


def test_modules_carry_the_papers_names():
    with torch.device("meta"):
        names = list(spiking_modules(SpikeHTR(Config.preset("base").model, 80)))
    assert len(names) == len(set(names)) == 48
    published = ["Enc-S1-B0-PW1", "Enc-S1-B0-PW2", "Enc-S1-B0-DW", "Enc-S2-B0-PW1", "Enc-S3-B4-PW1"]
    published += ["Seq-4-LK-OUT", "Seq-5-MLP-FC2", "Seq-4-MLP-FC2", "Seq-3-LK-OUT", "Seq-0-MLP-FC2"]
    assert set(published) <= set(names)
    assert {group(name) for name in published[:5]} == {ENCODER}
    assert {group(name) for name in published[5:]} == {MIXER}


@pytest.mark.parametrize(
    ("arch", "scale", "features", "sequence", "heads"),
    [
        # 64 x 64 pixels. Convolutions: places x channels in x kernel x channels out.
        (
            "kraken",
            1 / 8,
            64 * 64 * 39 * 4 + 32 * 32 * 4 * 39 * 4 + 16 * 16 * 4 * 27 * 8 + 8 * 8 * 8 * 27 * 8,
            8 * 2 * 4 * 25 * ((64 + 25) + 2 * (50 + 25)),
            8 * 50 * 80,
        ),
        (
            "cnn-blstm",
            1 / 8,
            64 * 64 * 9 * 2 + 32 * 32 * 2 * 9 * 4 + 16 * 16 * 4 * 9 * 6 + 8 * 8 * 6 * 9 * 8 + 8 * 8 * 8 * 9 * 10,
            8 * 2 * 4 * 32 * ((80 + 32) + 4 * (64 + 32)),
            8 * 64 * 80,
        ),
    ],
)
def test_counts_are_those_done_by_hand(arch, scale, features, sequence, heads):
    config = Config.preset(arch).with_overrides({"model.baseline.scale": scale, "model.height": 64})
    c = count_baseline(config, 80, 64)
    assert c.macs == {"features": features, "sequence part": sequence, "heads": heads}
    assert c.dense_macs == features + sequence + heads
    assert (c.tokens_in, c.tokens_read) == (8, 8)


def test_attention_grows_with_the_square_of_the_length():
    config = Config.preset("htr-vt").with_overrides({"model.baseline.scale": 1 / 8, "model.height": 32})
    short, long = (count_baseline(config, 80, width).macs["sequence part"] for width in (128, 256))
    assert long - 2 * short == 4 * 2 * 96 * (64**2 - 2 * 32**2)  # layers, products, d


def test_the_reducer_spares_the_sequence_part_and_the_counting_no_random_number():
    config = Config.preset("retsinas").with_overrides({"model.baseline.scale": 1 / 8, "model.height": 32})
    torch.manual_seed(0)
    whole = count_baseline(config, 80, 400)
    reduced = count_baseline(config.with_reducer(), 80, 400)
    assert (whole.tokens_read, reduced.tokens_in, reduced.tokens_read) == (50, 50, 34)
    assert reduced.macs["sequence part"] == whole.macs["sequence part"] * 34 // 50
    assert reduced.macs["heads"] > whole.macs["heads"]  # the preview
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(1), after)
