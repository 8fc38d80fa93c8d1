from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import TrainingConfig
from spikehtr.training.optim import Schedule, WeightAverage, make_optimizer


def test_norms_biases_and_scalars_are_not_decayed():
    net = SpikeHTR(micro().model, 5)
    decayed, free = make_optimizer(net, TrainingConfig()).param_groups
    names = {id(p): name for name, p in net.named_parameters()}
    left_alone = {names[id(p)] for p in free["params"]}
    assert decayed["weight_decay"] == 0.05
    assert free["weight_decay"] == 0.0
    assert all(name.endswith(("bias", "alpha", "logits", "logit", "_alpha")) or "norm" in name for name in left_alone)
    assert not any("norm" in names[id(p)] or names[id(p)].endswith("bias") for p in decayed["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(list(net.parameters()))


def test_schedule_rises_then_falls_to_the_minimum():
    schedule = Schedule(TrainingConfig(warmup_epochs=2), epoch_length=5, max_steps=100)

    def rate(step):
        return schedule.rate(step, schedule.progress(step, 0.0))

    assert rate(0) == 0
    assert rate(5) == pytest.approx(1.5e-4)
    assert rate(10) == pytest.approx(3e-4)
    assert rate(55) == pytest.approx((3e-4 + 1e-6) / 2)
    assert rate(100) == pytest.approx(1e-6)
    flat = Schedule(TrainingConfig(warmup_epochs=0), epoch_length=5, max_steps=100)
    assert flat.rate(0, 0.0) == pytest.approx(3e-4)


def test_a_rate_that_is_held_falls_in_what_is_left():
    schedule = Schedule(TrainingConfig(warmup_epochs=2, hold=0.5), epoch_length=5, max_steps=100)
    rates = [schedule.rate(step, schedule.progress(step, 0.0)) for step in range(101)]
    assert rates[10:56] == pytest.approx([3e-4] * 46)
    assert rates[5] == pytest.approx(1.5e-4)
    assert rates[77] > (3e-4 + 1e-6) / 2 > rates[78]  # half way from 55 to 100
    assert rates[100] == pytest.approx(1e-6)


def test_a_run_without_a_limit_goes_on_for_its_epochs():
    assert Schedule(TrainingConfig(epochs=7), epoch_length=5).steps == 35


@given(st.integers(1, 300), st.integers(1, 40), st.floats(0, 20), st.floats(0, 0.99))
def test_schedule_stays_within_its_bounds(steps, epoch_length, warmup, hold):
    config = TrainingConfig(warmup_epochs=warmup, hold=hold)
    schedule = Schedule(config, epoch_length, max_steps=steps)
    rates = [schedule.rate(step, schedule.progress(step, 0.0)) for step in range(steps)]
    assert all(0 <= rate <= config.learning_rate * (1 + 1e-9) for rate in rates)
    assert rates.index(max(rates)) <= steps / 2 + 1  # warmed up by half time
    top = rates.index(max(rates))
    assert all(a >= b for a, b in pairwise(rates[top:]))


@given(st.lists(st.floats(0.001, 30), min_size=3, max_size=60), st.floats(0, 20), st.floats(0, 0.99))
def test_a_schedule_by_the_clock_ends_with_the_clock_whatever_the_steps_take(steps, warmup, hold):
    config = TrainingConfig(warmup_epochs=warmup, hold=hold)
    seconds = sum(steps)
    schedule = Schedule(config, epoch_length=3, max_minutes=seconds / 60)
    gone, rates = 0.0, []
    for step, took in enumerate(steps):
        rates.append(schedule.rate(step, schedule.progress(step, gone)))
        gone += took
    assert all(0 <= rate <= config.learning_rate * (1 + 1e-9) for rate in rates)
    assert schedule.progress(len(steps), gone) == pytest.approx(1.0)
    assert schedule.rate(10**9, 1.0) <= config.min_learning_rate * (1 + 1e-6) + config.learning_rate * (
        schedule.warmed == 1.0
    )
    falling = rates[next((i for i, r in enumerate(rates) if i >= warmup * 3), len(rates)) :]
    assert all(a >= b for a, b in pairwise(falling))


def test_the_average_forgets_its_start_quickly_and_then_moves_slowly():
    net = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(net.weight, 0.0)
    average = WeightAverage(net, decay=0.9998)
    torch.nn.init.constant_(net.weight, 1.0)
    for _ in range(50):
        average.update(net)
    assert average.values["weight"].item() > 0.99  # with 0.9998 from the first step it would be 0.01
    late = WeightAverage(net, decay=0.9)
    late.updates = 10**6
    torch.nn.init.constant_(net.weight, 2.0)
    late.update(net)
    assert late.values["weight"].item() == pytest.approx(1.1)
    late.copy_to(net)
    assert net.weight.item() == pytest.approx(1.1)
