"""AdamW as the paper sets it or Muon, the cosine schedule, and the average of the weights (Table 10)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from spikehtr.config import TrainingConfig
from spikehtr.training.muon import Muon, matrices_of

_SPARE = 2**18  # zeros that may fill up a matrix on a GPU, where to start a small product takes longer than to take it


def make_optimizer(net: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Weight decay on matrices and kernels only: norms, biases and scalars keep their size."""
    matrices = matrices_of(net) if config.optimizer == "muon" else []
    taken = {id(p) for p in matrices}
    decayed = [p for p in net.parameters() if p.dim() > 1 and id(p) not in taken]
    free = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": free, "weight_decay": 0.0}]
    on_gpu = all(p.device.type == "cuda" for p in net.parameters())
    if config.optimizer == "muon":
        rates = config.learning_rate, config.weight_decay, config.muon_rate
        return Muon(matrices, groups, *rates, fused=on_gpu, spare=_SPARE if on_gpu else 0)
    return torch.optim.AdamW(groups, lr=config.learning_rate, fused=on_gpu)


@contextmanager
def rate_on_device(optimizer: torch.optim.Optimizer, rate: Tensor) -> Iterator[None]:
    """The learning rate is read from `rate`, anew whenever a step that is recorded meanwhile is replayed."""
    recording = rate.is_cuda and torch.cuda.is_current_stream_capturing()
    before = [(group, dict(group)) for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group.update(lr=rate, capturable=recording)
    try:
        yield
    finally:
        for group, values in before:
            group.update(values)


class Schedule:
    """How far a run is, from 0 to 1, by steps or by the clock; and the learning rate there.

    The rate rises linearly over the warm-up epochs (half the run at most), may be held, and then falls by a half cosine
    that ends where the run ends. A run by the clock learns only on the way when its warm-up is over: `warmed` keeps
    that.
    """

    def __init__(
        self,
        config: TrainingConfig,
        epoch_length: int,
        max_steps: int | None = None,
        max_minutes: float | None = None,
    ) -> None:
        self.config = config
        self.seconds = None if max_minutes is None else 60 * max_minutes
        self.steps = None if self.seconds else max_steps or config.epochs * epoch_length
        self.warmup_steps = config.warmup_epochs * epoch_length
        self.warmed: float | None = None
        if self.steps is not None:
            self.warmup_steps = min(self.warmup_steps, self.steps / 2)
            self.warmed = self.warmup_steps / self.steps

    @property
    def limit(self) -> dict[str, float | None]:
        """What ends the run, to tell one run from another."""
        return {"steps": self.steps, "seconds": self.seconds}

    def progress(self, step: int, seconds: float) -> float:
        return step / self.steps if self.steps is not None else min(1.0, seconds / (self.seconds or 1.0))

    def rate(self, step: int, progress: float) -> float:
        """The learning rate of a step taken at `progress`."""
        c = self.config
        if step < self.warmup_steps and progress < 0.5:
            return c.learning_rate * max(step / self.warmup_steps, 2 * progress)
        if self.warmed is None:
            self.warmed = progress
        begun = self.warmed + c.hold * (1 - self.warmed)
        done = max(progress - begun, 0.0) / max(1 - begun, 1e-9)
        swing = c.learning_rate - c.min_learning_rate
        return c.min_learning_rate + swing * (1 + math.cos(math.pi * min(done, 1.0))) / 2


class WeightAverage:
    """An exponential moving average of a network's parameters, and of the running statistics it keeps beside them.

    Early on the decay is (1 + n) / (10 + n), so that a short run's average is not full of its random start.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.values = {name: p.detach().clone() for name, p in net.named_parameters()}
        self.buffers = {name: value.clone() for name, value in kept_buffers(net).items()}

    @torch.no_grad()
    def update(self, net: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        current: list[Tensor] = [p.detach() for p in net.parameters()]
        torch._foreach_lerp_(list(self.values.values()), current, 1 - decay)
        if not self.buffers:
            return
        now = dict(net.named_buffers())
        statistics = [name for name, value in self.buffers.items() if value.is_floating_point()]
        kept = [self.buffers[name] for name in statistics]
        torch._foreach_lerp_(kept, [now[name] for name in statistics], 1 - decay)
        for name in self.buffers.keys() - set(statistics):  # counters
            self.buffers[name].copy_(now[name])

    @torch.no_grad()
    def copy_to(self, net: nn.Module) -> None:
        for name, p in net.named_parameters():
            p.copy_(self.values[name])
        for name, value in kept_buffers(net).items():
            value.copy_(self.buffers[name])


def kept_buffers(net: nn.Module) -> dict[str, Tensor]:
    """What a network's state holds beside its parameters: the running statistics of batch normalisation, say."""
    parameters = {name for name, _ in net.named_parameters()}
    return {name: value for name, value in net.state_dict().items() if name not in parameters}
