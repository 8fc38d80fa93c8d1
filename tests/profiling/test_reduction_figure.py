"""The drawing of the reduction against the reducer itself, on a network whose head is set by hand."""

import numpy as np
import pytest
import torch

from conftest import draw_line, micro
from spikehtr.config import Config
from spikehtr.data.batching import to_batch
from spikehtr.errors import SpikeHTRError
from spikehtr.profiling.counts import build
from spikehtr.profiling.reduction_figure import (
    FILLED,
    LEFT,
    LIKELY,
    UNCERTAIN,
    _kinds,
    reduction_figure,
    trace_reduction,
)
from spikehtr.text import Charset

CHARSET = Charset(tuple("abcdefgh"))
LINE = draw_line("a long line of ink", 32)


def network(**overrides):
    """A head with large weights: sure here and there."""
    net = build(micro(**overrides).model, len(CHARSET))
    with torch.no_grad():
        net.head.linear.weight.mul_(40)
    return net


@pytest.mark.parametrize("mode", ["keep-and-merge", "prune-only", "merge-only"])
def test_the_trace_is_what_the_network_did(mode):
    net = network(reducer__mode=mode, reducer__gamma=0.3)
    trace = trace_reduction(net, CHARSET, LINE)
    with torch.no_grad():
        out = net(*to_batch([LINE]))
    positions = -(-LINE.shape[1] // 4)
    assert len(trace.blank) == len(trace.entropy) == len(trace.kind) == positions
    assert (trace.spans == out.spans[0, : int(out.lengths[0])].numpy()).all()
    assert trace.ratio == pytest.approx(len(trace.spans) / positions)
    kept = {int(first) for first, end in trace.spans if end - first == 1 and trace.kind[first] != LEFT}
    assert kept == set(np.flatnonzero(trace.kind != LEFT).tolist())
    assert "".join(character for character, _, _ in trace.characters) == trace.text
    assert all(0 <= x0 < x1 <= 4 * positions for _, x0, x1 in trace.characters)
    assert not net.reducer._forward_hooks


def test_why_a_position_is_kept():
    config = micro(reducer__tau=0.9, reducer__eta=1.0).model.reducer
    blank, entropy = torch.tensor([0.1, 0.95, 0.95, 0.99, 0.1]), torch.tensor([2.0, 1.5, 0.1, 0.1, 0.0])
    kept = torch.tensor([True, True, True, False, True])
    assert _kinds(blank, entropy, kept, config).tolist() == [LIKELY, UNCERTAIN, FILLED, LEFT, LIKELY]


@pytest.mark.parametrize("mode", ["keep-and-merge", "prune-only"])
def test_every_position_has_its_box(mode):
    net = network(reducer__mode=mode, reducer__gamma=0.3)
    trace = trace_reduction(net, CHARSET, LINE)
    figure = reduction_figure(LINE, trace, net.config.reducer, "a title with $ and \u6f22")
    image, posterior, entropy, strip, text = figure.axes
    assert image.images[0].get_array().shape == LINE.shape
    assert (posterior.lines[0].get_ydata() == trace.blank).all()
    assert (entropy.lines[0].get_ydata() == trace.entropy).all()
    assert sum(box.get_width() for box in strip.patches) == pytest.approx(4 * len(trace.kind))
    assert len(text.texts) == len(trace.characters)
    told = [label.get_text() for label in figure.legends[0].get_texts()]
    assert [int(label.split(": ")[1]) for label in told] == [int((trace.kind == kind).sum()) for kind in range(4)]


def test_a_baseline_with_the_reducer_can_be_drawn_and_one_without_cannot():
    from spikehtr.registry import build as build_any

    config = Config.preset("cnn-blstm").with_overrides({"model.baseline.scale": 1 / 16, "model.height": 32})
    trace = trace_reduction(build_any(config.with_reducer().model, len(CHARSET)).eval(), CHARSET, LINE)
    assert (trace.stride, len(trace.kind)) == (8, -(-LINE.shape[1] // 8))
    with pytest.raises(SpikeHTRError, match="does not reduce"):
        trace_reduction(build_any(config.model, len(CHARSET)).eval(), CHARSET, LINE)
