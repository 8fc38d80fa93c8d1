import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import micro
from spikehtr import SpikeHTR
from spikehtr.config import TrainingConfig
from spikehtr.training.optim import WeightAverage, learning_rate, make_optimizer


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
    config = TrainingConfig()
    assert learning_rate(0.0, 0.1, config) == 0
    assert learning_rate(0.05, 0.1, config) == pytest.approx(1.5e-4)
    assert learning_rate(0.1, 0.1, config) == pytest.approx(3e-4)
    assert learning_rate(0.55, 0.1, config) == pytest.approx((3e-4 + 1e-6) / 2)
    assert learning_rate(1.0, 0.1, config) == pytest.approx(1e-6)
    assert learning_rate(0.0, 0.0, config) == pytest.approx(3e-4)


@given(st.floats(0, 1.5), st.floats(0, 0.9))
def test_schedule_stays_within_its_bounds(progress, warmup):
    config = TrainingConfig()
    rate = learning_rate(progress, warmup, config)
    assert 0 <= rate <= config.learning_rate * (1 + 1e-9)
    if progress >= warmup:
        assert rate >= config.min_learning_rate * (1 - 1e-9)


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
