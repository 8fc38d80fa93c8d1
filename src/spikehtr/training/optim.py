"""AdamW as the paper sets it, the cosine schedule, and the average of the weights (Table 10)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from spikehtr.config import TrainingConfig


def make_optimizer(net: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Weight decay on matrices and kernels only: norms, biases and scalars keep their size."""
    decayed = [p for p in net.parameters() if p.dim() > 1]
    free = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def learning_rate(progress: float, warmup: float, config: TrainingConfig) -> float:
    """The rate at `progress` (0 to 1) of a run whose first `warmup` share rises linearly; then a half cosine."""
    if progress < warmup:
        return config.learning_rate * progress / warmup
    done = (progress - warmup) / max(1 - warmup, 1e-9)
    swing = config.learning_rate - config.min_learning_rate
    return config.min_learning_rate + swing * (1 + math.cos(math.pi * min(done, 1.0))) / 2


class WeightAverage:
    """An exponential moving average of a network's parameters.

    Early on the decay is (1 + n) / (10 + n), so that a short run's average is not full of its random start.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.values = {name: p.detach().clone() for name, p in net.named_parameters()}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        current: list[Tensor] = [p.detach() for p in net.parameters()]
        torch._foreach_lerp_(list(self.values.values()), current, 1 - decay)

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        for name, p in net.named_parameters():
            p.copy_(self.values[name])
