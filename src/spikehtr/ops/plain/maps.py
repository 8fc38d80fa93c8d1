"""Operators on maps [T, B, C, H, W]; `widths` [B] are each line's own columns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.ops.masks import at_least_fp32, column_mask, shrink
from spikehtr.ops.plain import by_line
from spikehtr.ops.plain.neuron import fire
from spikehtr.ops.settings import NONE, Neuron, Norm

_NO_NEURON = Neuron(NONE)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: tuple[int, ...] = (1, 1), groups: int = 1
) -> Tensor:
    """[N, cin, H, W], weight [cout, cin/groups, kh, kw] -> [N, cout, H', W'], padded by half the kernel.

    Pointwise ones, and those of an image's few channels, as a matrix product: a library's convolution may sum in
    another order at another width, and the last digit decides spikes at the threshold; a matrix product on the CPU does
    not.
    """
    (high, wide), (down, _) = weight.shape[2:], stride
    around = (high // 2, wide // 2)
    pointwise = (high, wide) == (1, 1)
    if groups > 1 or not ((pointwise and stride == (1, 1)) or weight.shape[1] <= 3):
        return F.conv2d(x, weight, bias, stride, around, groups=groups)
    columns = x.flatten(2) if pointwise else F.unfold(x, (high, wide), 1, around, stride)  # [N, cin*kh*kw, H'*W']
    y: Tensor = _products(weight.flatten(1), columns).unflatten(2, (-(-x.shape[2] // down), -1))
    return y if bias is None else y + bias[:, None, None].to(y.dtype)


def _products(weight: Tensor, columns: Tensor) -> Tensor:
    """weight [M, K], columns [N, K, P] -> [N, M, P]. `matmul` turns the columns around first, which costs more than the
    product; a traced graph has it, since it says what is meant."""
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if traced or columns.device.type != "cpu":
        return torch.matmul(weight, columns)
    return torch.bmm(weight.expand(len(columns), -1, -1), columns)


def depthwise(x: Tensor, weight: Tensor, widths: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """x [T, B, C, H, W], 0 in the padding, weight [C, 1, kh, kw] -> its convolution; what `norm_neuron` takes as `sums`
    of it (None: it takes them itself); and x again, for a residual sum."""
    y = conv2d(x.flatten(0, 1), weight, groups=len(weight)).unflatten(0, x.shape[:2])
    return y, None, x


def group_norm(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> Tensor:
    """GroupNorm over a line's own columns, each (t, b, group) by itself: same shape, in at least fp32.

    Values at padded columns are finite and mean nothing. The two sums run in float64: their result then does not hang
    on the order of the terms, which changes with the padded width. In fp32 that last digit would decide spikes at the
    threshold.
    """
    if by_line.serves(x, norm, _NO_NEURON, weight, bias):
        return by_line.norm_neuron_by_line(x, widths, weight, bias, norm, _NO_NEURON)
    wide = at_least_fp32(x)
    grouped = (wide * column_mask(widths, x.shape[-1])).unflatten(2, (norm.groups, -1))  # [T, B, G, C/G, H, W]
    count = widths[:, None] * (grouped.shape[3] * grouped.shape[4])  # [B, 1]
    mean = grouped.sum((3, 4, 5), dtype=torch.float64) / count  # [T, B, G]
    variance = grouped.square().sum((3, 4, 5), dtype=torch.float64) / count - mean.square()
    rstd = torch.rsqrt(variance.clamp(min=0) + norm.eps)
    spread = grouped.shape[3]  # channels a group
    scale = rstd.repeat_interleave(spread, dim=2) * weight  # [T, B, C]
    shift = bias - mean.repeat_interleave(spread, dim=2) * scale
    h: Tensor = wide * scale.to(wide.dtype)[..., None, None] + shift.to(wide.dtype)[..., None, None]
    if norm.tap is not None:
        norm.tap(x, h)
    return h


def group_norm_fork(x: Tensor, widths: Tensor, weight: Tensor, bias: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
    """`group_norm`, and x again: where x goes two ways, its two gradients can then meet in one pass."""
    return group_norm(x, widths, weight, bias, norm), x


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
    """residual + gain_b * mask * (neuron(H) + alpha * H), H = Norm(x) (Eq. 8): 0 in the padding, before `residual`.

    x, residual [T, B, C, H, W], gain [B]; `sums` are x's, where `depthwise` gave them.
    """
    fixed = gain is None or not gain.requires_grad
    if fixed and by_line.serves(x, norm, neuron, weight, bias, alpha, residual):
        return by_line.norm_neuron_by_line(x, widths, weight, bias, norm, neuron, alpha, residual, gain)
    h = group_norm(x, widths, weight, bias, norm)
    y = fire(h, neuron)
    if alpha is not None:
        y = y + alpha * h
    y = y * column_mask(widths, y.shape[-1])
    if gain is not None:
        y = y * gain[:, None, None, None].to(y.dtype)
    return y if residual is None else residual + y


def inject(features: Tensor, gain: Tensor) -> Tensor:
    """X_t = S * gain_t (Eq. 7): features [B, C, H, W], gain [T, B, 1, H, W] -> [T, B, C, H, W]"""
    return features * gain


def downmix(
    z: Tensor,
    widths: Tensor,
    rho: float | Tensor,
    stride: tuple[int, int],
    base: Tensor | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    """Avg(z) + rho * (Max(z) - Avg(z)) over the valid columns of each pool: [T, B, C, H, W] -> [T, B, C, H/sh, W/sw].

    `rho` is learned (a tensor), or 0.0 or 1.0. With `base` and `gate` of the result's shape: base + sigmoid(gate) *
    that (Eq. 9).
    """
    pooled = z if stride == (1, 1) else _pool(z, widths, rho, stride)
    if base is None or gate is None:
        return pooled
    return base + torch.sigmoid(gate) * pooled * column_mask(shrink(widths, stride[1]), base.shape[-1])


def _pool(z: Tensor, widths: Tensor, rho: float | Tensor, stride: tuple[int, int]) -> Tensor:
    inside = column_mask(widths, z.shape[-1]).expand(z.shape[1], 1, *z.shape[-2:])  # [B, 1, H, W]
    total = F.avg_pool2d((z * inside).flatten(0, 1), stride)
    share = F.avg_pool2d(inside.to(z.dtype), stride)  # [B, 1, H/sh, W/sw]: part of the pool that is valid
    average: Tensor = total.unflatten(0, z.shape[:2]) / share.clamp(min=1 / stride[1])
    if isinstance(rho, float) and rho == 0.0:
        return average
    lowest = torch.finfo(z.dtype).min
    masked = z.flatten(0, 1).masked_fill(~inside.repeat(z.shape[0], 1, 1, 1), lowest)
    largest: Tensor = F.max_pool2d(masked, stride).unflatten(0, z.shape[:2])
    largest = largest.masked_fill(share == 0, 0.0)
    if isinstance(rho, float) and rho == 1.0:
        return largest
    return average + rho * (largest - average)


def pixels(f: Tensor) -> Tensor:
    """A map [T, B, C, H, W] with its channels last, its two sides in the order in which `height_pool` takes them: here
    [T, B, W, H, C]."""
    return f.permute(0, 1, 4, 3, 2)


def height_pool(f: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over a column's rows, weighted by the softmax of their scores, and maximum (Eq. 10).

    f of `pixels`, and a score for each of them, [..., 1] -> two [T, B, W, C]
    """
    omega = at_least_fp32(scores).softmax(dim=3)  # [T, B, W, H, 1]
    return (omega * f).sum(dim=3), f.amax(dim=3)
