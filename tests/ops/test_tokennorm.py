"""LayerNorm, neuron, dropout and residual of tokens in one kernel, and the neuron alone, against the plain modules."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from conftest import ask_for
from spikehtr.config import LIFConfig
from spikehtr.model.lif import Gelu, MultiStepLIF, NoNeuron
from spikehtr.model.masking import TokenNorm
from spikehtr.ops.settings import Neuron
from spikehtr.ops.triton import tokennorm_op
from spikehtr.ops.triton.tokennorm_op import Drop, TokenNormLaunch, fire, token_norm_neuron

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
    ask_for(monkeypatch, "reference")


def draw(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def make_norm(channels):
    norm = TokenNorm(channels).to(DEVICE)
    norm.weight.data, norm.bias.data = 1 + 0.3 * draw(channels, seed=5), 0.5 * draw(channels, seed=6)
    return norm


def compare(steps, tokens, channels, name, tolerance, dtype=torch.float32):
    norm, neuron = make_norm(channels), NEURONS[name]
    residual, upstream = draw(steps, 2, tokens, channels, seed=1), draw(steps, 2, tokens, channels, seed=2)
    answers = []
    for way in ("reference", "fused"):
        x = draw(steps, 2, tokens, channels, dtype=dtype).requires_grad_()
        added = residual.clone().requires_grad_()
        if way == "reference":
            y = added + neuron(norm(x))
        else:
            plan = TokenNormLaunch(norm.eps, neuron.numbers, torch.float32)
            y = token_norm_neuron(x, norm.weight, norm.bias, plan, added)
        answers.append([y, *torch.autograd.grad(y, [x, added, norm.weight, norm.bias], upstream)])
    for expected, found in zip(*answers, strict=True):
        assert expected.dtype == found.dtype
        error = (expected.double() - found.double()).norm() / expected.double().norm()
        assert error <= tolerance


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NEURONS)
def test_every_neuron_at_every_number_of_steps(name, steps):
    compare(steps, 7, 24, name, 1e-5)


@pytest.mark.parametrize(("tokens", "channels"), [(1, 3), (5, 33), (300, 8), (3, 2100)])
def test_odd_sizes(tokens, channels):
    compare(2, tokens, channels, "gelu", 1e-4)


@pytest.mark.parametrize("programs", [1, 3])
def test_a_program_takes_several_tiles(programs, monkeypatch):
    monkeypatch.setattr(tokennorm_op, "_PROGRAMS", {2: programs})
    compare(2, 150, 40, "gelu", 1e-4)  # 300 tokens, 16 a tile: 19 tiles, the last one short


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_and_fp32_inside(dtype):
    compare(2, 7, 24, "atan", 1e-2, dtype)


@needs_gpu
@pytest.mark.parametrize("channels", [384, 1152, 3072])
def test_real_sizes(channels):
    compare(2, 500, channels, "atan", 1e-3)


def test_dropout_is_one_draw_for_all_steps_and_both_passes():
    """Without a neuron no result is 0, so a quotient of results is what dropout multiplied with."""
    norm, x = make_norm(32), draw(2, 40, 9, 32).requires_grad_()
    plan = TokenNormLaunch(norm.eps, Neuron(), torch.float32, tokens=9)
    y = token_norm_neuron(x, norm.weight, norm.bias, plan)
    drop = Drop(torch.tensor([12], device=DEVICE), 0.25, 0.5)
    dropped = token_norm_neuron(x, norm.weight, norm.bias, plan._replace(drop=drop))
    gain = (dropped / y).detach()
    lines = gain.flatten(2).abs().amax(2) > 0  # [T, B]
    kept = (gain != 0).float()
    assert torch.equal(lines[0], lines[1])
    assert torch.allclose(gain[0], gain[1], atol=1e-4)
    assert torch.allclose(gain[gain != 0], torch.tensor(1 / (0.75 * 0.5), device=DEVICE), rtol=1e-3)
    assert 10 <= lines[0].sum() <= 30
    assert abs(kept[:, lines[0]].mean() - 0.75) < 0.05
    upstream = draw(2, 40, 9, 32, seed=3)
    (found,) = torch.autograd.grad(dropped, x, upstream)
    (expected,) = torch.autograd.grad(y, x, upstream * kept / (0.75 * 0.5))
    assert torch.allclose(found, expected, atol=1e-5)


def test_units_are_drawn_evenly_and_apart():
    """Neighbours, tokens and seeds know nothing of each other."""
    norm, x = make_norm(64), draw(1, 1, 512, 64)
    plan = TokenNormLaunch(norm.eps, Neuron(), torch.float32, tokens=512)
    kept = []
    for seed in (1, 2):
        drop = Drop(torch.tensor([seed], device=DEVICE), 0.5, 0.0)
        kept.append(token_norm_neuron(x, norm.weight, norm.bias, plan._replace(drop=drop))[0, 0] != 0)
    one, two = (k.float() * 2 - 1 for k in kept)  # [512, 64] of -1 and 1, sums of n of them spread by sqrt(n)
    for product in (one, one[1:] * one[:-1], one[:, 1:] * one[:, :-1], one * two):
        assert product.sum().abs() < 4 * product.numel() ** 0.5
    assert one.sum(0).abs().max() < 5 * 512**0.5
    assert one.sum(1).abs().max() < 5 * 64**0.5


def test_the_draw_follows_torch_s_seed():
    torch.manual_seed(3)
    first = [int(Drop.draw(0.1, 0.2, DEVICE).seed) for _ in range(3)]
    assert len(set(first)) == 3
    torch.manual_seed(3)
    assert [int(Drop.draw(0.1, 0.2, DEVICE).seed) for _ in range(3)] == first


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_neuron_alone(steps, dtype):
    neuron = NEURONS["atan"]
    x = (1.5 * draw(steps, 3, 7, 5)).to(dtype).requires_grad_()
    upstream = draw(steps, 3, 7, 5, seed=1, dtype=dtype)
    expected, found = neuron(x), fire(x, neuron.numbers)
    assert torch.equal(expected, found)
    (a,), (b,) = (torch.autograd.grad(y, x, upstream) for y in (expected, found))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    assert torch.allclose(a, b, rtol=tolerance, atol=tolerance)
