"""Operations of single layers against a count tap by tap; of whole networks against two independent counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conftest import micro
from spikehtr import Config
from spikehtr.model.mixer import MatchedMean
from spikehtr.profiling.counts import build, record_sample
from spikehtr.profiling.ledger import LayerWork, Ledger, _convolution, _linear, _matched
from spikehtr.profiling.record_activity import recording, with_changes
from spikehtr.profiling.watched_layers import Extent


def extent_of(widths, canvas):
    extent = Extent()
    extent.widths = extent.tokens = torch.tensor(widths)
    extent.canvas = canvas
    return extent


def taps_that_carry(conv, x, widths_in, widths_out):
    """Additions by brute force: for each output of a line, each tap inside the line's map, each unit of input there."""
    kh, kw = conv.kernel_size
    (sh, sw), (ph, pw) = conv.stride, conv.padding
    rows = (x.shape[2] + 2 * ph - kh) // sh + 1
    per_group = conv.in_channels // conv.groups
    found = 0
    for n in range(x.shape[0]):
        line = n % len(widths_in)
        for out in range(conv.out_channels):
            first = out // (conv.out_channels // conv.groups) * per_group
            for i in range(rows):
                for j in range(widths_out[line]):
                    for y in range(i * sh - ph, i * sh - ph + kh):
                        for z in range(j * sw - pw, j * sw - pw + kw):
                            if 0 <= y < x.shape[2] and 0 <= z < widths_in[line]:
                                found += int(x[n, first : first + per_group, y, z].sum())
    return found


@given(
    st.integers(0, 2**31),
    st.sampled_from([(1, 1), (3, 1), (3, 2), (5, 1), (7, 4)]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.lists(st.integers(1, 8), min_size=1, max_size=2),
)
def test_additions_of_a_convolution(seed, shape, groups, steps, widths):
    kernel, stride = shape
    torch.manual_seed(seed)
    conv = nn.Conv2d(4, 4, kernel, stride, kernel // 2, groups=groups, bias=False)
    canvas = 8
    x = (torch.rand(steps * len(widths), 4, 4, canvas) < 0.3).float() * torch.randint(1, 4, (1,))
    for n in range(len(x)):
        x[n, :, :, widths[n % len(widths)] :] = 0
    out = [-(-w // stride) for w in widths]
    row = LayerWork("conv")
    _convolution(row, conv, x, conv(x), extent_of(widths, canvas))
    assert row.macs == steps * sum(out) * conv(x).shape[2] * 4 * 4 // groups * kernel**2
    assert row.inputs == steps * sum(widths) * 4 * 4
    if row.eligible():
        assert row.additions == taps_that_carry(conv, x, widths, out)


def test_a_spike_at_the_border_reaches_fewer_outputs():
    conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    found = []
    for place in [(0, 0), (0, 2), (2, 2)]:
        x = torch.zeros(1, 1, 5, 5)
        x[0, 0, place[0], place[1]] = 1
        row = LayerWork("conv")
        _convolution(row, conv, x, conv(x), extent_of([5], 5))
        found.append(row.additions)
    assert found == [4, 6, 9]


def test_a_linear_layer_and_padding_that_holds_nonsense():
    x = torch.zeros(2, 1, 4, 6)
    x[:, 0, 1, :2] = 1
    x[:, 0, 3] = 0.5  # past the line's end
    row = LayerWork("fc2")
    _linear(row, nn.Linear(6, 5, bias=False), x, extent_of([3], 4))
    assert (row.macs, row.additions, row.eligible()) == (2 * 3 * 6 * 5, 4 * 5, True)


def test_matched_mean_adds_where_both_fire():
    torch.manual_seed(0)
    q, k, v = ((torch.rand(2, 1, 5, 3, 4) < 0.3).float() for _ in range(3))
    row = LayerWork("mean")
    _matched(row, (q, k, v), extent_of([5], 5))
    context = int(torch.einsum("tblhi,tblhj->", k, v))
    assert row.additions == context + int(q.sum()) * 4 + int(q.sum())
    assert row.macs == q.numel() * 9
    qkv = torch.stack([q, k, v], dim=3).flatten(3)
    assert MatchedMean(3)(qkv, torch.ones(1, 5, dtype=torch.bool)).shape == q.flatten(3).shape


@pytest.mark.parametrize(
    ("values", "eligible", "binary"),
    [([0, 0, 1], True, True), ([0, 0, 2], True, False), ([0, 0, 17], False, False), ([0, 1, 1], False, False),
     ([0, 0, -1], False, False), ([0, 0, 0.5], False, False)],
)  # fmt: skip
def test_what_counts_as_spikes(values, eligible, binary):
    row = LayerWork("fc")
    _linear(row, nn.Linear(3, 2), torch.tensor(values).float()[None, None], extent_of([1], 1))
    assert (row.eligible(), row.eligible(binary=True)) == (eligible, binary)


def test_the_whole_network_against_torchs_counter():
    net = build(micro().model, 12)
    line = torch.rand(1, 1, 32, 64).expand(2, -1, -1, -1)  # twice the same: as many tokens each, so none is padding
    with recording(net) as record, FlopCounterMode(display=False) as flops, torch.no_grad():
        net(line, torch.tensor([64, 64]))
    assert len(set(record.extent.tokens.tolist())) == 1
    for part, name in (("", "SpikeHTR"), ("encoder.", "SpikeHTR.encoder"), ("mixer.", "SpikeHTR.mixer")):
        counted = sum(row.macs for row in record.work.values() if row.name.startswith(part))
        assert 2 * counted == pytest.approx(sum(flops.get_flop_counts()[name].values()), rel=1e-3)


def sample_ledger(net):
    return Ledger(list(record_sample(net, 64, 0.68)[0].work.values()), 1, net.config.timesteps)


@pytest.mark.slow  # the same figures counted otherwise: test_counts.py
def test_base_reproduces_the_papers_counts():
    """An eighth of the canvas has an eighth of everything; `test_counts` counts the whole of it."""
    net = build(Config.preset("base").model, 80)
    default = sample_ledger(net)
    assert 8 * default.dense == pytest.approx(1.952e11, rel=0.015)
    assert 8 * default.stem == 169_869_312
    assert default.eligible_share() == pytest.approx(0.359, abs=0.015)
    assert default.eligible_share(binary=True) == default.eligible_share()
    pure = sample_ledger(with_changes(net, {"model.encoder.bypass": False}))
    assert pure.eligible_share() == pytest.approx(0.477, abs=0.015)
    assert default.eligible_share() <= pure.eligible_share(binary=True) < pure.eligible_share()
