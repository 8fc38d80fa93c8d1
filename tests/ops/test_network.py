"""The whole network on the fast path against the reference: outputs and the gradient of every parameter."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_help import DEVICE, needs_gpu

from conftest import ask_for, micro
from spikehtr import ops
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.model import SpikeHTR
from spikehtr.model.encoder import Conv2d
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import valid_mask
from spikehtr.model.watching import watch
from spikehtr.ops import dispatch
from spikehtr.ops.triton.functions import conv2d

SMALL = {"dim": 16, "height": 4, "encoder__kernel": 1, "encoder__norm_groups": 2, "mixer__lk_kernel": 3}

pytestmark = pytest.mark.usefixtures("full_precision")


def answers(net, images, widths, monkeypatch, way, dtype=None):
    ask_for(monkeypatch, way)
    net.zero_grad(set_to_none=True)
    with torch.autocast(DEVICE.type, dtype or torch.bfloat16, enabled=dtype is not None):
        out = net(images, widths)
    inside = valid_mask(out.lengths, out.logits.shape[1])[..., None]  # padding is no result
    ((out.logits.float() * inside).square().mean() + (out.aux_logits.float() * inside).square().mean()).backward()
    return out, {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


def build(config, vocab=12):
    torch.manual_seed(0)
    net = SpikeHTR(config.model, vocab)
    for p in net.parameters():  # on the CPU, so that a GPU is asked the same: a few weights leave a gradient no digits
        p.data += 0.05 * torch.randn_like(p)
    return net.to(DEVICE)


def assert_parity(net, images, widths, monkeypatch, tolerance):
    plain, expected = answers(net, images, widths, monkeypatch, "reference")
    quick, found = answers(net, images, widths, monkeypatch, "triton")
    assert torch.equal(plain.lengths, quick.lengths)
    assert torch.allclose(plain.logits, quick.logits, atol=1e-3)
    assert expected.keys() == found.keys()
    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    off = {}
    for name, gradient in expected.items():
        # What all but cancels has no digits left: in fp32 the reference's own may be percents off.
        error = (gradient - found[name]).norm() / gradient.norm().clamp(min=1e-5 * whole)
        if error > tolerance:
            off[name] = float(error)
    if off:  # a sum that cancels in fp32, such as a single number's gradient: then neither is nearer to the exact one
        _, exact = answers(copy.deepcopy(net).double(), images.double(), widths, monkeypatch, "reference")
        nearer = [n for n in off if (found[n] - exact[n]).norm() <= 3 * (expected[n] - exact[n]).norm()]
        assert nearer == list(off), {name: f"{error:.1e}" for name, error in off.items()}


@pytest.mark.parametrize(
    ("steps", "neuron", "entry"), [pytest.param(2, "lif", "inkcoder", marks=pytest.mark.slow), (1, "gelu", "repeat")]
)
def test_outputs_and_every_gradient(steps, neuron, entry, monkeypatch):
    variant = {"timesteps": steps, "neuron": neuron, "entry": entry, "mixer__dropout": 0.0, "mixer__drop_path": 0.0}
    net = build(micro(**variant, **SMALL)).train()
    images = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert_parity(net, images, torch.tensor([5, 2]), monkeypatch, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "burst"), [(False, 1), (True, 2)])
def test_outputs_and_every_gradient_on_a_coarse_grid(first, burst, monkeypatch):
    grid = {"encoder__stem_stride": (4, 2), "encoder__strides": ((1, 1), (2, 2), (2, 1)), "encoder__channels": (8, 12)}
    still = {"timesteps": 1, "mixer__blocks": ["LK"], "mixer__dropout": 0.0, "mixer__drop_path": 0.0}
    bursts = {"encoder__spikes_first": first, "encoder__pw1_burst": 3, "mixer__burst": burst}
    net = build(micro(**SMALL | grid | still | bursts | {"height": 16})).train()
    images = torch.rand(2, 1, 16, 11, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert_parity(net, images, torch.tensor([11, 6]), monkeypatch, 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("neuron", "mixer"),
    [*(pytest.param(*both, marks=pytest.mark.slow) for both in (("lif", "read"), ("gelu", "alone"))), ("lif", "alone")],
)
def test_outputs_and_every_gradient_without_neurons_that_nobody_reads(neuron, mixer, monkeypatch):
    read = {"encoder__neurons": "read", "mixer__neurons": mixer, "encoder__pw1_burst": 2, "neuron": neuron}
    still = {"mixer__blocks": ["LK", "QK", "SR"], "mixer__dropout": 0.0, "mixer__drop_path": 0.0}
    net = build(micro(**SMALL | read | still)).train()
    images = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    assert_parity(net, images, torch.tensor([6, 3]), monkeypatch, 1e-3)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 3]), st.sampled_from([(3, 3), (7, 3), (7, 7)]), st.integers(1, 9), st.integers(1, 13))
def test_a_convolution_of_an_image(channels, kernel, height, width):
    stride = tuple((side + 1) // 2 for side in kernel) if kernel != (3, 3) else (1, 1)
    conv = Conv2d(channels, 5, kernel, stride, tuple(side // 2 for side in kernel)).double().to(DEVICE)
    x = torch.randn(2, channels, height, width, dtype=torch.float64, device=DEVICE, requires_grad=True)
    quick, plain = conv2d(x, conv.weight, conv.bias, stride), F.conv2d(x, conv.weight, conv.bias, stride, conv.padding)
    assert torch.allclose(quick, plain)
    seed = torch.randn_like(plain)
    wanted, places = [x, conv.weight, conv.bias], (quick, plain)
    for found, expected in zip(*(torch.autograd.grad(y, wanted, seed) for y in places), strict=True):
        assert torch.allclose(found, expected)


@needs_gpu
@pytest.mark.parametrize(("preset", "steps"), [("tiny", 1), ("tiny", 2), ("tiny", 3), ("tiny", 4), ("swift", 1)])
def test_outputs_and_every_gradient_of_a_preset(preset, steps, monkeypatch):
    """The gelu control, whose gradients do not jump: with spikes, one of the millions that lies within rounding of the
    threshold flips, and changes a gradient by more than the tolerance."""
    overrides = {"model.timesteps": steps, "model.neuron": "gelu", "model.mixer.dropout": 0.0}
    net = build(Config.preset(preset).with_overrides(overrides | {"model.mixer.drop_path": 0.0}), 80)
    images = torch.rand(3, 1, 64, 500, device=DEVICE)
    assert_parity(net, images, torch.tensor([500, 410, 37]), monkeypatch, 1e-3)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_a_pointwise_convolution_with_a_bias(dtype, tolerance):
    conv = torch.nn.Conv2d(6, 5, 1).to(DEVICE)
    x = torch.randn(2, 6, 3, 7, device=DEVICE).to(memory_format=torch.channels_last).requires_grad_()
    with torch.autocast(DEVICE.type, dtype, enabled=dtype != torch.float32):
        answers = [F.conv2d(x, conv.weight, conv.bias), conv2d(x, conv.weight, conv.bias)]
    upstream = torch.randn(2, 5, 3, 7, device=DEVICE)
    every = [[y, *torch.autograd.grad(y, [x, conv.weight, conv.bias], upstream.to(y.dtype))] for y in answers]
    for plain, quick in zip(*every, strict=True):
        assert plain.dtype == quick.dtype
        assert (plain.double() - quick.double()).norm() <= tolerance * plain.double().norm()


@pytest.mark.slow
def test_channels_drop_out_as_in_the_reference(monkeypatch):
    block = build(micro(encoder__dropout=0.4, encoder__drop_path=0.5, **SMALL)).train().encoder.stage3.blocks[0]
    x = torch.randn(2, 3, 16, 2, 5, device=DEVICE, requires_grad=True)
    found = []
    for path in ("reference", "triton"):
        ask_for(monkeypatch, path)
        torch.manual_seed(3)
        y = block(x, torch.tensor([5, 5, 2], device=DEVICE))
        found.append((y, *torch.autograd.grad(y.square().sum(), [x, *block.parameters()])))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-4)
    for plain, quick in zip(*found, strict=True):
        assert (plain - quick).norm() <= 1e-3 * plain.norm()
    monkeypatch.setattr(block.dropout, "rate", 0.0)
    torch.manual_seed(3)
    assert not torch.allclose(block(x, torch.tensor([5, 5, 2], device=DEVICE)), found[1][0])


def test_dropout_repeats_with_the_seed(monkeypatch):
    net = build(micro(mixer__blocks=["LK"], mixer__dropout=0.3, mixer__drop_path=0.3, **SMALL)).train()
    tokens, mask = torch.randn(2, 3, 5, 16, device=DEVICE), torch.ones(3, 5, dtype=torch.bool, device=DEVICE)
    ask_for(monkeypatch, "triton")
    torch.manual_seed(5)
    first = net.mixer(tokens, mask)
    assert not torch.equal(first, net.mixer(tokens, mask))
    torch.manual_seed(5)
    assert torch.equal(first, net.mixer(tokens, mask))


def test_positions_interpolate_as_the_lookup_does(monkeypatch):
    positions = build(micro(**SMALL)).positions
    tokens, lengths = torch.zeros(1, 2, 70, 16, device=DEVICE), torch.tensor([70, 20], device=DEVICE)  # a table of 32
    ask_for(monkeypatch, "reference")
    expected = positions(tokens, lengths)
    ask_for(monkeypatch, "triton")
    assert torch.allclose(positions(tokens, lengths), expected, atol=1e-4)


def test_what_is_chosen(monkeypatch):
    x = torch.zeros(2)
    ask_for(monkeypatch, "auto")
    assert not ops.uses_triton(x)
    assert ops.uses_triton(x.to(DEVICE)) == (DEVICE.type == "cuda")
    ask_for(monkeypatch, "triton")
    assert ops.uses_triton(x)
    assert not ops.uses_triton(x.double())
    assert not ops.uses_triton(x[:0])
    with ops.reference():
        assert not ops.uses_triton(x)
    assert ops.uses_triton(x)
    ask_for(monkeypatch, "reference")
    assert not ops.uses_triton(x.to(DEVICE))
    with ops.using("triton"):
        assert ops.uses_triton(x)


def test_a_misspelt_choice_is_an_error(monkeypatch):
    monkeypatch.setenv("SPIKEHTR_KERNELS", "refrence")
    dispatch._asked.cache_clear()
    try:
        with pytest.raises(SpikeHTRError, match="auto, reference or triton, not 'refrence'"):
            ops.uses_triton(torch.zeros(2))
    finally:
        dispatch._asked.cache_clear()


def test_watching_takes_the_reference_and_hears_every_neuron(monkeypatch):
    ask_for(monkeypatch, "triton")
    block = build(micro(**SMALL)).encoder.stage3.blocks[0]
    x, widths = torch.randn(2, 1, 16, 2, 3, device=DEVICE), torch.tensor([3], device=DEVICE)
    heard = {}
    with watch(block, lambda name, _, drive, spikes: heard.__setitem__(name, (drive, spikes)), MultiStepLIF):
        watched = block(x, widths)
    assert heard.keys() == {"dw.neuron", "pw1.neuron", "pw2.neuron"}
    assert all(torch.equal(spikes[0], (drive[0] >= 1).float()) for drive, spikes in heard.values())
    with ops.reference():
        assert torch.equal(block(x, widths), watched)
    assert all(module.numbers.tap is None for module in block.modules() if isinstance(module, MultiStepLIF))


def test_layers_take_hooks_on_both_sides(monkeypatch):
    block = build(micro(**SMALL)).encoder.stage3.blocks[0]
    seen = []
    for layer in (block.dw.conv, block.pw1.conv, block.pw2.conv):
        layer.register_forward_hook(lambda module, *_: seen.append(module))
    for side in ("reference", "triton"):
        ask_for(monkeypatch, side)
        block(torch.randn(2, 1, 16, 2, 3, device=DEVICE), torch.tensor([3], device=DEVICE))
    assert seen == [block.dw.conv, block.pw1.conv, block.pw2.conv] * 2
