"""Nonlinearities by number and constants, as the kernels take them."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

NONE, LIF, GELU, SILU, SOFT = range(5)  # SOFT: LIF whose spikes are soft


class Neuron(NamedTuple):
    kind: int = NONE
    decay: float = 0.0
    threshold: float = 1.0
    atan: bool = True  # the surrogate; else the sigmoid
    sharpness: float = 1.0
    softness: float = 0.0
    burst: int = 1
    burst_step: float = 0.5


def describe(module: nn.Module | None) -> Neuron:
    """A module from `make_neuron`, nn.SiLU, or none at all (nn.Identity, too)."""
    from spikehtr.model.lif import MultiStepLIF

    if isinstance(module, MultiStepLIF):
        c = module.config
        kind = SOFT if module.softness else LIF
        surrogate = c.surrogate == "atan", c.surrogate_alpha
        return Neuron(kind, c.decay, c.threshold, *surrogate, module.softness, module.burst, c.burst_step)
    if isinstance(module, nn.GELU | nn.SiLU):
        return Neuron(GELU if isinstance(module, nn.GELU) else SILU)
    if module is None or isinstance(module, nn.Identity):
        return Neuron()
    raise TypeError(f"no kernel for {type(module).__name__}")
