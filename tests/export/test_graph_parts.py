"""Every part of the network as an ONNX graph of its own, at sizes that it was not traced with.

A graph of the whole takes a minute to make, one of a part seconds.
"""

import pytest
import torch
from export_help import loaded
from torch import nn
from torch.export import Dim

from spikehtr.export.tracing import capture
from spikehtr.model.masking import shrink, valid_mask

runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")

from spikehtr.export.onnx import translate  # noqa: E402


class Part(nn.Module):
    """A function of a network, a tensor and the sizes of its lines, as a module."""

    def __init__(self, net, function):
        super().__init__()
        self.net, self.function = net, function

    def forward(self, x, sizes):
        return self.function(self.net, x, sizes)


def start(net, images, widths):
    e = net.encoder
    return (e.entry(e.stem(images, shrink(widths, e.strides[0])), images, widths),)


def body(net, x, widths):
    """A stage, fusion and height pooling; for stage 3 stands stage 2, shrunk."""
    e, widths2 = net.encoder, shrink(widths, 2)
    f2 = e.stage2(x, widths2, widths)
    f3 = e.fusion.down(f2.repeat(1, 1, 2, 1, 1), widths2)
    return (e.pool(e.fusion(f2, f3, widths2, shrink(widths, 4))),)


def reduce(net, z, lengths):
    found = net.reduce(z, lengths, full=True)
    return found.tokens, found.lengths, found.spans


def reduce_blanks(net, z, lengths):
    """Sure of blanks everywhere, so that the fewest are kept that may be: those that are the least sure."""
    sure = torch.tensor([30.0, 0, 0, 0])
    found = net.reducer(z, lengths, 4 * z.mean(0)[..., :4] + sure, full=True)
    return found.tokens, found.lengths, found.spans


def mix(net, z, lengths):
    return (net.mixer(z, valid_mask(lengths, z.shape[2])),)


COARSE = {"encoder__stem_stride": [4, 2], "encoder__strides": [[1, 1], [2, 2], [2, 1]], "in_channels": 1}
# Function, settings, a batch's shape (None: lines; 0: the axis along them), units that this axis is whole in.
PARTS = {
    "start on a coarse grid": (start, COARSE | {"timesteps": 1}, (None, 1, 32, 0), 4),
    "body": (body, {"timesteps": 1, "encoder__pw1_burst": 3}, (1, None, 8, 8, 0), 4),
    "mixer": (mix, {"mixer__blocks": ["QK", "LK", "SR"], "mixer__burst": 3}, (2, None, 0, 32), 1),
    "merge-only": (reduce, {"reducer__mode": "merge-only"}, (2, None, 0, 32), 1),
    "blanks": (reduce_blanks, {"reducer__gamma": 0.4}, (2, None, 0, 32), 1),
    "prune-only": (reduce, {"reducer__mode": "prune-only"}, (2, None, 0, 32), 1),
}


@pytest.mark.slow  # all of them in one graph: test_onnx.py
@pytest.mark.parametrize("name", PARTS)
@torch.no_grad()
def test_a_part_s_graph_computes_what_the_part_does(name):
    function, overrides, shape, unit = PARTS[name]
    part = Part(loaded(**overrides).net, function)

    def line(count, size):
        return torch.rand([{None: count, 0: size}.get(side, side) for side in shape])

    batch, units = Dim("batch", min=1, max=64), Dim("units", min=1, max=64)
    dynamic = ({shape.index(None): batch, shape.index(0): unit * units}, {0: batch})
    program = capture(part, (line(2, 8 * unit), torch.tensor([8, 5]) * unit), dynamic)
    outputs = [f"out{number}" for number in range(len(program.graph_signature.user_outputs))]
    session = runtime.InferenceSession(translate(program, ("x", "sizes"), outputs).SerializeToString())
    for count, size in ((1, unit), (3, 5 * unit), (2, 13 * unit)):
        x, sizes = line(count, size), torch.randint(1, size + 1, (count,))
        sizes[0] = size
        ours = part(x, sizes)
        theirs = session.run(outputs, {"x": x.numpy(), "sizes": sizes.numpy()})
        for a, b in zip(ours, map(torch.from_numpy, theirs), strict=True):
            assert a.shape == b.shape
            assert torch.allclose(a, b, atol=1e-4), (a - b).abs().max()
