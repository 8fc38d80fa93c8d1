"""Depthwise convolution in registers, its sums and its fork, against torch's convolution."""

import pytest
import torch
import torch.nn.functional as F
from ops_help import DEVICE, needs_gpu

from conftest import ask_for
from spikehtr.model.masking import column_mask, valid_mask
from spikehtr.model.mixer import TokenConv
from spikehtr.ops.triton import depthwise_op
from spikehtr.ops.triton.depthwise_op import DepthwiseLaunch, depthwise


def make(steps, channels, height, width, kernel, dtype=torch.float32):
    g = torch.Generator().manual_seed(0)
    widths = torch.tensor([width, max(1, width - 3)], device=DEVICE)
    mask = column_mask(widths, width)
    x, upstream, other = (torch.randn(steps, 2, channels, height, width, generator=g).to(DEVICE) for _ in range(3))
    weight = torch.randn(channels, 1, *kernel, generator=g).to(DEVICE)
    return (x * mask).to(dtype), weight, widths, mask, (upstream * mask).to(dtype), other.to(dtype)


def compare(case, tolerance):
    x, weight, widths, mask, upstream, other = case
    x, weight = x.requires_grad_(), weight.requires_grad_()
    pad = (weight.shape[2] // 2, weight.shape[3] // 2)
    wide = x.float()
    plain = F.conv2d((wide * mask).flatten(0, 1), weight, padding=pad, groups=x.shape[2]).unflatten(0, x.shape[:2])
    expected = torch.autograd.grad([plain, wide * 1], [x, weight], [upstream.float(), other.float()], retain_graph=True)
    y, sums, through = depthwise(x, weight, widths, DepthwiseLaunch(x.dtype, want_sums=True, fork=True))
    found = torch.autograd.grad([y, through], [x, weight], [upstream, other])
    valid = y.float() * mask
    totals = torch.stack([valid.sum((3, 4)), valid.square().sum((3, 4))], 2).flatten(0, 1)  # [T*B, 2, C]
    for a, b in zip([plain * mask, *expected, totals], [valid, *found, sums.sum(1)], strict=True):
        assert (a.double() - b.double()).norm() <= tolerance * a.double().norm()


@pytest.mark.parametrize(
    ("channels", "height", "width", "kernel"),
    [(4, 1, 1, (5, 5)), (6, 4, 9, (5, 5)), (34, 2, 5, (3, 3)), (4, 3, 35, (1, 7)), (3, 1, 6, (1, 1))],
)
def test_sizes_and_kernels(channels, height, width, kernel):
    compare(make(1, channels, height, width, kernel), 1e-5)


@pytest.mark.parametrize(("height", "kernel"), [(1, (3, 3)), (3, (5, 5)), (5, (3, 3))])
def test_walks_that_are_not_written_out(height, kernel, monkeypatch):
    monkeypatch.setattr(depthwise_op, "_LOW", 0)
    compare(make(1, 6, height, 9, kernel), 1e-5)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_program_takes_several_maps(steps, monkeypatch):
    monkeypatch.setattr(depthwise_op, "_PROGRAMS", 1)
    monkeypatch.setattr(depthwise_op, "_ROWS", 8)
    case = make(steps, 6, 2, 5, (3, 3))  # four maps would be too many for two, and do not divide six
    assert depthwise_op.maps_a_program(case[0].movedim(2, 4).flatten(0, 1)) == min(4, 2 * steps)
    compare(case, 1e-5)


def test_half_precision():
    compare(make(2, 6, 2, 5, (3, 3), torch.bfloat16), 1e-2)


def test_what_is_not_asked_for_is_not_given():
    x, weight, widths, *_ = make(1, 4, 2, 5, (3, 3))
    assert depthwise(x, weight, widths, DepthwiseLaunch(torch.float32))[1:] == (None, None)


@pytest.mark.parametrize(("kernel", "size", "bias"), [(7, 3, True), (15, 40, False), (31, 33, False)])
def test_along_tokens(kernel, size, bias, monkeypatch):
    torch.manual_seed(0)
    conv = TokenConv(6, kernel, bias).to(DEVICE)
    mask = valid_mask(torch.tensor([size, max(1, size - 2)], device=DEVICE), size)
    many = torch.randn(2, 2, size, 18, device=DEVICE)
    upstream = torch.randn(2, 2, size, 6, device=DEVICE) * mask[:, :, None]
    answers = []
    for way in ("reference", "triton"):
        ask_for(monkeypatch, way)
        x = many.clone().requires_grad_()
        y = conv(x.chunk(3, dim=-1)[1], mask)  # a part of wider tokens, as it comes
        answers.append([y, *torch.autograd.grad(y, [x, *conv.parameters()], upstream)])
    for expected, found in zip(*answers, strict=True):
        assert torch.allclose(expected, found, atol=1e-5)


@needs_gpu
def test_real_size():
    compare(make(2, 96, 64, 500, (5, 5)), 1e-4)
    compare(make(2, 1344, 1, 256, (1, 31)), 1e-4)
