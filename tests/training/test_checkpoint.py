import pytest
import torch
from safetensors.torch import save_file

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import TrainingConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.training.checkpoint import LAST, PREVIOUS, load_checkpoint, restore, save_checkpoint
from spikehtr.training.losses import spike_htr_loss
from spikehtr.training.optim import WeightAverage, make_optimizer

CONFIG = TrainingConfig()


def begin(seed=0, optimizer="adamw"):
    torch.manual_seed(seed)
    net = SpikeHTR(micro(height=16, timesteps=1).model, 5).train()
    config = CONFIG.model_copy(update={"optimizer": optimizer})
    return net, make_optimizer(net, config), WeightAverage(net, CONFIG.ema_decay)


def step(run, number):
    """One step whose randomness is a function of its number alone, as in training."""
    net, optimizer, average = run
    torch.manual_seed(number)
    out = net(torch.rand(2, 1, 16, 40))
    loss = spike_htr_loss(out, torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 2]), net, CONFIG).total
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(net)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_resumed_run_ends_with_the_very_same_weights(tmp_path, optimizer):
    whole = begin(optimizer=optimizer)
    for number in range(6):
        step(whole, number)
    killed = begin(optimizer=optimizer)
    for number in range(3):
        step(killed, number)
    save_checkpoint(tmp_path, *killed, {"step": 3})
    found = load_checkpoint(tmp_path)
    for _ in range(2):  # going on leaves what it went on from as it was
        resumed = begin(99, optimizer)  # another start, to be overwritten
        restore(found, *resumed)
        for number in range(found.state["step"], 6):
            step(resumed, number)
    for a, b in zip(whole[0].parameters(), resumed[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(whole[2].values[name], resumed[2].values[name]) for name in whole[2].values)
    assert whole[2].updates == resumed[2].updates == 6


def test_the_one_before_is_kept_and_used_when_the_newest_is_damaged(tmp_path):
    run = begin()
    for number in (1, 2):
        step(run, number)
        save_checkpoint(tmp_path, *run, {"step": number})
    assert {p.name for p in tmp_path.iterdir()} == {LAST, PREVIOUS}
    assert load_checkpoint(tmp_path).state["step"] == 2
    assert load_checkpoint(tmp_path).warning is None
    (tmp_path / LAST).write_bytes((tmp_path / LAST).read_bytes()[:1000])
    found = load_checkpoint(tmp_path)
    assert found.state["step"] == 1
    assert "damaged" in found.warning
    (tmp_path / PREVIOUS).write_bytes(b"")
    with pytest.raises(SpikeHTRError, match=rf"{LAST} is damaged.*{PREVIOUS} is damaged.*start the run anew"):
        load_checkpoint(tmp_path)


def test_what_cannot_be_opened_is_passed_over_too(tmp_path):
    run = begin()
    step(run, 0)
    save_checkpoint(tmp_path, *run, {"step": 1})
    (tmp_path / LAST).replace(tmp_path / PREVIOUS)
    (tmp_path / LAST).mkdir()
    found = load_checkpoint(tmp_path)
    assert found.state["step"] == 1
    assert f"{LAST} is damaged or cannot be read" in found.warning


def test_a_kill_between_the_two_files_leaves_one(tmp_path):
    run = begin()
    step(run, 0)
    save_checkpoint(tmp_path, *run, {"step": 1})
    (tmp_path / LAST).replace(tmp_path / PREVIOUS)  # as after the first half of the next save
    assert load_checkpoint(tmp_path).state["step"] == 1


def test_a_damaged_newest_one_never_takes_the_place_of_a_good_one(tmp_path, monkeypatch):
    run = begin()
    for number in (1, 2):
        step(run, number)
        save_checkpoint(tmp_path, *run, {"step": number})
    (tmp_path / LAST).write_bytes((tmp_path / LAST).read_bytes()[:1000])
    whole = save_file

    def killed(*args):
        whole(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr("spikehtr.training.checkpoint.save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, *run, {"step": 3})
    assert load_checkpoint(tmp_path).state["step"] == 1
    monkeypatch.undo()
    save_checkpoint(tmp_path, *run, {"step": 3})
    assert load_checkpoint(tmp_path).state["step"] == 3
    (tmp_path / LAST).unlink()
    assert load_checkpoint(tmp_path).state["step"] == 1


def test_nothing_to_resume_from(tmp_path):
    with pytest.raises(SpikeHTRError, match="no checkpoint to resume from"):
        load_checkpoint(tmp_path)
