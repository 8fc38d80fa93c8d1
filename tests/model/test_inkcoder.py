import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import draw_line, real_lines
from spikehtr.config import InkCoderConfig
from spikehtr.data.batching import to_batch
from spikehtr.data.geometry import fit_line
from spikehtr.errors import SpikeHTRError
from spikehtr.model.inkcoder import InkCoder, to_gray
from spikehtr.ops.plain.ink import box_blur, extend, quantiles, sobel


def lines():
    return to_batch([draw_line(text, height=64, seed=i) for i, text in enumerate(["ink", "a longer line", "so"])])


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
@pytest.mark.parametrize("evidence", ["both", "intensity", "edge"])
@pytest.mark.parametrize("theta", ["scheduled", "fixed"])
def test_gates_are_probabilities_and_repeat(steps, evidence, theta):
    coder = InkCoder(InkCoderConfig(evidence=evidence, theta=theta), steps)
    images, widths = lines()
    gates = coder(images, widths)
    assert gates.shape == (steps, *images.shape)
    assert gates.min() >= 0
    assert gates.max() <= 1
    assert torch.equal(gates, coder(images, widths))
    assert all(gates[:, b, :, :, w:].abs().max() == 0 for b, w in enumerate(widths.tolist()) if w < images.shape[-1])


def test_exactly_two_scalars_are_learned():
    coder = InkCoder(InkCoderConfig(), 2)
    assert sorted((name, p.numel()) for name, p in coder.named_parameters()) == [("b_alpha", 1), ("s_alpha", 1)]
    coder(*lines()).sum().backward()
    assert coder.s_alpha.grad != 0
    assert coder.b_alpha.grad != 0


@pytest.mark.parametrize("pad", [1, 2, 3, 37])
@pytest.mark.parametrize("fill", [0.0, 0.5, 1.0])
def test_padding_changes_nothing(pad, fill):
    coder = InkCoder(InkCoderConfig(), 3)
    for width_cut in (0, 1, 2):  # odd and even widths, for the coarse edge map
        image = torch.from_numpy(draw_line("padded?", height=64) / np.float32(255))[None, None]
        image = image[..., : image.shape[-1] - width_cut]
        width = image.shape[-1]
        padded = torch.nn.functional.pad(image, (0, pad), value=fill)
        alone = coder.trace(image, torch.tensor([width]))
        beside = coder.trace(padded, torch.tensor([width]))
        assert torch.allclose(alone.gates, beside.gates[..., :width], atol=1e-6)
        for name, own, other in zip(alone.maps._fields, alone.maps, beside.maps, strict=True):
            assert torch.allclose(own, other[..., :width], atol=1e-6), name


@pytest.mark.parametrize("steps", [2, 3, 4])
@pytest.mark.parametrize("name", ["bronod", "copiste", "timeus", "fondue-fr18"])
def test_mean_gate_falls_on_real_lines(name, steps):
    coder = InkCoder(InkCoderConfig(), steps)
    images, widths = to_batch([fit_line(image, 64, 512) for image, _ in real_lines(name, "validation", 24)])
    gates = coder(images, widths)
    mean = gates.sum((2, 3, 4)) / (64 * widths)  # [T, B], over a line's own pixels
    assert (mean[1:] < mean[:-1]).all()


def test_ink_opens_the_gate_and_paper_does_not():
    image = draw_line("mmmm", height=64)
    gates = InkCoder(InkCoderConfig(), 2)(*to_batch([image]))[0, 0, 0].detach().numpy()
    assert gates[image < 80].mean() > 0.9
    assert gates[image > 215].mean() < 0.25


def test_schedules_follow_the_equations():
    c = InkCoderConfig(theta_min=0.1, theta_max=0.5, gamma_theta=2.0, a0=10, eta_a=0.4, s_w=4, b_w=-0.5)
    theta, sharpness, weight = InkCoder(c, 3).schedules()
    assert theta.tolist() == pytest.approx([0.1, 0.2, 0.5])
    assert sharpness.tolist() == pytest.approx([10, 8, 6])
    assert weight.tolist() == pytest.approx([1 / (1 + np.exp(2)), 0.5, 1 / (1 + np.exp(-2))])
    assert InkCoder(c, 1).schedules()[0].tolist() == pytest.approx([0.1])


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 1), st.integers(0, 10**6))
def test_quantiles_equal_torch_on_the_valid_part(height, width, q, seed):
    g = torch.Generator().manual_seed(seed)
    a = torch.rand(2, 1, height, 9, generator=g)
    widths = torch.tensor([width, 9])
    (found,) = quantiles(a, widths, q)
    for b, w in enumerate((width, 9)):
        assert found[b].item() == pytest.approx(torch.quantile(a[b, 0, :, :w].flatten(), q).item(), abs=1e-6)


def test_spatial_operators_on_known_images():
    ramp = torch.arange(8.0).expand(1, 1, 5, 8) / 8
    whole = torch.tensor([8])
    assert sobel(ramp, whole)[0, 0, 2, 1:-1].tolist() == pytest.approx([1 / 8] * 6, abs=1e-6)
    assert sobel(torch.full((1, 1, 5, 8), 0.3), whole).max() < 1e-5
    dot = torch.zeros(1, 1, 5, 8)
    dot[0, 0, 2, 4] = 9.0
    assert box_blur(dot, whole, 3)[0, 0, 1:4, 3:6].unique().tolist() == pytest.approx([1.0])
    assert extend(ramp, torch.tensor([3]))[0, 0, 0].tolist() == [0, 0.125, *[0.25] * 6]


def test_gray_of_rgb_and_gray():
    rgb = torch.rand(2, 3, 4, 5)
    expected = 0.299 * rgb[:, 0] + 0.587 * rgb[:, 1] + 0.114 * rgb[:, 2]
    assert torch.allclose(to_gray(rgb)[:, 0], expected)
    assert torch.equal(to_gray(rgb[:, :1]), rgb[:, :1])


def test_contrast_and_brightness_do_not_matter_to_intensity():
    coder = InkCoder(InkCoderConfig(), 1)
    images, widths = to_batch([draw_line("faint", height=64)])
    plain = coder.trace(images, widths).maps.intensity
    faint = coder.trace(images * 0.2 + 0.5, widths).maps.intensity
    assert torch.allclose(plain, faint, atol=1e-3)


def test_a_blank_page_stays_finite():
    for level in (0.0, 1.0):
        gates = InkCoder(InkCoderConfig(), 2)(torch.full((1, 1, 64, 20), level), torch.tensor([20]))
        assert torch.isfinite(gates).all()


@pytest.mark.parametrize(("images", "widths"), [((2, 3, 32, 64), 2), ((2, 1, 32, 64), 3), ((2, 32, 64), 2)])
def test_other_than_gray_lines_and_their_widths_is_told(images, widths):
    with pytest.raises(SpikeHTRError, match="InkCoder takes gray lines"):
        InkCoder(InkCoderConfig(), 2)(torch.rand(images), torch.full((widths,), 64))
    with pytest.raises(SpikeHTRError, match="timesteps must be 1 or more"):
        InkCoder(InkCoderConfig(), 0)
