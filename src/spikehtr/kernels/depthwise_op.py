"""Depthwise convolution as a differentiable function; see `depthwise.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikehtr.kernels import depthwise as device
from spikehtr.kernels.layout import on_device

_COLUMNS, _CHANNELS = 16, 32  # a thread holds two columns and two channels beside the taps


class Plan(NamedTuple):
    dtype: torch.dtype  # of the result
    want_sums: bool = False  # also give the result's sums over valid columns, for a norm that follows at once
    fork: bool = False  # also hand x through, so that both gradients meet in one pass


def _grid(x: Tensor) -> tuple[int]:
    n, _, w, c = x.shape
    return (n * -(-w // _COLUMNS) * -(-c // _CHANNELS),)


def _walk(
    x: Tensor,
    weight: Tensor,
    dtype: torch.dtype,
    widths: Tensor | None = None,
    through: Tensor | None = None,
    flip: bool = False,
) -> tuple[Tensor, Tensor | None]:
    n, h, w, c = x.shape
    taps = weight.detach().float().flatten(1).t().contiguous()  # [KH*KW, C]
    y = torch.empty_like(x, dtype=dtype)
    partial = None if widths is None else x.new_empty((n, -(-w // _COLUMNS), 2, c), dtype=torch.float32)
    with on_device(x):
        device.walk[_grid(x)](
            x, taps, widths, through, y, partial, 1 if widths is None else len(widths), h, w, c,
            KH=weight.shape[2], KW=weight.shape[3], FLIP=flip, THROUGH=through is not None, SUMS=widths is not None,
            BP=_COLUMNS, BC=_CHANNELS,
        )  # fmt: skip
    return y, partial


class _Depthwise(torch.autograd.Function):
    """x [N, H, W, C], weight [C, 1, KH, KW] -> y, y's sums (or None), x handed through (or None)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, widths: Tensor, plan: Plan
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        y, sums = _walk(x, weight, plan.dtype, widths if plan.want_sums else None)
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(False)
        if sums is not None:
            ctx.mark_non_differentiable(sums)
        return y, sums, x.view_as(x) if plan.fork else None

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None, through: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return through, None, None, None
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            dx, _sums = _walk(
                grad, weight, x.dtype, through=None if through is None else through.contiguous(), flip=True
            )
        if ctx.needs_input_grad[1]:
            n, h, w, c = x.shape
            taps = weight[0].numel()
            partial = x.new_empty((n * -(-w // _COLUMNS), taps, c), dtype=torch.float32)
            with on_device(x):
                device.tap_sums[_grid(x)](
                    x, grad, partial, h, w, c, KH=weight.shape[2], KW=weight.shape[3], BP=_COLUMNS, BC=_CHANNELS
                )
            dweight = partial.sum(0).t().reshape(weight.shape).to(weight.dtype)
        return dx, dweight, None, None


def depthwise(x: Tensor, weight: Tensor, widths: Tensor, plan: Plan) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """x [T, B, C, H, W] -> its convolution in the same shape, and as `plan` asks its sums and x again."""
    last = x.movedim(2, 4).contiguous().flatten(0, 1)  # [T*B, H, W, C]
    y, sums, through = _Depthwise.apply(last, weight, widths, plan)  # type: ignore[no-untyped-call]
    steps = x.shape[:2]
    back = None if through is None else through.unflatten(0, steps).movedim(4, 2)
    return y.unflatten(0, steps).movedim(4, 2), sums, back
