"""A step on a card that others use, too: it waits for memory, and is then the step it would have been."""

import pytest
import torch

from conftest import micro
from spikehtr.baselines import build
from spikehtr.data.batching import Batch
from spikehtr.training import step as module
from spikehtr.training.devices import make_fabric
from spikehtr.training.step import Moment, TrainStep, held_by_others


@pytest.fixture
def card(monkeypatch):
    """A card of which others hold half: the seconds slept on it."""
    slept = []
    monkeypatch.setattr(module, "held_by_others", lambda device: 0.5)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    return slept


def take(failures=0):
    """The network after a step whose pass finds no memory this often, half-way through its work."""
    config = micro()
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, 12), make_fabric("cpu", precision="fp32"))
    images = torch.randint(0, 255, (2, 1, config.model.height, 64), generator=torch.Generator().manual_seed(1))
    sizes = torch.tensor([64, 50]), torch.ones(2, 4, dtype=torch.long), torch.tensor([4, 2]), torch.arange(2)
    learn, left = step._gradients, [failures]

    def gradients(*args):
        numbers = learn(*args)
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return numbers

    step._gradients = gradients
    step(Batch(images.to(torch.uint8), *sizes), Moment(0.5, 1e-2, 3))
    return step.net


def test_a_step_waits_for_memory_and_is_the_same_step(card):
    expected = take().state_dict()
    with pytest.warns(UserWarning, match="waiting for memory: others hold 50% of cpu"):
        found = take(failures=2).state_dict()
    assert card == [5, 10]
    assert all(torch.equal(value, expected[name]) for name, value in found.items())


@pytest.mark.filterwarnings("ignore:waiting for memory")
def test_it_does_not_wait_for_ever(card):
    with pytest.raises(torch.OutOfMemoryError):
        take(failures=9)
    assert len(card) == 4


def test_a_step_that_has_the_card_to_itself_fails_at_once(card, monkeypatch):
    monkeypatch.setattr(module, "held_by_others", held_by_others)
    with pytest.raises(torch.OutOfMemoryError):
        take(failures=1)
    assert card == []
