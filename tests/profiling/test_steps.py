"""The steps that are timed do the whole work."""

import os

import pytest
import torch

from conftest import micro
from spikehtr.profiling.steps import FAST, REFERENCE, SWITCH, Case, Step, chosen, ink_lines

CPU = torch.device("cpu")


def case(train=True, **overrides):
    return Case("micro", micro(timesteps=1, **overrides), train, batch_size=2, width=48)


def test_lines_look_written():
    lines = ink_lines(3, 32, 96, CPU)
    assert lines.shape == (3, 1, 32, 96)
    assert lines.min() >= 0
    assert lines.max() <= 1
    dark = (lines < 0.5).float().mean((1, 2, 3))
    assert (dark > 0.02).all()
    assert (dark < 0.5).all()
    assert not torch.equal(lines[0], lines[1])
    assert torch.equal(lines, ink_lines(3, 32, 96, CPU))


def test_a_training_step_moves_weights_moments_and_average():
    step = Step(case(), CPU)
    before = {name: p.detach().clone() for name, p in step.net.named_parameters()}
    step()
    moved = [name for name, p in step.net.named_parameters() if not torch.equal(p, before[name])]
    assert {name.split(".")[0] for name in moved} >= {"encoder", "positions", "mixer", "head"}
    assert len(step.optimizer.state) > 0
    assert any(not torch.equal(step.average.values[name], before[name]) for name in moved)
    images, widths, need = step.inputs()
    assert images.shape[-1] > 48  # augmented: room for a stretched line
    assert (widths >= 4 * need).all()


def test_an_inference_step_changes_nothing():
    step = Step(case(train=False), CPU)
    before = torch.random.get_rng_state()
    step()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(p.grad is None for p in step.net.parameters())


@pytest.mark.parametrize("user", [None, "reference", "triton"])
def test_paths_are_chosen_and_the_environment_is_put_back(user, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    if user:
        monkeypatch.setenv(SWITCH, user)
    with chosen(REFERENCE):
        assert os.environ[SWITCH] == "reference"
    with chosen(FAST):
        assert os.environ.get(SWITCH) == ("triton" if user == "triton" else None)
    assert os.environ.get(SWITCH) == user
