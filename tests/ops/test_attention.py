"""Linear attention's matched mean and QK's gate, where q, k, v lie, against the plain modules."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from spikehtr.ops.plain import tokens
from spikehtr.ops.settings import GELU, LIF, Neuron
from spikehtr.ops.triton.attention_op import gate, matched_mean


def draw(*shape, spikes=False, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    return (values > 0.5).float() if spikes else values


def assert_parity(function, plain, x, tolerance):
    leaf = x.clone().requires_grad_()
    expected, found = plain(leaf), function(leaf)
    assert found.shape == expected.shape
    upstream = draw(*expected.shape, seed=1)
    (a,), (b,) = (torch.autograd.grad(y, leaf, upstream.to(y.dtype)) for y in (expected, found))
    for one, two in ((expected, found), (a, b)):
        assert (one.double() - two.double()).norm() <= tolerance * one.double().norm()


@pytest.mark.parametrize("spikes", [True, False])
@pytest.mark.parametrize(("length", "heads", "size"), [(1, 1, 3), (7, 2, 8), (70, 1, 20)])
def test_matched_mean(length, heads, size, spikes):
    x = draw(2, 2, length, 3 * heads * size, spikes=spikes)
    mask = torch.arange(length, device=DEVICE) < torch.tensor([[length], [max(1, length - 3)]], device=DEVICE)

    def plain(qkv):
        return tokens.matched_mean(qkv, mask, heads)

    assert_parity(lambda qkv: matched_mean(qkv, mask, heads, torch.float32), plain, x, 1e-5)


@pytest.mark.parametrize(("length", "size"), [(9, 8), pytest.param(256, 64, marks=needs_gpu)])
@pytest.mark.parametrize("spikes", [True, False])
def test_matched_mean_in_half_precision(length, size, spikes):
    x = draw(1, 2, length, 6 * size, spikes=spikes).bfloat16()
    mask = torch.arange(length, device=DEVICE) < torch.tensor([[length], [length - 4]], device=DEVICE)

    def plain(qkv):
        return tokens.matched_mean(qkv, mask, 2).bfloat16()

    assert_parity(lambda qkv: matched_mean(qkv, mask, 2, torch.bfloat16), plain, x, 1e-2)


NEURONS = [Neuron(GELU), Neuron(LIF, sharpness=2.0), Neuron(LIF, surrogate="sigmoid", sharpness=3.0)]


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize(("length", "heads", "size"), [(1, 1, 1), (5, 3, 6)])
def test_gate(length, heads, size, neuron):
    x = draw(2, 2, length, 2 * heads * size, spikes=neuron.kind == LIF)

    def plain(qk):
        return tokens.pass_keys(qk, heads, neuron)

    assert_parity(lambda qk: gate(qk, heads, neuron, torch.float32), plain, x + 0.0, 1e-5)


@needs_gpu
def test_real_size():
    x = draw(2, 4, 148, 3 * 384, spikes=True)
    mask = torch.ones(4, 148, dtype=torch.bool, device=DEVICE)

    def plain(qkv):
        return tokens.matched_mean(qkv, mask, 6)

    assert_parity(lambda qkv: matched_mean(qkv, mask, 6, torch.float32), plain, x, 1e-4)
