"""Norm, neuron, shortcut, mask and residual of maps in fused kernels against the plain modules."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from conftest import ask_for
from spikehtr.config import LIFConfig
from spikehtr.model.lif import Gelu, MultiStepLIF, NoNeuron
from spikehtr.model.masking import MaskedGroupNorm, column_mask
from spikehtr.ops.settings import Neuron
from spikehtr.ops.triton.groupnorm_op import GroupNormLaunch, norm_neuron

NEURONS = {
    "none": NoNeuron(),
    "atan": MultiStepLIF(LIFConfig()),
    "sigmoid": MultiStepLIF(LIFConfig(surrogate="sigmoid", decay=0.7, threshold=0.8, surrogate_alpha=3.0)),
    "bursts": MultiStepLIF(LIFConfig(), burst=4),
    "sigmoid bursts": MultiStepLIF(LIFConfig(surrogate="sigmoid", burst_step=0.25), burst=3),
    "gelu": Gelu(),
}


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    ask_for(monkeypatch, "reference")  # for the modules compared with


def make(steps, channels, height, width, dtype=torch.float32, seed=0, groups=4):
    """Random map, widths (the second line padded, if there is room), norm, shortcut, residual, gain, upstream."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=g).to(DEVICE)

    x, residual, upstream = (draw(steps, 2, channels, height, width).to(dtype) for _ in range(3))
    widths = torch.tensor([width, max(1, width - 5)], device=DEVICE)
    norm = MaskedGroupNorm(channels, groups).to(DEVICE)
    norm.weight.data, norm.bias.data = 1 + 0.3 * draw(channels), 0.5 * draw(channels)
    return x, widths, norm, residual, upstream


def reference(x, widths, norm, neuron, alpha, residual, gain):
    h = norm(x, widths)
    y = neuron(h)
    if alpha is not None:
        y = y + alpha * h
    y = y * column_mask(widths, x.shape[-1])
    if gain is not None:
        y = y * gain[:, None, None, None]
    return y if residual is None else residual + y


def fused(x, widths, norm, neuron, alpha, residual, gain):
    plan = GroupNormLaunch(norm.groups, norm.eps, neuron.numbers, x.dtype)
    return norm_neuron(x, widths, norm.weight, norm.bias, plan, alpha, residual, gain)[0]


def compare(x, widths, norm, residual, upstream, neuron, tolerance, alpha=0.3, gain=(0.0, 1.25), with_residual=True):
    answers = []
    for function in (reference, fused):
        leaves = [x.detach().clone().requires_grad_(), norm.weight, norm.bias]
        share = None if alpha is None else torch.tensor(alpha, device=DEVICE, requires_grad=True)
        added = residual.detach().clone().requires_grad_() if with_residual else None
        leaves += [t for t in (share, added) if t is not None]
        factor = None if gain is None else torch.tensor(gain, device=DEVICE)
        y = function(leaves[0], widths, norm, neuron, share, added, factor)
        answers.append([y, *torch.autograd.grad(y, leaves, upstream.to(y.dtype))])
    for expected, found in zip(*answers, strict=True):
        assert expected.shape == found.shape
        error = (expected.double() - found.double()).norm() / expected.double().norm().clamp(min=1e-6)
        assert error <= tolerance


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NEURONS)
def test_every_neuron_at_every_number_of_steps(name, steps):
    compare(*make(steps, 6, 1, 9, seed=steps, groups=2), NEURONS[name], 1e-5)


@pytest.mark.parametrize(("channels", "height", "width"), [(12, 1, 1), (20, 5, 2), (36, 1, 70), (68, 1, 7)])
def test_odd_sizes(channels, height, width):
    """Width 1, more rows than a program takes, more columns than a tile, more channels than a block."""
    compare(*make(2, channels, height, width), NEURONS["atan"], 1e-5)


@pytest.mark.parametrize("alpha", [None, 0.3])
@pytest.mark.parametrize("gain", [None, (0.0, 2.0)])
@pytest.mark.parametrize("with_residual", [False, True])
def test_with_and_without_its_parts(alpha, gain, with_residual):
    case = make(2, 6, 1, 9, groups=2)
    compare(*case, NEURONS["atan"], 1e-5, alpha=alpha, gain=gain, with_residual=with_residual)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("steps", [1, 2])
def test_half_precision_in_and_fp32_inside(dtype, steps):
    """The same input in half precision: only the results are rounded, no spike differs."""
    x, widths, norm, residual, upstream = make(steps, 12, 2, 9, dtype)
    neuron = NEURONS["atan"]
    spikes = fused(x, widths, norm, neuron, None, None, None)
    expected = reference(x, widths, norm, neuron, None, None, None)
    near = (norm(x, widths) - 1).abs().amin(0) < 1e-3
    assert torch.equal(spikes.float()[:, ~near], expected[:, ~near])
    compare(x, widths, norm, residual, upstream, neuron, 1e-2)


def test_both_gradients_meet_in_a_fork():
    x, widths, norm, other, upstream = make(2, 12, 2, 9)
    upstream = upstream * column_mask(widths, 9)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad([norm(leaf, widths), leaf * 1], leaf, [upstream, other])
    plan = GroupNormLaunch(norm.groups, norm.eps, Neuron(), torch.float32, fork=True)
    y, through = norm_neuron(leaf, widths, norm.weight, norm.bias, plan)
    assert torch.equal(through, x)
    (found,) = torch.autograd.grad([y, through], leaf, [upstream, other], retain_graph=True)
    assert torch.allclose(found, expected, atol=1e-5)
    (alone,) = torch.autograd.grad(through, leaf, other)
    assert torch.equal(alone, other)


def test_a_line_does_not_hang_on_padding_or_mates():
    """To the last bit: alone and without padding, or in a batch, padded to another tile, with dirt there."""
    x, widths, norm, _, _ = make(2, 12, 5, 75)
    plan = GroupNormLaunch(norm.groups, norm.eps, NEURONS["atan"].numbers, torch.float32)
    alpha = torch.tensor(0.3, device=DEVICE)
    x[:, 1, :, :, 40:] = torch.nan
    widths[1] = 40
    together = norm_neuron(x, widths, norm.weight, norm.bias, plan, alpha)[0]
    alone = norm_neuron(x[:, 1:, :, :, :40], widths[1:], norm.weight, norm.bias, plan, alpha)[0]
    assert torch.equal(together[:, 1:, :, :, :40], alone)
    assert not together[:, 1, :, :, 40:].any()


@needs_gpu
@pytest.mark.parametrize("channels", [96, 240, 768])
def test_real_sizes(channels):
    compare(*make(2, channels, 16, 500), NEURONS["atan"], 1e-3)
