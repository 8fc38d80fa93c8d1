"""The operators by Triton kernels: each function is what the one of its name is in `ops.plain`, in fewer passes.

Maps keep their logical shape [T, B, C, H, W] and lie channels-last in memory, so that a pointwise convolution is one
matrix product and every kernel walks contiguous channels. Under autocast maps stay in its dtype between kernels;
statistics, norms and membranes are fp32 inside them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.ops.masks import at_least_fp32
from spikehtr.ops.settings import Ink, Neuron, Norm
from spikehtr.ops.triton import (
    attention_op,
    depthwise_op,
    evidence,
    groupnorm_op,
    inject_op,
    scan_op,
    tokennorm_op,
)
from spikehtr.ops.triton import downmix as downmix_op
from spikehtr.ops.triton.addup import add_rows
from spikehtr.ops.triton.ctc import ctc_costs
from spikehtr.ops.triton.heightpool import height_pool
from spikehtr.ops.triton.layout import result_dtype
from spikehtr.ops.triton.tokennorm_op import Drop, fire


class _Linear(torch.autograd.Function):
    """F.linear, but for the sum that is the bias's gradient: torch's takes several times as long as reading does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        dx = (rows @ weight).view(x.shape) if ctx.needs_input_grad[0] else None
        dweight = rows.t() @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return dx, dweight, add_rows(rows) if ctx.needs_input_grad[2] else None


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or not torch.is_grad_enabled() or bias.dtype != torch.float32:
        return F.linear(x, weight, bias)
    dtype = result_dtype(x)
    y: Tensor = _Linear.apply(x.to(dtype), weight.to(dtype), bias)  # type: ignore[no-untyped-call]
    return y


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: tuple[int, ...] = (1, 1), groups: int = 1
) -> Tensor:
    high, wide = weight.shape[2:]
    if (high, wide) == (1, 1) and groups == 1 and stride == (1, 1):
        return linear(x.movedim(1, 3), weight.flatten(1), bias).movedim(3, 1)
    if weight.shape[1] * groups <= 3:
        return _image_conv(x, weight, bias, stride)
    x = x.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x, weight, bias, stride, (high // 2, wide // 2), groups=groups)


def _image_conv(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...]) -> Tensor:
    """As a matrix product over patches, their taps filled up to a multiple of 8: a library's convolution of so few
    channels takes several times as long as writing its result does."""
    (high, wide), (down, right) = weight.shape[2:], stride
    x = F.pad(x.to(result_dtype(x)), (wide // 2, wide // 2, high // 2, high // 2))
    patches = x.unfold(2, high, down).unfold(3, wide, right).permute(0, 2, 3, 1, 4, 5)  # [N, H', W', cin, kh, kw]
    taps = patches.shape[3:].numel()
    filled = x.new_zeros(*patches.shape[:3], taps + -taps % 8)
    filled[..., :taps].unflatten(3, patches.shape[3:]).copy_(patches)
    return F.linear(filled, F.pad(weight.flatten(1), (0, -taps % 8)), bias).movedim(3, 1)


def depthwise(x: Tensor, weight: Tensor, widths: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    dtype = result_dtype(x)
    plan = depthwise_op.DepthwiseLaunch(dtype, want_sums=True, fork=True)
    y, sums, again = depthwise_op.depthwise(x.to(dtype), weight, widths, plan)
    assert again is not None
    return y, sums, again


def _norm_plan(x: Tensor, norm: Norm, neuron: Neuron, fork: bool = False) -> groupnorm_op.GroupNormLaunch:
    return groupnorm_op.GroupNormLaunch(norm.groups, norm.eps, neuron, result_dtype(x), fork)


def group_norm(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> Tensor:
    return groupnorm_op.norm_neuron(x, widths, weight, bias, _norm_plan(x, norm, Neuron()))[0]


def group_norm_fork(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    h, again = groupnorm_op.norm_neuron(x, widths, weight, bias, _norm_plan(x, norm, Neuron(), fork=True))
    assert again is not None
    return h, again


def norm_neuron(
    x: Tensor,
    widths: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Norm,
    neuron: Neuron,
    alpha: Tensor | None = None,
    residual: Tensor | None = None,
    gain: Tensor | None = None,
    sums: Tensor | None = None,
) -> Tensor:
    plan = _norm_plan(x, norm, neuron)
    return groupnorm_op.norm_neuron(x, widths, weight, bias, plan, alpha, residual, gain, sums)[0]


def inject(features: Tensor, gain: Tensor) -> Tensor:
    return inject_op.inject(features, gain, features.dtype)


def downmix(
    z: Tensor,
    widths: Tensor,
    rho: float | Tensor,
    stride: tuple[int, int],
    base: Tensor | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    if stride == (1, 1) and base is None:
        return z
    y: Tensor = downmix_op.downmix(z, widths, rho, base, gate, stride)
    return y


def pixels(f: Tensor) -> Tensor:
    return f.movedim(2, 4)  # [T, B, H, W, C], as it lies in memory


def ink_evidence(gray: Tensor, widths: Tensor, weight: Tensor, ink: Ink) -> Tensor:
    found: Tensor = evidence.evidence(at_least_fp32(gray), widths, weight, ink)
    return found


def token_norm(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> Tensor:
    plan = tokennorm_op.TokenNormLaunch(norm.eps, Neuron(), result_dtype(x))
    return tokennorm_op.token_norm_neuron(x[None], weight, bias, plan).squeeze(0)


def token_norm_neuron(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm, neuron: Neuron) -> Tensor:
    plan = tokennorm_op.TokenNormLaunch(norm.eps, neuron, result_dtype(x))
    return tokennorm_op.token_norm_neuron(x, weight, bias, plan)


def add_branch(
    x: Tensor,
    drive: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Norm,
    neuron: Neuron,
    rate: float = 0.0,
    path_rate: float = 0.0,
) -> Tensor:
    drop = Drop.draw(rate, path_rate, x.device) if rate or path_rate else None
    plan = tokennorm_op.TokenNormLaunch(norm.eps, neuron, x.dtype, x.shape[2], drop)
    return tokennorm_op.token_norm_neuron(drive, weight, bias, plan, x)


def along_tokens(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = result_dtype(x)
    maps = x.to(dtype).unsqueeze(2).movedim(4, 2)  # [T, B, d, 1, L]
    y, _, _ = depthwise_op.depthwise(maps, weight.unsqueeze(2), mask.sum(1), depthwise_op.DepthwiseLaunch(dtype))
    y = y.movedim(2, 4).squeeze(2)
    return y if bias is None else y + bias.to(dtype)


def matched_mean(qkv: Tensor, mask: Tensor, heads: int) -> Tensor:
    return attention_op.matched_mean(qkv, mask, heads, result_dtype(qkv))


def pass_keys(qk: Tensor, heads: int, neuron: Neuron) -> Tensor:
    return attention_op.gate(qk, heads, neuron, result_dtype(qk))


def leaky_scan(driven: Tensor, mask: Tensor) -> Tensor:
    return scan_op.leaky_scan(driven, mask, result_dtype(driven))


def interpolate(table: Tensor, place: Tensor) -> Tensor:
    """As a matrix product: its gradient is one too, where a lookup's is a scatter of the whole batch into the table."""
    share = (1 - (place[..., None] - torch.arange(len(table), device=place.device)).abs()).clamp(min=0)  # [B, L, size]
    with torch.autocast(table.device.type, enabled=False):
        return share.to(table.dtype) @ table


__all__ = [
    "add_branch",
    "along_tokens",
    "conv2d",
    "ctc_costs",
    "depthwise",
    "downmix",
    "fire",
    "group_norm",
    "group_norm_fork",
    "height_pool",
    "inject",
    "ink_evidence",
    "interpolate",
    "leaky_scan",
    "linear",
    "matched_mean",
    "norm_neuron",
    "pass_keys",
    "pixels",
    "token_norm",
    "token_norm_neuron",
]
