"""DownMix and the gated fusion in one pass against the plain ones: values and every gradient."""

import pytest
import torch
from ops_help import DEVICE, assert_close, both_ways, needs_gpu

from conftest import micro
from spikehtr.model.encoder import DownMix, DualResolutionFusion
from spikehtr.ops.triton import downmix as fast
from spikehtr.ops.triton.layout import channels_last, channels_second

MODES = ["mix", "avg", "max"]


# Steps, channels, height, width of a map and the width of its second line: small; more channels and columns than a
# program takes, beside a single column; sides that leave a row and a column over.
SHAPES = [(2, 5, 4, 10, 4), (1, 70, 2, 66, 1), (3, 4, 5, 7, 2)]


def make(steps, channels, height, width, second):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(steps, 2, channels, height, width, generator=g)
    return z.to(DEVICE), torch.tensor([width, second], device=DEVICE)


@pytest.fixture(params=SHAPES, ids=str)
def maps(request):
    return make(*request.param)


STRIDES = [("mix", (2, 1)), ("max", (1, 2)), ("mix", (4, 2))]


@pytest.mark.parametrize(
    ("mode", "stride", "shape"),
    [  # a mode is but a number to the kernel, so each is tried on one shape; every stride on all that it fits
        *((mode, (2, 2), SHAPES[0]) for mode in MODES),
        *(("mix", (2, 2), shape) for shape in SHAPES[1:]),
        *((*how, shape) for how in STRIDES for shape in SHAPES if shape[2] >= how[1][0]),
    ],
    ids=str,
)
def test_equals_the_plain_one(mode, stride, shape, monkeypatch):
    z, widths = make(*shape)
    down = DownMix(mode, stride).to(DEVICE)
    if down.rho_logit is not None:
        down.rho_logit.data.fill_(0.7)
    assert_close(both_ways(down, [z], monkeypatch, widths), 1e-6)


def test_of_equal_values_the_first_gets_the_gradient(monkeypatch):
    z = torch.tensor([0.0, 1.0, 1.0, 0.5]).repeat(8).view(1, 1, 2, 4, 4).to(DEVICE)
    plain, quick = both_ways(DownMix("max"), [z], monkeypatch, torch.tensor([3], device=DEVICE))
    assert all(torch.equal(a, b) for a, b in zip(plain, quick, strict=True))


def test_half_precision_is_rounded_once(maps, monkeypatch):
    z, widths = maps
    assert_close(both_ways(DownMix("mix").to(DEVICE), [z.bfloat16()], monkeypatch, widths), 1e-2)


def test_padding_and_neighbours_change_nothing(maps):
    z, widths = maps
    rho = torch.tensor(0.4, device=DEVICE)
    whole = fast.downmix(z, widths, rho)
    dirty = torch.nn.functional.pad(z, (0, 6), value=torch.nan)
    for b, w in enumerate(widths.tolist()):
        dirty[:, b, :, :, w:] = torch.nan
    padded = fast.downmix(dirty, widths, rho)
    assert torch.equal(padded[..., : whole.shape[-1]], whole)
    assert torch.equal(fast.downmix(z[:, 1:2], widths[1:2], rho), whole[:, 1:2])


def fusion_maps(half, quarter, height, width, steps=2, batch=2):
    g = torch.Generator().manual_seed(2)
    f2 = torch.randn(steps, batch, half, height, width, generator=g)
    f3 = torch.randn(steps, batch, quarter, height // 2, width // 2, generator=g)
    widths2 = torch.tensor([width, width - 3])
    inside = torch.arange(width // 2) < ((widths2 + 1) // 2)[:, None]
    f3 = f3 * inside[:, None, None, :]
    return [f2.to(DEVICE), f3.to(DEVICE)], widths2.to(DEVICE), ((widths2 + 1) // 2).to(DEVICE)


@pytest.mark.parametrize("mode", MODES)
def test_gated_sum_equals_the_plain_one(mode, monkeypatch):
    inputs, widths2, _ = fusion_maps(6, 10, 4, 12)
    gate = torch.randn(inputs[1].shape, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    detail = torch.randn(2, 2, 10, 4, 12, generator=torch.Generator().manual_seed(4)).to(DEVICE)

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.down = DownMix(mode)

        def forward(self, detail, f3, gate):
            return self.down(detail, widths2, f3, gate)

    assert_close(both_ways(Sum().to(DEVICE), [detail, inputs[1], gate], monkeypatch), 1e-6)


def test_the_fusion_takes_it(monkeypatch):
    inputs, widths2, widths3 = fusion_maps(4, 8, 4, 8)
    fusion = DualResolutionFusion(micro().model, 4, 8).to(DEVICE)
    called = []
    original = fast.downmix
    monkeypatch.setattr(fast, "downmix", lambda *args, **more: called.append(len(args)) or original(*args, **more))
    answers = both_ways(fusion, inputs, monkeypatch, widths2, widths3)
    assert called == [6]  # once, with base and gate
    assert_close(answers, 1e-4)


def test_layout_is_kept():
    z = channels_second(torch.randn(1, 1, 4, 8, 6, device=DEVICE))
    out = fast.downmix(z, torch.tensor([8], device=DEVICE), 0.5)
    assert channels_last(out).data_ptr() == out.data_ptr()  # channels still lie last: nothing was copied


@needs_gpu
def test_equals_the_plain_one_at_real_size(monkeypatch):
    z = torch.randn(2, 4, 384, 32, 296, device="cuda")
    widths = torch.tensor([296, 250, 101, 1], device="cuda")
    assert_close(both_ways(DownMix("mix").cuda(), [z], monkeypatch, widths), 1e-5)
    assert_close(both_ways(DownMix("mix").cuda(), [z.bfloat16()], monkeypatch, widths), 2e-2)
