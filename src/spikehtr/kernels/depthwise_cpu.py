"""A depthwise convolution with a gradient of its own, for CPUs on which PyTorch's takes some hundred times as long as
the convolution: that of the input is a convolution, that of the weights a sum for each tap."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _convolved(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        dx = _convolved(grad, weight.flip(2, 3)) if ctx.needs_input_grad[0] else None
        dweight = _tap_sums(x, grad, weight) if ctx.needs_input_grad[1] else None
        return dx, dweight


def _convolved(x: Tensor, weight: Tensor) -> Tensor:
    high, wide = weight.shape[2:]
    return F.conv2d(x, weight, padding=(high // 2, wide // 2), groups=len(weight))


def _tap_sums(x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
    """What each tap has read, by what became of it."""
    (high, wide), (rows, columns) = weight.shape[2:], x.shape[2:]
    around = F.pad(x, (wide // 2, wide // 2, high // 2, high // 2))
    read = (around[:, :, i : i + rows, j : j + columns] for i in range(high) for j in range(wide))
    return torch.stack([(values * grad).sum((0, 2, 3)) for values in read], 1).view_as(weight)


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, C, H, W], weight [C, 1, KH, KW] of odd sizes -> [N, C, H, W], as F.conv2d has it with zeros around x."""
    convolved: Tensor = _Depthwise.apply(x, weight)  # type: ignore[no-untyped-call]
    return convolved
