"""A step on a card that others use, too: it waits for memory, and is then the step it would have been. And lines that
are shown without their ink."""

import pytest
import torch

from conftest import micro
from spikehtr.baselines import build
from spikehtr.data.batching import Batch
from spikehtr.errors import SpikeHTRError
from spikehtr.training import step as module
from spikehtr.training.devices import make_fabric
from spikehtr.training.step import Moment, TrainStep, emptied, held_by_others


@pytest.fixture
def card(monkeypatch):
    """A card of which others hold half: the seconds slept on it."""
    slept = []
    monkeypatch.setattr(module, "held_by_others", lambda device: 0.5)
    monkeypatch.setattr(module.time, "sleep", slept.append)
    return slept


def lines(config, count=2):
    images = torch.randint(0, 255, (count, 1, config.model.height, 64), generator=torch.Generator().manual_seed(1))
    widths, lengths = torch.tensor([64, 50] * (count // 2)), torch.tensor([4, 2] * (count // 2))
    return Batch(images.to(torch.uint8), widths, torch.ones(count, 4, dtype=torch.long), lengths, torch.arange(count))


def take(failures=0):
    """The network after a step whose pass finds no memory this often, half-way through its work."""
    config = micro()
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, 12), make_fabric("cpu", precision="fp32"))
    learn, left = step._gradients, [failures]

    def gradients(*args):
        numbers = learn(*args)
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return numbers

    step._gradients = gradients
    step(lines(config), Moment(0.5, 1e-2, 3))
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
        take(failures=99)
    assert sum(card) == 185, "seconds: about as long as a crowd of ten needs for its start"


def test_a_step_that_has_the_card_to_itself_fails_at_once(card, monkeypatch):
    monkeypatch.setattr(module, "held_by_others", held_by_others)
    with pytest.raises(torch.OutOfMemoryError):
        take(failures=1)
    assert card == []


def test_lines_without_ink_lose_their_text_too():
    config = micro().with_overrides({"data.augment.blank": 0.3, "training.consistency": 0.5})
    batch = lines(config, 200)
    torch.manual_seed(0)
    found = emptied(batch, config)
    empty = found.target_lengths == 0
    assert torch.equal(empty[::2], empty[1::2]), "both readings of a line"
    assert 0.2 < empty.float().mean() < 0.4
    changed = (found.images != batch.images).flatten(1).any(1)
    assert torch.equal(changed, empty)
    assert torch.equal(found.target_lengths[~empty], batch.target_lengths[~empty])
    assert emptied(batch, micro()) is batch


def test_a_network_learns_that_paper_is_no_text():
    config = micro().with_overrides({"data.augment.blank": 0.99, "data.augment.probability": 0.0})
    torch.manual_seed(0)
    step = TrainStep(config, build(config.model, 12), make_fabric("cpu", precision="fp32"))
    losses = [step(lines(config), Moment(0.5, 1e-2, seed))[0].item() for seed in range(12)]
    assert losses[-1] < 0.2 * losses[0]


def test_empty_paper_is_not_shown_to_a_teacher():
    config = micro().with_overrides({"data.augment.blank": 0.1})
    with pytest.raises(SpikeHTRError, match=r"data\.augment\.blank"):
        TrainStep(config, build(config.model, 12), make_fabric("cpu", precision="fp32"), teacher=object())
