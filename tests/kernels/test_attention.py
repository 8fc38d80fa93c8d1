"""Linear attention's matched mean and QK's gate, where q, k, v lie, against the plain modules."""

import pytest
import torch
from kernels_help import DEVICE, needs_gpu

from spikehtr.config import LIFConfig
from spikehtr.kernels.attention_op import gate, matched_mean
from spikehtr.model.lif import spike
from spikehtr.model.mixer import MatchedMean


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
        q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(3)
        return MatchedMean()(q, k * mask[:, :, None, None], v).flatten(3)

    assert_parity(lambda qkv: matched_mean(qkv, mask, heads, torch.float32), plain, x, 1e-5)


@pytest.mark.parametrize(("length", "size"), [(9, 8), pytest.param(256, 64, marks=needs_gpu)])
@pytest.mark.parametrize("spikes", [True, False])
def test_matched_mean_in_half_precision(length, size, spikes):
    x = draw(1, 2, length, 6 * size, spikes=spikes).bfloat16()
    mask = torch.arange(length, device=DEVICE) < torch.tensor([[length], [length - 4]], device=DEVICE)

    def plain(qkv):
        q, k, v = qkv.float().unflatten(-1, (3, 2, -1)).unbind(3)
        return MatchedMean()(q, k * mask[:, :, None, None], v).flatten(3).bfloat16()

    assert_parity(lambda qkv: matched_mean(qkv, mask, 2, torch.bfloat16), plain, x, 1e-2)


@pytest.mark.parametrize("lif", [None, LIFConfig(), LIFConfig(surrogate="sigmoid", surrogate_alpha=3.0)])
@pytest.mark.parametrize(("length", "heads", "size"), [(1, 1, 1), (5, 3, 6)])
def test_gate(length, heads, size, lif):
    x = draw(2, 2, length, 2 * heads * size, spikes=lif is not None)

    def plain(qk):
        q, k = qk.unflatten(-1, (2, heads, -1)).unbind(3)
        excess = q.sum(-1, keepdim=True) - 0.5
        a = torch.sigmoid(excess) if lif is None else spike(excess, lif.surrogate, lif.surrogate_alpha)
        return (a * k).flatten(3)

    assert_parity(lambda qk: gate(qk, heads, lif, torch.float32), plain, x + 0.0, 1e-5)


@needs_gpu
def test_real_size():
    x = draw(2, 4, 148, 3 * 384, spikes=True)
    mask = torch.ones(4, 148, dtype=torch.bool, device=DEVICE)

    def plain(qkv):
        return MatchedMean()(*qkv.unflatten(-1, (3, 6, -1)).unbind(3)).flatten(3)

    assert_parity(lambda qkv: matched_mean(qkv, mask, 6, torch.float32), plain, x, 1e-4)
