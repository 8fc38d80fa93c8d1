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

_CHUNK = 1 << 16  # numbers that are worked on together: few enough to stay in a cache


def count_spikes(excess: Tensor, burst: int, apart: float) -> Tensor:
    """How many of `burst` thresholds, `apart` from each other and the first at 0, are reached: same shape."""
    if burst == 1:
        return (excess >= 0).to(excess.dtype)
    if apart > 0 and math.frexp(apart)[0] == 0.5:  # a power of two: to divide by it rounds nothing
        return (excess * (1 / apart)).floor_().clamp_(-1, burst - 1).add_(1)
    spikes = torch.zeros_like(excess)
    for number in range(burst):
        spikes += excess >= number * apart
    return spikes


def surrogate_slopes(excess: Tensor, surrogate: str, alpha: float, burst: int, apart: float) -> Tensor:
    """The sum of the surrogate's derivatives at the thresholds of `count_spikes`: same shape."""
    excess = excess.detach()
    slopes = torch.empty_like(excess, memory_format=torch.contiguous_format)
    one = torch.ones((), dtype=excess.dtype, device=excess.device)
    # A GPU has no cache to stay in, and would wait for each of many small kernels.
    size = _CHUNK if excess.device.type == "cpu" else max(1, excess.numel())
    buffer = torch.empty_like(excess.flatten()[:size])
    steep = math.pi / 2 * alpha if surrogate == "atan" else alpha
    for part, total in zip(excess.flatten().split(size), slopes.view(-1).split(size), strict=True):
        scaled, above = part * steep, buffer[: len(part)]
        for number in range(burst):
            torch.sub(scaled, number * apart * steep, out=above)
            if surrogate == "atan":  # derivative of arctan(pi/2 * alpha * x) / pi
                slope = torch.addcmul(one, above, above, out=above).reciprocal_()
            else:  # derivative of sigmoid(alpha * x)
                soft = above.sigmoid_()
                slope = soft.addcmul_(soft, soft, value=-1).mul_(2)
            if number:
                total.add_(slope)
            else:
                total.copy_(slope)
        total.mul_(alpha / 2)
    return slopes


class _Spike(torch.autograd.Function):
    """`count_spikes` forward, `surrogate_slopes` backward, which is not made to be differentiated again."""

    @staticmethod
    def forward(excess: Tensor, surrogate: str, alpha: float, burst: int, apart: float) -> Tensor:
        return count_spikes(excess, burst, apart)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, float, int, float], output: Tensor) -> None:
        excess, ctx.surrogate, ctx.alpha, ctx.burst, ctx.apart = inputs
        ctx.save_for_backward(excess)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (excess,) = ctx.saved_tensors
        slopes = surrogate_slopes(excess, ctx.surrogate, ctx.alpha, ctx.burst, ctx.apart)
        return slopes.mul_(grad), None, None, None, None


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
    settings = neuron.surrogate, neuron.sharpness, neuron.burst, neuron.burst_step
    membrane = currents[0]  # before the first step there is none to leak
    excess = membrane - neuron.threshold
    steps = [spike(excess, *settings)]
    for current in currents.unbind(0)[1:]:  # an exported program cannot hold an unbinding into nothing
        fired = (excess.detach() >= 0).to(excess.dtype)
        membrane = neuron.decay * membrane * (1 - fired) + current
        excess = membrane - neuron.threshold
        steps.append(spike(excess, *settings))
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
