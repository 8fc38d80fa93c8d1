"""The spiking neuron (Eq. 1) as a module: leaky integrate-and-fire over T steps, a pure function of its input.

`ops.plain.neuron` has the formulas. Nothing is kept between calls, so a line can never leak membrane into the next one.
The step function has no useful gradient; the backward pass uses a surrogate's derivative instead, and does not flow
through the reset.

PW1's neurons and the mixer's, which have no membrane shortcut, may fire bursts (`encoder.pw1_burst`, `mixer.burst`; not
in the paper): a second spike in the same step where u_t is `burst_step` above the threshold, a third at twice that, and
so on. Who reads them takes a spike for a spike: PW2 and FC2 add a weight for each.
"""

from __future__ import annotations

import math
from collections import defaultdict

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import LIFConfig, ModelConfig
from spikehtr.errors import SpikeHTRError


def numbers_of(config: LIFConfig, burst: int = 1) -> ops.Neuron:
    """The constants of LIF, as operators take them."""
    return ops.Neuron(
        kind=ops.LIF,
        decay=config.decay,
        threshold=config.threshold,
        surrogate=config.surrogate,
        sharpness=config.surrogate_alpha,
        burst=burst,
        burst_step=config.burst_step,
    )


class MultiStepLIF(nn.Module):
    """Drives [T, ...] -> spikes [T, ...]. No parameters and no state: `numbers` is all there is."""

    driven_by: tuple[nn.Module, ...] = ()  # the norm before it; in a tuple, since it is not a part of the neuron

    def __init__(self, config: LIFConfig, burst: int = 1) -> None:
        super().__init__()
        if burst < 1:
            raise SpikeHTRError(f"burst must be 1 or more, not {burst}: a neuron fires so often in a step at the most")
        self.config, self.burst = config, burst
        self.numbers = numbers_of(config, burst)

    def forward(self, drive: Tensor) -> Tensor:
        return ops.fire(drive, self.numbers)

    def extra_repr(self) -> str:
        return ", ".join([*(f"{key}={value}" for key, value in self.config), f"burst={self.burst}"])


class Gelu(nn.GELU):
    """The nonlinearity of the paper's ANN-isomorphic control."""

    numbers = ops.Neuron(ops.GELU)


class NoNeuron(nn.Identity):
    """Where a network leaves a neuron out."""

    numbers = ops.Neuron(ops.NONE)


Nonlinearity = MultiStepLIF | Gelu | NoNeuron


def make_neuron(
    config: ModelConfig,
    drive: nn.Module | None = None,
    burst: int = 1,
    start_bias: float | None = None,
    fires: bool = True,
) -> Nonlinearity:
    """The nonlinearity of every block: LIF, GELU for the control without spikes, or none where nothing `fires`.

    `drive` is the norm before it, whose bias then starts at `start_bias`, or `lif.start_bias` where that is None.
    """
    if not fires:
        return NoNeuron()
    if config.neuron != "lif":
        return Gelu()
    neuron = MultiStepLIF(config.lif, burst)
    if drive is not None:
        assert isinstance(drive.bias, Tensor)
        nn.init.constant_(drive.bias, config.lif.start_bias if start_bias is None else start_bias)
        neuron.driven_by = (drive,)
    return neuron


def expected_firing(net: nn.Module) -> Tensor:
    """The firing rate, on the mean over layers, that there would be at the first step if what a norm puts out were
    normal, with the mean and the spread that its bias and weight say: a smooth stand-in, from parameters alone."""
    layers = [m for m in net.modules() if isinstance(m, MultiStepLIF) and m.driven_by]
    alike = defaultdict[tuple[float, float, int], list[tuple[Tensor, Tensor]]](list)
    for layer in layers:
        (norm,) = layer.driven_by
        assert isinstance(norm.weight, Tensor)
        assert isinstance(norm.bias, Tensor)
        alike[layer.config.threshold, layer.config.burst_step, layer.burst].append((norm.weight, norm.bias))
    rates = [torch.zeros((), device=next(net.parameters()).device)]
    for (threshold, step, burst), norms in alike.items():  # of many layers at once, or it would be many tiny operations
        weight, bias = (torch.cat(values) for values in zip(*norms, strict=True))
        parts = torch.cat([torch.full_like(values, 1 / len(values)) for values, _ in norms])
        short = threshold + step * torch.arange(burst, device=bias.device)[:, None] - bias  # of each spike of a burst
        distance = short / (math.sqrt(2) * weight.abs().clamp(min=1e-3))
        rates.append((torch.special.erfc(distance) * parts).sum())
    return torch.stack(rates).sum() / (2 * max(1, len(layers)))
