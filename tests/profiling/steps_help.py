"""A step to time."""

import torch

from conftest import micro
from spikehtr.profiling.benchmark_steps import Case

CPU = torch.device("cpu")


def case(train=True, **overrides):
    return Case("micro", micro(timesteps=1, **overrides), train, batch_size=2, width=48)
