"""Operators on tokens [T, B, L, d]; `mask` [B, L] is True at valid ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.ops.masks import at_least_fp32
from spikehtr.ops.plain.neuron import fire, spike
from spikehtr.ops.settings import LIF, Neuron, Norm


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """[..., din] -> [..., dout]"""
    return F.linear(x, weight, bias)


def token_norm(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> Tensor:
    """LayerNorm over channels, in at least fp32 whatever autocast says: [..., d] -> [..., d]"""
    y = F.layer_norm(at_least_fp32(x), weight.shape, weight, bias, norm.eps)
    if norm.tap is not None:
        norm.tap(x, y)
    return y


def token_norm_neuron(x: Tensor, weight: Tensor, bias: Tensor, norm: Norm, neuron: Neuron) -> Tensor:
    """neuron(Norm(x)): [T, ..., d] -> same shape; the drive between the two is never rounded."""
    return fire(token_norm(x, weight, bias, norm), neuron)


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
    """x + dropout(neuron(Norm(drive))): x, drive [T, B, L, d] -> same shape.

    Units are dropped at `rate`, a line's whole branch at `path_rate`; one draw for all timesteps.
    """
    y = token_norm_neuron(drive, weight, bias, norm, neuron)
    if rate > 0:
        y = y * _draw(y.shape[1:], rate, y)
    if path_rate > 0:
        y = y * _draw(y.shape[1:2], path_rate, y)[:, None, None]
    return x + y


def _draw(shape: torch.Size, rate: float, like: Tensor) -> Tensor:
    """0 with probability `rate`, else what keeps the mean at 1."""
    keep = 1.0 - rate
    return ((torch.rand(shape, device=like.device) < keep).float() / keep).to(like.dtype)


def along_tokens(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A depthwise convolution over a line's own tokens: weight [d, 1, k] -> [T, B, L, d]"""
    around = weight.shape[-1] // 2
    near = (x * mask[:, :, None]).flatten(0, 1).transpose(1, 2)  # [T*B, d, L]
    near = F.conv1d(near, weight, bias, padding=around, groups=len(weight))
    y: Tensor = near.transpose(1, 2).unflatten(0, x.shape[:2])
    return y


def matched_mean(qkv: Tensor, mask: Tensor, heads: int) -> Tensor:
    """y_i = q_i (sum_j k_j v_j^T) / (1 + |q_i . sum_j k_j|), head by head: q, k, v side by side [T, B, L, 3 d] ->
    [T, B, L, d], keys masked."""
    q, k, v = at_least_fp32(qkv).unflatten(-1, (3, heads, -1)).unbind(3)  # [T, B, L, h, d/h]
    k = k * mask[:, :, None, None]
    with torch.autocast(q.device.type, enabled=False):
        context = torch.einsum("tblhi,tblhj->tbhij", k, v)  # [T, B, h, d/h, d/h]
        matched = torch.einsum("tblhi,tbhij->tblhj", q, context)  # [T, B, L, h, d/h]
        total = torch.einsum("tblhi,tbhi->tblh", q, k.sum(2))  # [T, B, L, h]
    return (matched / (1 + total.abs())[..., None]).flatten(3)


def pass_keys(qk: Tensor, heads: int, neuron: Neuron) -> Tensor:
    """a * k, a = [sum(q) >= 0.5] head by head, or its sigmoid where there are no spikes: q and k side by side
    [T, B, L, 2 d] -> [T, B, L, d]"""
    q, k = at_least_fp32(qk).unflatten(-1, (2, heads, -1)).unbind(3)  # [T, B, L, h, d/h]
    excess = q.sum(-1, keepdim=True) - 0.5  # [T, B, L, h, 1]
    a = spike(excess, neuron.surrogate, neuron.sharpness) if neuron.kind == LIF else torch.sigmoid(excess)
    y: Tensor = (a * k).flatten(3)
    return y


def interpolate(table: Tensor, place: Tensor) -> Tensor:
    """Rows of a table [size, d] at places [B, L], between two rows linearly: [B, L, d]"""
    low = place.floor().long()
    part = (place - low)[..., None]
    return table[low] * (1 - part) + table[(low + 1).clamp(max=len(table) - 1)] * part
