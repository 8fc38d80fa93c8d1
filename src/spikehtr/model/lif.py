"""The spiking neuron (Eq. 1): leaky integrate-and-fire over T steps, as a pure function of its input.

    u_t = decay * u_{t-1} * (1 - s_{t-1}) + x_t          membrane: leak, hard reset to 0, integrate
    s_t = 1 if u_t >= threshold else 0                   spike

PW1's neurons and the mixer's, which have no membrane shortcut, may fire bursts (`encoder.pw1_burst`, `mixer.burst`; not
in the paper): a second spike in the same step where u_t is `burst_step` above the threshold, a third at twice that, and
so on. Who reads them takes a spike for a spike: PW2 and FC2 add a weight for each.

Nothing is kept between calls, so a line can never leak membrane into the next one. The step function has no useful
gradient; the backward pass uses a surrogate's derivative instead, and does not flow through the reset.

Training may begin with soft spikes (`training.spike_anneal`): part of the step is then replaced by the function whose
derivative the surrogate is. Whether a neuron is reset is never soft.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from spikehtr import kernels
from spikehtr.config import LIFConfig, ModelConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.masking import wide


class _Spike(torch.autograd.Function):
    """Heaviside steps forward (or in part their soft form), `apart` from each other, one for each spike of a burst; the
    sum of the surrogate's derivatives at them backward, which is not made to be differentiated again."""

    @staticmethod
    def forward(excess: Tensor, surrogate: str, alpha: float, softness: float, burst: int, apart: float) -> Tensor:
        spikes = torch.zeros_like(excess)
        for level in (number * apart for number in range(burst)):
            if softness == 0:
                spikes += excess >= level
                continue
            hard, scaled = (excess >= level).to(excess.dtype), alpha * (excess - level)
            soft = torch.atan(math.pi / 2 * scaled) / math.pi + 0.5 if surrogate == "atan" else torch.sigmoid(scaled)
            spikes += torch.lerp(hard, soft, softness)
        return spikes

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, float, float, int, float], output: Tensor) -> None:
        excess, ctx.surrogate, ctx.alpha, _, ctx.burst, ctx.apart = inputs
        ctx.save_for_backward(excess)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (excess,) = ctx.saved_tensors
        slopes, above = torch.zeros_like(excess), torch.empty_like(excess)
        for number in range(ctx.burst):
            above.copy_(excess).sub_(number * ctx.apart)  # one buffer for all: a new one costs a pass
            if ctx.surrogate == "atan":  # derivative of arctan(pi/2 * alpha * x) / pi
                slopes += above.mul_(math.pi / 2 * ctx.alpha).square_().add_(1).reciprocal_()
            else:  # derivative of sigmoid(alpha * x)
                soft = above.mul_(ctx.alpha).sigmoid_()
                slopes += soft * (1 - soft) * 2
        return slopes.mul_(ctx.alpha / 2).mul_(grad), None, None, None, None, None


def spike(
    excess: Tensor,
    surrogate: str = "atan",
    alpha: float = 2.0,
    softness: float = 0.0,
    burst: int = 1,
    apart: float = 0.0,
) -> Tensor:
    """1 where `excess` (membrane minus threshold) is not negative, else 0; same shape. `softness` 1: wholly soft.
    `burst`: 2 where it is `apart` or more, 3 from twice that on, and so on to `burst`."""
    if surrogate not in ("atan", "sigmoid"):
        raise SpikeHTRError(f"surrogate must be atan or sigmoid, not {surrogate!r}")
    out: Tensor = _Spike.apply(excess, surrogate, alpha, softness, burst, apart)  # type: ignore[no-untyped-call]
    return out


def lif(drive: Tensor, config: LIFConfig, softness: float = 0.0, burst: int = 1) -> Tensor:
    """Spikes [T, ...] of an input current [T, ...], in its dtype; the membrane is kept in at least fp32."""
    if drive.dim() == 0 or len(drive) == 0:
        raise SpikeHTRError(f"an input current is [T, ...] with at least one step, not {list(drive.shape)}")
    currents = wide(drive)
    membrane = fired = torch.zeros_like(currents[0])
    steps = []
    for current in currents.unbind(0):
        membrane = config.decay * membrane * (1 - fired) + current
        excess = membrane - config.threshold
        fired = (excess.detach() >= 0).to(excess.dtype)
        steps.append(spike(excess, config.surrogate, config.surrogate_alpha, softness, burst, config.burst_step))
    return torch.stack(steps).to(drive.dtype)


class MultiStepLIF(nn.Module):
    """`lif` as a module: no parameters and no state, a place for profilers to hook."""

    softness = 0.0  # of its spikes; above 0 in training alone
    driven_by: tuple[nn.Module, ...] = ()  # the norm before it; in a tuple, since it is not a part of the neuron

    def __init__(self, config: LIFConfig, burst: int = 1) -> None:
        super().__init__()
        if burst < 1:
            raise SpikeHTRError(f"burst must be 1 or more, not {burst}: a neuron fires so often in a step at the most")
        self.config, self.burst = config, burst

    def forward(self, drive: Tensor) -> Tensor:
        if kernels.fast(drive):
            from spikehtr.kernels.describe import describe
            from spikehtr.kernels.tokennorm_op import fire

            return fire(drive, describe(self))
        return lif(drive, self.config, self.softness, self.burst)

    def extra_repr(self) -> str:
        return ", ".join([*(f"{key}={value}" for key, value in self.config), f"burst={self.burst}"])


def make_neuron(
    config: ModelConfig, drive: nn.Module | None = None, burst: int = 1, start_bias: float | None = None
) -> nn.Module:
    """The nonlinearity of every block: the neuron above, or GELU for the paper's ANN-isomorphic control.

    `drive` is the norm before it, whose bias then starts at `start_bias`, or `lif.start_bias` where that is None.
    """
    if config.neuron != "lif":
        return nn.GELU()
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
    for (threshold, step, burst), norms in alike.items():  # of many layers at once, or it would be many tiny kernels
        weight, bias = (torch.cat(values) for values in zip(*norms, strict=True))
        parts = torch.cat([torch.full_like(values, 1 / len(values)) for values, _ in norms])
        short = threshold + step * torch.arange(burst, device=bias.device)[:, None] - bias  # of each spike of a burst
        distance = short / (math.sqrt(2) * weight.abs().clamp(min=1e-3))
        rates.append((torch.special.erfc(distance) * parts).sum())
    return torch.stack(rates).sum() / (2 * max(1, len(layers)))


def set_softness(net: nn.Module, softness: float) -> None:
    """Make the spikes of every neuron of a network so soft."""
    for module in net.modules():
        if isinstance(module, MultiStepLIF):
            module.softness = softness


def set_surrogate(net: nn.Module, alpha: float) -> None:
    """Change the surrogate's sharpness in every neuron and gate of a network: its gradients only, never its output."""
    for module in net.modules():
        for name in ("config", "lif"):  # of a neuron; of a gate that fires by itself
            lif = module.__dict__.get(name)
            if isinstance(lif, LIFConfig):
                setattr(module, name, lif.model_copy(update={"surrogate_alpha": alpha}))
