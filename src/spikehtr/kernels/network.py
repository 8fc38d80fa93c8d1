"""The network's parts on the fast path: each function is what the module of its name computes in `model/`.

Maps keep their logical shape [T, B, C, H, W] and lie channels-last in memory, so that a pointwise convolution is one
matrix product and every kernel walks contiguous channels. Under autocast maps stay in its dtype between kernels;
statistics, norms and membranes are fp32 inside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr.config import LIFConfig
from spikehtr.kernels.addup import add_rows
from spikehtr.kernels.attention_op import gate, matched_mean
from spikehtr.kernels.depthwise_op import Plan as DepthwisePlan
from spikehtr.kernels.depthwise_op import depthwise
from spikehtr.kernels.describe import describe
from spikehtr.kernels.groupnorm_op import Plan as NormPlan
from spikehtr.kernels.groupnorm_op import norm_neuron
from spikehtr.kernels.layout import result_dtype
from spikehtr.kernels.tokennorm_op import Drop, token_norm_neuron
from spikehtr.kernels.tokennorm_op import Plan as TokenPlan

if TYPE_CHECKING:  # they import this package
    from spikehtr.model.encoder import ConvMix2d, SpikingConv2d
    from spikehtr.model.masking import MaskedGroupNorm, SharedDropout, TokenNorm
    from spikehtr.model.mixer import SpikingLinear


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


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """[..., din] -> [..., dout]"""
    if bias is None or not torch.is_grad_enabled() or bias.dtype != torch.float32:
        return F.linear(x, weight, bias)
    dtype = result_dtype(x)
    y: Tensor = _Linear.apply(x.to(dtype), weight.to(dtype), bias)  # type: ignore[no-untyped-call]
    return y


def conv2d(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """[N, cin, H, W] -> [N, cout, H', W'], both channels-last."""
    if conv.kernel_size == (1, 1) and conv.groups == 1 and conv.stride == (1, 1):
        return linear(x.movedim(1, 3), conv.weight.flatten(1), conv.bias).movedim(3, 1)
    if conv.in_channels <= 3:
        return _image_conv(conv, x)
    x = x.contiguous(memory_format=torch.channels_last)
    return F.conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding, groups=conv.groups)


def _image_conv(conv: nn.Conv2d, x: Tensor) -> Tensor:
    """As a matrix product over patches, their taps filled up to a multiple of 8: a library's convolution of so few
    channels takes several times as long as writing its result does."""
    (high, wide), (down, right) = conv.kernel_size, conv.stride
    x = F.pad(x.to(result_dtype(x)), (wide // 2, wide // 2, high // 2, high // 2))
    patches = x.unfold(2, high, down).unfold(3, wide, right).permute(0, 2, 3, 1, 4, 5)  # [N, H', W', cin, kh, kw]
    taps = patches.shape[3:].numel()
    filled = x.new_zeros(*patches.shape[:3], taps + -taps % 8)
    filled[..., :taps].unflatten(3, patches.shape[3:]).copy_(patches)
    return F.linear(filled, F.pad(conv.weight.flatten(1), (0, -taps % 8)), conv.bias).movedim(3, 1)


def _plan(norm: MaskedGroupNorm, neuron: nn.Module | None, x: Tensor, fork: bool = False) -> NormPlan:
    return NormPlan(norm.groups, norm.eps, describe(neuron), result_dtype(x), fork)


def group_norm(norm: MaskedGroupNorm, x: Tensor, widths: Tensor, neuron: nn.Module | None = None) -> Tensor:
    """Norm, and a neuron where given: [T, B, C, H, W] -> same shape; 0 in the padding."""
    return norm_neuron(x, widths, norm.weight, norm.bias, _plan(norm, neuron, x))[0]


def spiking_conv(module: SpikingConv2d, x: Tensor, widths: Tensor) -> Tensor:
    """[T, B, cin, H, W] -> [T, B, cout, H', W']"""
    h = module.conv(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    plan = _plan(module.norm, module.neuron, h)
    return norm_neuron(h, widths, module.norm.weight, module.norm.bias, plan, module.alpha)[0]


def conv_mix(block: ConvMix2d, x: Tensor, widths: Tensor) -> Tensor:
    """Both residual branches. Sums for a norm are taken by whoever writes its input, where that is a kernel of ours;
    where x goes two ways, it is handed through the kernel that reads it, so that its two gradients meet there."""
    dtype = result_dtype(x)
    dw, norm = block.dw, block.norm
    assert norm is not None
    h, sums, through = depthwise(x.to(dtype), dw.conv.weight, widths, DepthwisePlan(dtype, want_sums=True, fork=True))
    plan = _plan(dw.norm, dw.neuron, h)
    gain = block.drop_path.gain(x)
    x, _ = norm_neuron(h, widths, dw.norm.weight, dw.norm.bias, plan, dw.alpha, through, gain, sums)
    y, through = norm_neuron(x, widths, norm.weight, norm.bias, _plan(norm, None, x, fork=True))
    y = block.dropout(spiking_conv(block.pw1, y, widths))
    h = block.pw2.conv(y.flatten(0, 1)).unflatten(0, y.shape[:2])
    norm, gain = block.pw2.norm, block.drop_path.gain(x)
    plan = _plan(norm, block.pw2.neuron, h)
    return norm_neuron(h, widths, norm.weight, norm.bias, plan, block.pw2.alpha, through, gain)[0]


def token_norm(norm: TokenNorm, x: Tensor, neuron: nn.Module | None = None) -> Tensor:
    """Norm, and a neuron where given: [T, ..., d] -> same shape; without a neuron any [..., d]."""
    plan = TokenPlan(norm.eps, describe(neuron), result_dtype(x))
    if neuron is None:
        return token_norm_neuron(x[None], norm.weight, norm.bias, plan).squeeze(0)
    return token_norm_neuron(x, norm.weight, norm.bias, plan)


def interpolate(table: Tensor, place: Tensor) -> Tensor:
    """Rows of a table [size, d] at places [B, L], between two rows linearly: [B, L, d].

    As a matrix product: its gradient is one too, where a lookup's is a scatter of the whole batch into the table.
    """
    share = (1 - (place[..., None] - torch.arange(len(table), device=place.device)).abs()).clamp(min=0)  # [B, L, size]
    with torch.autocast(table.device.type, enabled=False):
        return share.to(table.dtype) @ table


def along_tokens(conv: nn.Conv1d, x: Tensor, lengths: Tensor) -> Tensor:
    """A depthwise convolution over tokens [T, B, L, d], with zeros from a line's length on: same shape."""
    dtype = result_dtype(x)
    maps = x.to(dtype).unsqueeze(2).movedim(4, 2)  # [T, B, d, 1, L]
    y, _, _ = depthwise(maps, conv.weight.unsqueeze(2), lengths, DepthwisePlan(dtype))
    y = y.movedim(2, 4).squeeze(2)
    return y if conv.bias is None else y + conv.bias.to(dtype)


def attend(qkv: Tensor, mask: Tensor, heads: int) -> Tensor:
    """`MatchedMean` of spikes [T, B, L, 3 d], mask [B, L] -> [T, B, L, d]"""
    return matched_mean(qkv, mask, heads, result_dtype(qkv))


def pass_keys(qk: Tensor, heads: int, lif: LIFConfig | None) -> Tensor:
    """The gate of `QKMix`: [T, B, L, 2 d] -> [T, B, L, d]"""
    return gate(qk, heads, lif, result_dtype(qk))


def add_spikes(
    x: Tensor, out: SpikingLinear, drive: Tensor, dropout: SharedDropout, drop_path: SharedDropout
) -> Tensor:
    """x + drop_path(dropout(neuron(Norm(drive)))), [T, B, L, d]; one kernel."""
    rate, path_rate = (d.rate if d.active else 0.0 for d in (dropout, drop_path))
    drop = Drop.draw(rate, path_rate, x.device) if rate or path_rate else None
    plan = TokenPlan(out.norm.eps, describe(out.neuron), x.dtype, x.shape[2], drop)
    return token_norm_neuron(drive, out.norm.weight, out.norm.bias, plan, x)
