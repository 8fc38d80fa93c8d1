"""Selection against sorting: the very same numbers."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from spikehtr.ops.plain.ink import quantiles
from spikehtr.ops.triton import quantile as fast

QS = (0.02, 1.0)


def maps(height=7, width=150, kind="float"):
    g = torch.Generator().manual_seed(height * 1000 + width)
    a = torch.rand(3, 1, height, width, generator=g)
    if kind == "levels":  # many equal values, as in a scanned line
        a = (a * 6).round() / 6
    elif kind == "signed":
        a = (a - 0.5) * 1e3
    elif kind == "flat":
        a = torch.full_like(a, 0.3)
    widths = torch.tensor([width, max(1, width // 2), 1])
    return a.to(DEVICE), widths.to(DEVICE)


@pytest.mark.parametrize(
    ("kind", "height", "width"),
    [("float", 7, 150), ("levels", 7, 150), ("signed", 7, 150), ("flat", 4, 128), ("float", 1, 1)],
)
def test_equals_sorting_to_the_last_bit(kind, height, width):
    a, widths = maps(height, width, kind)
    found = fast.quantiles(a, widths, *QS)
    expected = quantiles(a, widths, *QS)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == (3, 1, 1, 1)
        assert torch.equal(one, other)


def test_two_maps_at_once():
    (one, widths), (two, _) = maps(), maps(kind="signed")
    found = fast.quantiles_of_two(torch.stack([one, two]), widths, (0.1,), (0.5, 0.9))
    expected = quantiles(one, widths, 0.1) + quantiles(two, widths, 0.5, 0.9)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_what_lies_in_the_padding_does_not_matter():
    a, widths = maps()
    wider = torch.nn.functional.pad(a, (0, 40), value=-7.0)
    for b, w in enumerate(widths.tolist()):
        wider[b, :, :, w:] = torch.nan if b % 2 else -7.0
    plain, padded = quantiles(a, widths, *QS), fast.quantiles(wider, widths, *QS)
    alone = fast.quantiles(a[1:2, :, :, : int(widths[1])], widths[1:2], *QS)
    for one, two, three in zip(plain, padded, alone, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one[1:2], three)


@needs_gpu
def test_equals_sorting_at_real_size():
    a = torch.rand(64, 1, 64, 592, device="cuda").square()
    widths = torch.randint(1, 593, (64,), device="cuda")
    found = fast.quantiles(a, widths, 0.02, 0.75)
    for one, other in zip(found, quantiles(a, widths, 0.02, 0.75), strict=True):
        assert torch.equal(one, other)
