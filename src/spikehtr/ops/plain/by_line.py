"""Norm and neuron of maps with a hand-written gradient: line by line, each on its own columns, by fused functions.

The same mathematics as `maps.norm_neuron` in a third of the time: a line's map stays in the cache from step to step.
What a line becomes depends on its own columns alone, by construction. For training on a CPU; graphs that are traced,
and whoever listens to norms and neurons, have the composition.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from spikehtr.ops.plain.neuron import count_spikes, surrogate_slopes
from spikehtr.ops.settings import GELU, LIF, NONE, SILU, Neuron, Norm


def serves(x: Tensor, norm: Norm, neuron: Neuron, *others: Tensor | None) -> bool:
    """Whether `norm_neuron_by_line` takes this: on a CPU, where gradients are wanted, what is not traced or watched."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    if norm.tap is not None or neuron.tap is not None or (neuron.kind == LIF and len(x) > 1) or x.numel() == 0:
        return False
    alike = all(one is None or one.dtype == x.dtype for one in others)
    usual = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    return torch.is_grad_enabled() and alike and usual and not torch.is_autocast_enabled("cpu")


def norm_neuron_by_line(
    x: Tensor,
    widths: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Norm,
    neuron: Neuron,
    alpha: Tensor | None = None,
    residual: Tensor | None = None,
    gain: Tensor | None = None,
) -> Tensor:
    """As `maps.norm_neuron`; its neuron is no LIF of several steps, and `gain` gets no gradient."""
    out: Tensor = _ByLine.apply(x, weight, bias, alpha, residual, gain, widths, norm, neuron)  # type: ignore[no-untyped-call]
    return out


class _ByLine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        alpha: Tensor | None,
        residual: Tensor | None,
        gain: Tensor | None,
        widths: Tensor,
        norm: Norm,
        neuron: Neuron,
    ) -> Tensor:
        gains = None if gain is None else gain.tolist()
        shortcut = None if alpha is None else float(alpha)
        y, moments = torch.empty_like(x, memory_format=torch.contiguous_format), []
        for step in range(len(x)):
            for line, width in enumerate(widths.tolist()):
                own = x[step, line, :, :, :width].contiguous()
                h, mean, rstd = _normed(own, weight, bias, norm)
                moments.append((mean, rstd))
                h = _outputs(h, neuron, shortcut)
                if gains is not None:
                    h = h.mul_(gains[line])
                place = y[step, line]
                if residual is None:
                    place[..., :width], place[..., width:] = h, 0
                else:
                    torch.add(residual[step, line, :, :, :width], h, out=place[..., :width])
                    place[..., width:] = residual[step, line, :, :, width:]
        means, rstds = (torch.stack(values) for values in zip(*moments, strict=True))
        ctx.save_for_backward(x, weight, bias, alpha, gain, widths, means, rstds)
        ctx.norm, ctx.neuron = norm, neuron
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, alpha, gain, widths, means, rstds = ctx.saved_tensors
        norm, neuron = ctx.norm, ctx.neuron
        gains = None if gain is None else gain.tolist()
        shortcut = None if alpha is None else float(alpha)
        on_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        on_weight, on_bias, on_alpha = torch.zeros_like(weight), torch.zeros_like(bias), 0.0
        moments = zip(means, rstds, strict=True)
        for step in range(len(x)):
            for line, width in enumerate(widths.tolist()):
                mean, rstd = next(moments)
                own = x[step, line, :, :, :width].contiguous()
                got = grad[step, line, :, :, :width].contiguous()
                factor = 1.0 if gains is None else gains[line]
                if neuron.kind != NONE:
                    h = _normed(own, weight, bias, norm)[0]
                    if shortcut is not None:
                        on_alpha += factor * float(torch.dot(got.flatten(), h.flatten()))
                    got = _slopes(h, neuron, shortcut).mul_(got)
                sizes = 1, len(weight), own[0].numel(), norm.groups
                of_x, of_weight, of_bias = torch.ops.aten.native_group_norm_backward(
                    got[None], own[None], mean[None], rstd[None], weight, *sizes, [True, True, True]
                )
                if neuron.kind == NONE and shortcut is not None:  # y = (1 + alpha) h
                    on_alpha += factor * float(weight @ of_weight + bias @ of_bias)
                    factor *= 1 + shortcut
                place = on_x[step, line]
                torch.mul(of_x[0], factor, out=place[..., :width])
                place[..., width:] = 0
                on_weight.add_(of_weight, alpha=factor)
                on_bias.add_(of_bias, alpha=factor)
        rest = grad if ctx.needs_input_grad[4] else None
        return on_x, on_weight, on_bias, _like(alpha, on_alpha), rest, None, None, None, None


def _like(alpha: Tensor | None, value: float) -> Tensor | None:
    return None if alpha is None else torch.full_like(alpha, value)


def _normed(own: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """GroupNorm of one line's columns [C, H, w], its means [G] and what it divides by, inverted [G]."""
    sizes = 1, len(weight), own[0].numel(), norm.groups
    h, mean, rstd = torch.native_group_norm(own[None], weight, bias, *sizes, norm.eps)
    return h[0], mean[0], rstd[0]


def _outputs(h: Tensor, neuron: Neuron, alpha: float | None) -> Tensor:
    """neuron(h) + alpha h; h itself may be overwritten."""
    if neuron.kind == NONE:
        return h if alpha is None else h.mul_(1 + alpha)
    if neuron.kind == LIF:
        y = count_spikes(h - neuron.threshold, neuron.burst, neuron.burst_step)
    else:
        y = F.gelu(h) if neuron.kind == GELU else F.silu(h)
    return y if alpha is None else y.add_(h.mul_(alpha))


def _slopes(h: Tensor, neuron: Neuron, alpha: float | None) -> Tensor:
    """The derivative of `_outputs` by h; of a spike, its surrogate's."""
    if neuron.kind == LIF:
        excess = h - neuron.threshold
        slopes = surrogate_slopes(excess, neuron.surrogate, neuron.sharpness, neuron.burst, neuron.burst_step)
    else:
        assert neuron.kind in (GELU, SILU)
        of = torch.ops.aten.gelu_backward if neuron.kind == GELU else torch.ops.aten.silu_backward
        slopes = of(torch.ones_like(h), h)
    return slopes if alpha is None else slopes.add_(alpha)
