"""The nonlinearities: leaky integrate-and-fire over T steps (Eq. 1), GELU, SiLU, or none.

u_t = decay * u_{t-1} * (1 - s_{t-1}) + x_t          membrane: leak, hard reset to 0, integrate
s_t = 1 if u_t >= threshold else 0                   spike
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.errors import SpikeHTRError
from spikehtr.ops.masks import at_least_fp32
from spikehtr.ops.settings import GELU, LIF, SILU, Neuron


class _Spike(torch.autograd.Function):
    """Heaviside steps forward, `apart` from each other, one for each spike of a burst; the sum of the surrogate's
    derivatives at them backward, which is not made to be differentiated again."""

    @staticmethod
    def forward(excess: Tensor, surrogate: str, alpha: float, burst: int, apart: float) -> Tensor:
        spikes = torch.zeros_like(excess)
        for number in range(burst):
            spikes += excess >= number * apart
        return spikes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, float, int, float], output: Tensor) -> None:
        excess, ctx.surrogate, ctx.alpha, ctx.burst, ctx.apart = inputs
        ctx.save_for_backward(excess)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (excess,) = ctx.saved_tensors
        slopes, above = torch.zeros_like(excess), torch.empty_like(excess)
        for number in range(ctx.burst):
            above.copy_(excess).sub_(number * ctx.apart)  # one buffer for all: a new one costs a pass
            if ctx.surrogate == "atan":  # derivative of arctan(pi/2 * alpha * x) / pi
                slopes += above.mul_(math.pi / 2 * ctx.alpha).square_().add_(1).reciprocal_()
            else:  # derivative of sigmoid(alpha * x)
                soft = above.mul_(ctx.alpha).sigmoid_()
                slopes += soft * (1 - soft) * 2
        return slopes.mul_(ctx.alpha / 2).mul_(grad), None, None, None, None


def spike(excess: Tensor, surrogate: str = "atan", alpha: float = 2.0, burst: int = 1, apart: float = 0.0) -> Tensor:
    """1 where `excess` (membrane minus threshold) is not negative, else 0; same shape.

    `burst`: 2 where it is `apart` or more, 3 from twice that on, and so on to `burst`.
    """
    if surrogate not in ("atan", "sigmoid"):
        raise SpikeHTRError(f"surrogate must be atan or sigmoid, not {surrogate!r}")
    out: Tensor = _Spike.apply(excess, surrogate, alpha, burst, apart)  # type: ignore[no-untyped-call]
    return out


def _lif(drive: Tensor, neuron: Neuron) -> Tensor:
    if drive.dim() == 0 or len(drive) == 0:
        raise SpikeHTRError(f"an input current is [T, ...] with at least one step, not {list(drive.shape)}")
    currents = at_least_fp32(drive)
    membrane = fired = torch.zeros_like(currents[0])
    steps = []
    for current in currents.unbind(0):
        membrane = neuron.decay * membrane * (1 - fired) + current
        excess = membrane - neuron.threshold
        fired = (excess.detach() >= 0).to(excess.dtype)
        steps.append(spike(excess, neuron.surrogate, neuron.sharpness, neuron.burst, neuron.burst_step))
    return torch.stack(steps).to(drive.dtype)


def fire(drive: Tensor, neuron: Neuron) -> Tensor:
    """Drives [T, ...] -> outputs [T, ...] in the same dtype; the membrane is kept in at least fp32."""
    y = drive
    if neuron.kind == LIF:
        y = _lif(drive, neuron)
    elif neuron.kind == GELU:
        y = F.gelu(drive)
    elif neuron.kind == SILU:
        y = F.silu(drive)
    if neuron.tap is not None:
        neuron.tap(drive, y)
    return y
