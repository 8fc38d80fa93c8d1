"""Depthwise convolution as a differentiable function; see `depthwise.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikehtr.ops.triton import depthwise as device
from spikehtr.ops.triton.addup import add_rows
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device

_STRIP, _STRIPS, _CHANNELS = 4, 8, 32  # columns a thread holds of two channels; a program has 4 warps of such threads
_COLUMNS = _STRIP * _STRIPS
_BLOCKS = {"S": _STRIP, "BS": _STRIPS, "BC": _CHANNELS}
_LOW = 4  # rows of a map whose walk is written out; more would take long to compile
_ROWS, _PROGRAMS = 32, 1024  # of the taps' gradient: rows worth writing a program's sums for, and enough programs


class DepthwiseLaunch(NamedTuple):
    dtype: torch.dtype  # of the result
    want_sums: bool = False  # also give the result's sums over valid columns, for a norm that follows at once
    fork: bool = False  # also hand x through, so that both gradients meet in one pass


def _grid(x: Tensor, maps: int = 1) -> tuple[int]:
    n, _, w, c = x.shape
    return (-(-n // maps) * -(-w // _COLUMNS) * -(-c // _CHANNELS),)


def maps_a_program(x: Tensor) -> int:
    """How many maps a program adds up for the taps' gradient: at the end it adds up its threads' sums, tap by tap, and
    for few rows that would take longer than the rows."""
    return max(1, min(_ROWS // x.shape[1], _grid(x)[0] // _PROGRAMS))


def _walk(
    x: Tensor,
    weight: Tensor,
    widths: Tensor,
    dtype: torch.dtype,
    want_sums: bool = False,
    through: Tensor | None = None,
    flip: bool = False,
) -> tuple[Tensor, Tensor | None]:
    n, h, w, c = x.shape
    taps = weight.detach().float().flatten(1).t().contiguous()  # [KH*KW, C]
    y = torch.empty_like(x, dtype=dtype)
    partial = x.new_empty((n, -(-w // _COLUMNS), 2, c), dtype=torch.float32) if want_sums else None
    with on_device(x):
        launch(device.walk, _grid(x),
            x, taps, widths, through, y, partial, len(widths), h, w, c, HIGH=h if h <= _LOW else 0, KH=weight.shape[2],
            KW=weight.shape[3], FLIP=flip, THROUGH=through is not None, SUMS=want_sums, maxnreg=168, **_BLOCKS,
        )  # fmt: skip
    return y, partial


class _Depthwise(torch.autograd.Function):
    """x [N, H, W, C], weight [C, 1, KH, KW] -> y, y's sums (or None), x handed through (or None)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, widths: Tensor, plan: DepthwiseLaunch
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        y, sums = _walk(x, weight, widths, plan.dtype, plan.want_sums)
        ctx.save_for_backward(x, weight, widths)
        ctx.set_materialize_grads(False)
        if sums is not None:
            ctx.mark_non_differentiable(sums)
        return y, sums, x.view_as(x) if plan.fork else None

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None, through: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return through, None, None, None
        x, weight, widths = ctx.saved_tensors
        grad = grad.contiguous()
        dx = dweight = None
        if ctx.needs_input_grad[0]:
            through = None if through is None else through.contiguous()
            dx = _walk(grad, weight, widths, x.dtype, through=through, flip=True)[0]
        if ctx.needs_input_grad[1]:
            (n, h, w, c), maps = x.shape, maps_a_program(x)
            partial = x.new_empty((-(-n // maps) * -(-w // _COLUMNS), weight[0].numel(), c), dtype=torch.float32)
            with on_device(x):
                launch(device.tap_sums, _grid(x, maps),
                    x, grad, widths, partial, n, len(widths), h, w, c, MAPS=maps, KH=weight.shape[2],
                    KW=weight.shape[3], maxnreg=168 if weight.shape[2] > 1 else None, **_BLOCKS,
                )  # fmt: skip
            dweight = add_rows(partial).t().reshape(weight.shape).to(weight.dtype)
        return dx, dweight, None, None


def depthwise(
    x: Tensor, weight: Tensor, widths: Tensor, plan: DepthwiseLaunch
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """x [T, B, C, H, W], 0 in the padding -> its convolution in the same shape, as `plan` asks its sums, and x again.

    What the gradient of y holds in the padding is taken as 0; x has none there.
    """
    last = x.movedim(2, 4).contiguous().flatten(0, 1)  # [T*B, H, W, C]
    y, sums, through = _Depthwise.apply(last, weight, widths, plan)  # type: ignore[no-untyped-call]
    steps = x.shape[:2]
    back = None if through is None else through.unflatten(0, steps).movedim(4, 2)
    return y.unflatten(0, steps).movedim(4, 2), sums, back
