"""The gradient of a depthwise convolution on a CPU, beside PyTorch's own."""

import platform

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import micro
from spikehtr import SpikeHTR, kernels
from spikehtr.kernels.depthwise_cpu import depthwise
from spikehtr.model.encoder import Conv2d


@settings(max_examples=40, deadline=None)
@given(
    lines=st.integers(1, 3),
    channels=st.integers(1, 5),
    size=st.tuples(st.integers(1, 7), st.integers(1, 19)),
    kernel=st.tuples(st.sampled_from([1, 3, 5]), st.sampled_from([1, 3, 7])),
    seed=st.integers(0, 1 << 16),
)
def test_it_is_the_convolution_and_its_gradients(lines, channels, size, kernel, seed):
    draw = torch.Generator().manual_seed(seed)
    x, weight = (
        torch.randn(*shape, generator=draw, dtype=torch.float64).requires_grad_()
        for shape in ((lines, channels, *size), (channels, 1, *kernel))
    )
    expected = F.conv2d(x, weight, padding=(kernel[0] // 2, kernel[1] // 2), groups=channels)
    found = depthwise(x, weight)
    assert torch.equal(found, expected)
    upstream = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    for ours, theirs in zip(*(torch.autograd.grad(y, (x, weight), upstream) for y in (found, expected)), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("frozen", [0, 1])
def test_only_what_is_wanted_is_computed(frozen):
    tensors = [torch.randn(2, 3, 4, 5), torch.randn(3, 1, 3, 3)]
    tensors[1 - frozen].requires_grad_()
    depthwise(*tensors).sum().backward()
    assert tensors[frozen].grad is None
    assert tensors[1 - frozen].grad is not None


def test_where_it_is_taken(monkeypatch):
    monkeypatch.delenv("SPIKEHTR_KERNELS", raising=False)
    x = torch.zeros(1)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert kernels.own_gradient(x)
    with torch.no_grad():
        assert not kernels.own_gradient(x)
    monkeypatch.setenv("SPIKEHTR_KERNELS", "reference")
    assert not kernels.own_gradient(x)
    monkeypatch.delenv("SPIKEHTR_KERNELS")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert not kernels.own_gradient(x)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((4, 4, 5, 1, 2, 1, 4, False), True),
        ((4, 4, 5, 1, 2, 1, 4, True), False),
        ((4, 4, 5, 2, 2, 1, 4, False), False),
        ((4, 4, 5, 1, 2, 1, 2, False), False),
        ((4, 8, 5, 1, 2, 1, 4, False), False),
        ((1, 1, 5, 1, 2, 1, 1, False), False),
        ((4, 4, 2, 1, 1, 1, 4, False), False),
        ((4, 4, 5, 1, 0, 1, 4, False), False),
        ((4, 4, 3, 1, 2, 2, 4, False), False),
    ],
)
def test_which_convolutions_are_meant(arguments, found):
    assert Conv2d(*arguments).depthwise == found


def test_a_network_learns_the_same(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    config = micro()
    torch.manual_seed(0)
    net = SpikeHTR(config.model, 12).double().eval()
    images, widths = torch.rand(2, 1, config.model.height, 70, dtype=torch.float64), torch.tensor([70, 41])
    found = []
    for way in ("reference", "auto"):
        monkeypatch.setenv("SPIKEHTR_KERNELS", way)
        net.zero_grad()
        net(images, widths).logits.square().sum().backward()
        found.append({name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None})
    assert any("dw.conv" in name for name in found[0])
    for name, gradient in found[0].items():
        assert torch.allclose(found[1][name], gradient, rtol=1e-7, atol=1e-9), name
