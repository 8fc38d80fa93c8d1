"""What changes while a run goes on, beside the learning rate: pure functions of its progress, so that a resumed run is
where it was.

Recorded steps (`training.graphs`) hold plain numbers as constants. The ceiling is applied after the optimiser's step,
outside the recordings; the surrogate and softness change a few times a run, and recordings are then made anew.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spikehtr.config import Config
from spikehtr.model.encoder import SpikingConv2d


def bypass_ceiling(config: Config, progress: float) -> float | None:
    """How large a shortcut's alpha may be; None: any size."""
    c, start = config.training.bypass_anneal, abs(config.model.encoder.bypass_init)
    if c.until == 0:
        return None
    return start + (c.to - start) * min(progress / c.until, 1.0)


def shortcuts(net: nn.Module) -> list[Tensor]:
    """The alphas of a network."""
    return [m.alpha for m in net.modules() if isinstance(m, SpikingConv2d) and m.alpha is not None]


@torch.no_grad()
def hold_below(alphas: list[Tensor], ceiling: float) -> None:
    """Bring every alpha into [-ceiling, ceiling], in place."""
    if alphas:
        torch._foreach_clamp_max_(alphas, ceiling)
        torch._foreach_clamp_min_(alphas, -ceiling)


def surrogate_sharpness(config: Config, progress: float) -> float:
    """surrogate_alpha at a point of the run: `steps` values below the last, which is the model's own."""
    c, last = config.training.surrogate_anneal, config.model.lif.surrogate_alpha
    if c.until == 0 or progress >= c.until:
        return last
    done = int(c.steps * progress / c.until)  # changes so far
    return float(c.start * (last / c.start) ** (done / c.steps))


def spike_softness(config: Config, progress: float) -> float:
    """How soft spikes are at a point of the run: 1 at first, `steps` equal steps down to 0."""
    c = config.training.spike_anneal
    if c.until == 0 or progress >= c.until:
        return 0.0
    return 1.0 - int(c.steps * progress / c.until) / c.steps
