"""InkCoder's evidence and gates in few passes against the plain ones."""

import pytest
import torch
from ops_help import DEVICE, needs_gpu

from conftest import ask_for
from spikehtr.config import InkCoderConfig
from spikehtr.model.inkcoder import InkCoder
from spikehtr.ops.triton import evidence as kernels
from spikehtr.ops.triton.evidence import evidence


def lines(height=12, widths=(22, 13), seed=0):
    """Blotches of ink on paper: smooth enough for edges, with contrast."""
    g = torch.Generator().manual_seed(seed)
    rough = torch.rand(len(widths), 1, height // 2, max(widths) // 2 + 1, generator=g)
    image = torch.nn.functional.interpolate(rough, scale_factor=2, mode="bilinear")[..., : max(widths)]
    return image.clamp(0, 1).to(DEVICE), torch.tensor(widths, device=DEVICE)


def both(coder, image, widths, monkeypatch):
    answers = []
    for way in ("reference", "triton"):
        ask_for(monkeypatch, way)
        gates = coder(image, widths)
        slopes = torch.autograd.grad(gates.square().sum(), [coder.s_alpha, coder.b_alpha])
        answers.append((gates, *slopes))
    return answers


@pytest.mark.parametrize(
    ("steps", "settings"),
    [
        (2, {}),
        pytest.param(3, {"evidence": "edge", "edge_scale": 3, "blur": 1, "density": 3}, marks=pytest.mark.slow),
        pytest.param(1, {"evidence": "intensity", "gamma_density": 2.0, "theta": "fixed"}, marks=pytest.mark.slow),
    ],
)
def test_gates_and_their_gradients_are_the_references(steps, settings, monkeypatch):
    coder = InkCoder(InkCoderConfig(**settings), steps).to(DEVICE)
    plain, quick = both(coder, *lines(), monkeypatch)
    assert plain[0].std() > 0.05  # the gates do differ from pixel to pixel
    assert torch.allclose(plain[0], quick[0], atol=2e-5)
    for one, other in zip(plain[1:], quick[1:], strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_lines_of_several_tiles_that_do_not_fill_the_last(monkeypatch):
    monkeypatch.setattr(kernels, "_ROWS", 4)
    monkeypatch.setattr(kernels, "_COLUMNS", 16)
    coder = InkCoder(InkCoderConfig(), 1).to(DEVICE)
    plain, quick = both(coder, *lines(10, (21, 16)), monkeypatch)
    assert torch.allclose(plain[0], quick[0], atol=2e-5)


@pytest.mark.slow
def test_padding_and_neighbours_change_nothing():
    image, widths = lines()
    weight, config = torch.tensor([0.3, 0.6], device=DEVICE), InkCoder(InkCoderConfig(), 2).numbers
    alone = evidence(image[1:2, :, :, :13], widths[1:2], weight, config)
    dirty = torch.nn.functional.pad(image, (0, 5), value=torch.nan)
    dirty[1, :, :, 13:] = torch.nan
    assert torch.equal(evidence(dirty, widths, weight, config)[:, 1:2, :, :, :13], alone)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_blank_page_stays_finite(level, monkeypatch):
    ask_for(monkeypatch, "triton")
    page = torch.full((1, 1, 8, 9), level, device=DEVICE)
    gates = InkCoder(InkCoderConfig(), 1).to(DEVICE)(page, torch.tensor([9], device=DEVICE))
    assert torch.isfinite(gates).all()
    assert gates.max() < 0.2  # no contrast, no ink


@needs_gpu
def test_gates_are_the_references_at_real_size(monkeypatch):
    coder = InkCoder(InkCoderConfig(), 2).cuda()
    image, widths = lines(64, (592, 300, 37, 1), seed=1)
    plain, quick = both(coder, image, widths, monkeypatch)
    assert torch.allclose(plain[0], quick[0], atol=1e-4)
