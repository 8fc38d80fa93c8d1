"""Norm and neuron of maps line by line, with their hand-written gradient, against the composition that they replace."""

import pytest
import torch

from spikehtr import ops
from spikehtr.ops.plain import by_line, maps
from spikehtr.ops.settings import Neuron, Norm

LINES, CHANNELS, HEIGHT, WIDTH = 3, 8, 3, 11
NEURONS = {
    "none": Neuron(ops.NONE),
    "gelu": Neuron(ops.GELU),
    "silu": Neuron(ops.SILU),
    "a spike": Neuron(ops.LIF, sharpness=2.0),
    "bursts": Neuron(ops.LIF, sharpness=2.0, burst=8),
    "bursts of a third apart": Neuron(ops.LIF, surrogate="sigmoid", burst=3, burst_step=1 / 3),
}


def leaves(steps, dtype):
    g = torch.Generator().manual_seed(steps)

    def draw(*shape):
        return torch.randn(shape, generator=g).to(dtype).requires_grad_()

    x, residual = (draw(steps, LINES, CHANNELS, HEIGHT, WIDTH) for _ in range(2))
    return x, draw(CHANNELS), draw(CHANNELS), draw(), residual


def compute(neuron, found, widths, with_all=True):
    x, weight, bias, alpha, residual = found
    more = (alpha, residual, torch.tensor([0.0, 1.25, 1.0])[: len(widths)]) if with_all else ()
    return maps.norm_neuron(x, widths, weight, bias, Norm(4), neuron, *more)


def value_and_gradients(neuron, dtype, with_all):
    steps = 1 if neuron.kind == ops.LIF else 2
    found = leaves(steps, dtype)
    y = compute(neuron, found, torch.tensor([WIDTH, 7, 1]), with_all)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    wanted = found if with_all else found[:3]
    return [y, *torch.autograd.grad(y, wanted, upstream)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("with_all", [True, False])
@pytest.mark.parametrize("name", NEURONS)
def test_equals_the_composition(name, with_all, dtype, monkeypatch):
    found = value_and_gradients(NEURONS[name], dtype, with_all)
    assert "ByLine" in type(found[0].grad_fn).__name__
    monkeypatch.setattr(by_line, "serves", lambda *_: False)
    expected = value_and_gradients(NEURONS[name], dtype, with_all)
    assert "ByLine" not in type(expected[0].grad_fn).__name__
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10 if dtype == torch.float64 else 2e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["none", "gelu", "silu"])
def test_gradient_is_that_of_small_differences(name):
    found, widths = leaves(2, torch.float64), torch.tensor([WIDTH, 7, 2])
    torch.autograd.gradcheck(lambda *given: compute(NEURONS[name], given, widths), found, nondet_tol=0, fast_mode=True)


@pytest.mark.parametrize("name", ["none", "bursts"])
def test_a_line_hangs_on_no_other_and_on_no_padding(name):
    neuron, (x, weight, bias, alpha, residual) = NEURONS[name], leaves(1, torch.float32)
    widths = torch.tensor([WIDTH, 7, 4])
    whole = compute(neuron, (x, weight, bias, alpha, residual), widths)
    for line, width in enumerate(widths.tolist()):
        own = (x[:, line : line + 1, ..., :width], weight, bias, alpha, residual[:, line : line + 1, ..., :width])
        gain = torch.tensor([[0.0, 1.25, 1.0][line]])
        alone = maps.norm_neuron(*own[:1], widths[line : line + 1], weight, bias, Norm(4), neuron, alpha, own[4], gain)
        assert torch.equal(alone[0, 0], whole[0, line, ..., :width])


def test_padding_stays_empty_and_gets_no_gradient():
    x, weight, bias, *_ = leaves(1, torch.float32)
    y = ops.group_norm(x, torch.tensor([WIDTH, 7, 1]), weight, bias, Norm(4))
    y.sum().backward()
    assert not y[0, 1, ..., 7:].any()
    assert not x.grad[0, 1, ..., 7:].any()
    assert x.grad[0, 1, ..., :7].any()


def test_what_is_traced_watched_or_needs_no_gradient_is_composed():
    x, weight, bias, *_ = leaves(1, torch.float32)
    norm, neuron = Norm(4), Neuron(ops.NONE)
    assert by_line.serves(x, norm, neuron, weight, bias)
    assert not by_line.serves(x, norm._replace(tap=lambda *_: None), neuron, weight, bias)
    assert not by_line.serves(x, norm, Neuron(ops.LIF, tap=lambda *_: None), weight, bias)
    assert not by_line.serves(x.bfloat16(), norm, neuron, weight, bias)
    two_steps = torch.cat([x, x])
    assert not by_line.serves(two_steps, norm, Neuron(ops.LIF), weight, bias)
    with torch.no_grad():
        assert not by_line.serves(x, norm, neuron, weight, bias)
