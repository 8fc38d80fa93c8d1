from functools import partial

import numpy as np
import pytest
import torch
from model_help import VARIANTS, batch, build

from conftest import draw_line, micro, real_lines
from spikehtr import Config, SpikeHTR
from spikehtr.data.batching import to_batch
from spikehtr.data.geometry import fit_line
from spikehtr.errors import SpikeHTRError

NARROW = [torch.int32, torch.int16, torch.uint8]


def assert_same(out, b, alone, a, atol):
    n = int(alone.lengths[a])
    assert out.lengths[b] == n
    assert torch.equal(out.spans[b, :n], alone.spans[a, :n])
    assert torch.allclose(out.logits[b, :n], alone.logits[a, :n], atol=atol)
    assert torch.allclose(out.aux_logits[b, :n], alone.aux_logits[a, :n], atol=atol)
    assert torch.allclose(out.keep_ratio[b], alone.keep_ratio[a])


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_a_line_is_read_the_same_in_any_company(variant):
    """Alone, in any batch, in any order, with any padding of any colour. In float64, where a spike cannot flip by
    rounding, so agreement is to the last digits."""
    net = build(**VARIANTS[variant]).double()
    images, widths = batch(torch.float64)
    out = net(images, widths)
    for b, w in enumerate(widths.tolist()):
        assert_same(out, b, net(images[b : b + 1, :, :, :w], widths[b : b + 1]), 0, 1e-9)
    order = torch.tensor([2, 0, 3, 1])
    shuffled = net(images[order], widths[order])
    for place, b in enumerate(order.tolist()):
        assert_same(out, b, shuffled, place, 1e-9)
    for extra, fill in ((1, 0.0), (37, 0.5)):
        padded = torch.full((4, 1, 32, images.shape[-1] + extra), fill, dtype=torch.float64)
        for b, w in enumerate(widths.tolist()):
            padded[b, :, :, :w] = images[b, :, :, :w]
        more = net(padded, widths)
        for b in range(4):
            assert_same(out, b, more, b, 1e-9)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5])
@torch.no_grad()
def test_the_narrowest_lines(width):
    out = build()(torch.rand(2, 1, 32, width))
    assert out.lengths.tolist() == [-(-width // 4)] * 2
    assert torch.isfinite(out.logits).all()


@pytest.mark.slow
@pytest.mark.parametrize("neuron", ["lif", "gelu"])
@torch.no_grad()
def test_a_line_is_read_the_same_in_any_company_in_fp32(neuron):
    """To 1e-4. PyTorch convolves fewer than 20,480 numbers by another routine than more, so in this micro network a
    membrane within rounding of the threshold may fire alone and not in a batch: about one line in 120, so one in the
    24 below may differ. Networks of the presets' sizes are above that: the next test allows none."""
    differ = 0
    for seed in range(6):
        net = build(seed, neuron=neuron)
        images, widths = batch()
        out = net(images, widths)
        for b, w in enumerate(widths.tolist()):
            alone = net(images[b : b + 1, :, :, :w], widths[b : b + 1])
            try:
                assert_same(out, b, alone, 0, 1e-4)
            except AssertionError:
                differ += 1
    assert differ <= (1 if neuron == "lif" else 0)


@pytest.mark.slow  # smaller networks, and real lines: the tests around it
@torch.no_grad()
def test_the_tiny_preset_reads_a_line_the_same_in_any_company_in_fp32():
    """Lines of real height: alone, in a batch, and padded to widths at which a library would sum in another order."""
    lines = [draw_line(text, 64, seed=i)[:, :131] for i, text in enumerate(["quill and ink", "so"])]
    torch.manual_seed(0)
    net = SpikeHTR(Config.preset("tiny").model, 80).eval()
    net.head.linear.bias[0] = 7.0
    images, widths = to_batch(lines)
    out = net(images, widths)
    assert (out.keep_ratio < 1).any()
    for b, line in enumerate(lines):
        alone, width = to_batch([line])
        assert_same(out, b, net(alone, width), 0, 1e-4)
    for to in (320, 400, 448):
        padded = torch.nn.functional.pad(alone, (0, to - alone.shape[-1]), value=0.3)
        assert_same(out, len(lines) - 1, net(padded, width), 0, 1e-4)


@torch.no_grad()
def test_real_lines_are_read_the_same_in_any_company():
    lines = [fit_line(image, 32, 256) for image, _ in real_lines("bronod", "validation", 6)]
    net = build().double()
    images, widths = to_batch(lines)
    out = net(images.double(), widths)
    assert 0.3 < out.keep_ratio.mean() < 1
    for b, line in enumerate(lines):
        one, width = to_batch([line])
        assert_same(out, b, net(one.double(), width), 0, 1e-9)


@pytest.mark.parametrize("variant", ["default", "ann-isomorphic", "poisson"])
@torch.no_grad()
def test_nothing_lingers_after_a_call(variant):
    net = build(**VARIANTS[variant])
    images, widths = batch()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = net(images, widths)
    net(1 - images.flip(3), widths.flip(0))
    again = net(images, widths)
    assert all(a is b or torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert not list(net.buffers())  # no place where state could hide


@pytest.mark.parametrize("variant", VARIANTS)
def test_contract_of_the_output(variant):
    net = build(**VARIANTS[variant])
    images, widths = batch()
    out = net(images, widths)
    positions = -(-widths // 4)
    assert out.logits.shape == out.aux_logits.shape == (4, int(out.lengths.max()), 12)
    assert (out.lengths <= positions).all()
    assert torch.allclose(out.keep_ratio, out.lengths / positions)
    for b in range(4):
        spans = out.spans[b, : out.lengths[b]]
        assert (spans[:, 1] > spans[:, 0]).all()
        assert spans[-1, 1] <= positions[b]
    if variant == "default":
        assert (out.keep_ratio < 1).all()
    if variant == "no-reduction":
        assert (out.keep_ratio == 1).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_learns(variant):
    """A parameter that no loss can reach is a mistake of the wiring."""
    net = build(**VARIANTS[variant]).train()
    images, widths = batch()
    out = net(images, widths)
    (out.logits.square().mean() + out.aux_logits.square().mean()).backward()
    without = {name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0}
    if net.config.entry == "repeat":
        without.discard("encoder.entry.beta_logit")  # g = 1: beta + (1 - beta) g is 1 whatever beta
    if net.config.timesteps == 1:
        without -= {"fuse_pre.logits", "fuse_post.logits"}  # the identity
    assert not without


def test_the_preview_gives_the_head_no_gradient_unless_asked():
    for asked in (False, True):
        net = build(reducer__preview_gradient=asked)
        images, widths = batch()
        z, lengths = net.encoder(*net.prepare(images, widths))
        reduction = net.reduce(net.positions(z, lengths), lengths)
        reduction.tokens.square().sum().backward()
        reached = net.head.linear.weight.grad is not None and net.head.linear.weight.grad.abs().sum() > 0
        assert reached == asked


def test_one_head_serves_three():
    net = build()
    calls = []
    net.head.register_forward_hook(lambda *args: calls.append(1))
    net(*batch())
    assert len(calls) == 3
    assert sum(name.startswith("head.") for name, _ in net.named_parameters()) == 4


def test_fusion_is_the_identity_at_one_step_and_convex_beyond():
    net = build()
    net.fuse_pre.logits.data = torch.randn(4)
    z = torch.randn(1, 2, 3)
    assert torch.equal(net.fuse_pre(z), z[0])
    ones = torch.ones(3, 2, 5)
    assert torch.allclose(net.fuse_pre(ones), ones[0])
    assert net.fuse_pre.logits.shape == (4,)


@pytest.mark.parametrize("width", [128, 129, 300, 1000])
@torch.no_grad()
def test_lines_longer_than_the_position_table(width):
    """32 positions: a line of 128 px fills the table, longer ones stretch it to their own length."""
    net = build().double()
    images = torch.rand(2, 1, 32, width, dtype=torch.float64)
    widths = torch.tensor([width, 60])
    out = net(images, widths)
    assert torch.isfinite(out.logits).all()
    assert_same(out, 0, net(images[:1], widths[:1]), 0, 1e-9)
    assert_same(out, 1, net(images[1:, ..., :60], widths[1:]), 0, 1e-9)


@torch.no_grad()
def test_positions_interpolate_only_beyond_the_table():
    positions = build().positions
    positions.cpe.weight.zero_()
    positions.cpe.bias.zero_()
    short = positions(torch.zeros(1, 1, 20, 32), torch.tensor([20]))[0, 0]
    assert torch.allclose(short, positions.table[:20])
    long = positions(torch.zeros(1, 1, 63, 32), torch.tensor([63]))[0, 0]
    assert torch.allclose(long[::2], positions.table, atol=1e-5)
    assert torch.allclose(long[1], (positions.table[0] + positions.table[1]) / 2, atol=1e-5)


def test_grey_and_rgb_are_interchangeable():
    for channels in (1, 3):
        net = build(in_channels=channels)
        images, widths = batch()
        assert torch.allclose(net(images, widths).logits, net(images.expand(-1, 3, -1, -1), widths).logits, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "widths", "says"),
    [
        ((2, 1, 64, 40), [40, 40], r"\[B, 1 or 3, 32, W\]"),
        ((2, 2, 32, 40), [40, 40], "1 or 3"),
        ((1, 32, 40), [40], "1 or 3"),
        ((2, 1, 32, 40), [40], "whole numbers"),
        ((2, 1, 32, 40), [40, 41], r"1\.\.40, found 40\.\.41"),
        ((2, 1, 32, 40), [40, 0], "found 0"),
        ((2, 1, 32, 40), [40.0, 40.0], "whole numbers"),
        ((0, 1, 32, 40), [], r"\[B, 1 or 3"),
        ((1, 1, 32, 501), [501], "model.max_width = 500"),
    ],
)
def test_wrong_input_is_refused_with_words(shape, widths, says):
    with pytest.raises(SpikeHTRError, match=says):
        build(max_width=500)(torch.rand(shape), torch.tensor(widths))


def test_eight_bit_images_are_refused_with_the_remedy():
    with pytest.raises(SpikeHTRError, match="divide by 255"):
        build()(torch.zeros(1, 1, 32, 40, dtype=torch.uint8))


def test_too_small_a_vocabulary():
    with pytest.raises(SpikeHTRError, match="2 or more"):
        SpikeHTR(micro().model, 1)


@pytest.mark.parametrize("make", [list, tuple, np.array, *(partial(torch.tensor, dtype=d) for d in NARROW)])
def test_widths_of_any_whole_kind(make):
    net, (images, widths) = build(), batch()
    expected = net(images, widths)
    found = net(images, make(widths.tolist()))
    assert all(a is b or torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_of_any_float_kind(dtype):
    net, (images, widths) = build(), batch()
    assert torch.isfinite(net(images.to(dtype), widths).logits).all()


def test_garbage_in_the_padding_stays_there():
    net, (images, widths) = build(), batch()
    expected = net(images, widths)
    dirty = images.clone()
    for b, w in enumerate(widths.tolist()):
        dirty[b, :, :, w:] = torch.nan
    assert all(a is b or torch.equal(a, b) for a, b in zip(expected, net(dirty, widths), strict=True))


def test_the_whole_configuration_in_place_of_its_model_part():
    with pytest.raises(SpikeHTRError, match=r"cfg\.model"):
        SpikeHTR(micro(), 12)


def test_widths_may_be_left_out():
    net = build()
    images = torch.rand(2, 1, 32, 40)
    assert torch.equal(net(images).logits, net(images, torch.tensor([40, 40])).logits)
