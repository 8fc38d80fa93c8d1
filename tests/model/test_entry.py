import pytest
import torch

from conftest import draw_line, micro
from spikehtr.data.batching import to_batch
from spikehtr.model.entry import Entry, fixed_noise, poisson_gates, ttfs_gates


def entry(kind, steps=3):
    return Entry(micro(entry=kind, timesteps=steps).model).eval()


def test_injection_follows_the_equation_and_beta_starts_at_the_papers_value():
    module = entry("inkcoder")
    images, widths = to_batch([draw_line("ink"), draw_line("longer")])
    features = torch.randn(2, 8, *images.shape[-2:])
    gates = module.gates(images, widths)
    assert module.beta.item() == pytest.approx(0.35)
    assert torch.allclose(module(features, images, widths), features * (0.35 + 0.65 * gates), atol=1e-6)
    module.beta_logit.data.fill_(80.0)
    assert 0 < module.beta <= 1


def test_repeat_injects_the_same_at_every_step():
    module = entry("repeat")
    images, widths = to_batch([draw_line("ink")])
    features = torch.randn(1, 8, *images.shape[-2:])
    drive = module(features, images, widths)
    assert drive.shape[0] == 3
    assert all(torch.allclose(step, features) for step in drive)


def test_poisson_rate_is_the_darkness():
    darkness = torch.full((4, 1, 64, 128), 0.3)
    for training in (True, False):
        rate = poisson_gates(darkness, 4, training).mean(dim=(1, 2, 3, 4))
        assert torch.allclose(rate, torch.full((4,), 0.3), atol=0.02)
    fresh = [poisson_gates(darkness, 1, True) for _ in range(2)]
    fixed = [poisson_gates(darkness, 1, False) for _ in range(2)]
    assert not torch.equal(*fresh)
    assert torch.equal(*fixed)


def test_fixed_noise_is_uniform_and_a_prefix_of_wider_noise():
    noise = fixed_noise(4, 64, 512, torch.device("cpu"))
    assert torch.equal(noise[:2, :, :100], fixed_noise(2, 64, 100, torch.device("cpu")))
    counts = torch.histc(noise, 10, 0, 1) / noise.numel()
    assert torch.allclose(counts, torch.full((10,), 0.1), atol=0.01)
    flat = noise - noise.mean()
    for shifted in (flat.roll(1, 0), flat.roll(1, 1), flat.roll(1, 2)):
        assert abs((flat * shifted).mean() / flat.square().mean()) < 0.02


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_ttfs_opens_once_and_earlier_where_darker(steps):
    darkness = torch.linspace(0, 1, 101).view(1, 1, 1, -1)
    gates = ttfs_gates(darkness, steps)
    opened = gates.sum(0).flatten()
    assert opened[0] == 0  # white never opens
    assert (opened[1:] == 1).all()
    when = gates.argmax(0).flatten()[1:]
    assert (when[1:] <= when[:-1]).all()
    assert when[-1] == 0


@pytest.mark.parametrize("kind", ["inkcoder", "repeat", "poisson", "ttfs"])
def test_gates_do_not_see_padding(kind):
    module = entry(kind)
    image, width = to_batch([draw_line("alone")])
    padded = torch.nn.functional.pad(image, (0, 11), value=0.2)
    gates = module.gates(padded, width)
    assert gates[..., width.item() :].abs().max() == 0
    assert torch.allclose(gates[..., : width.item()], module.gates(image, width), atol=1e-6)
