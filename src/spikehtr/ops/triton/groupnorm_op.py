"""Masked GroupNorm and what follows it (neuron, shortcut, mask, residual) as one differentiable function.

Forward: one pass for the sums, one to apply. Backward: one pass for the sums, one for the gradient; both rebuild
Norm(x) and the membrane from x, so that x is all that is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikehtr.ops.settings import Neuron
from spikehtr.ops.triton import groupnorm as device
from spikehtr.ops.triton.addup import add_rows
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import COLUMNS, channel_block, channels_last, channels_second, on_device, power_of_two

_ROWS, _PROGRAMS = 4, 16  # rows that a program adds up, at most, and programs that a line has then, at least
_REGISTERS = 64  # of a thread that adds up gradients, at one step: so all 1024 programs of swift's maps run at once


def _back_columns(channels: int) -> int:
    return 1024 // channel_block(channels)  # small programs, many at a time: the backward pass holds much in registers


class GroupNormLaunch(NamedTuple):
    """What does not change from call to call."""

    groups: int
    eps: float
    neuron: Neuron
    dtype: torch.dtype  # of the result
    fork: bool = False  # also hand x through, so that both gradients meet in one pass


class Sizes(NamedTuple):
    T: int
    B: int
    H: int
    W: int
    C: int

    @property
    def rows(self) -> int:
        """That a program adds up before it writes its sums: fewer where maps are small, or the device would idle.

        Never chosen by the batch or the width: a line's sums must not hang on them.
        """
        return max(1, min(_ROWS, self.H * self.blocks // _PROGRAMS))

    @property
    def chunks(self) -> int:
        return -(-self.H // self.rows)

    @property
    def blocks(self) -> int:
        return -(-self.C // channel_block(self.C))


def _blocks(size: Sizes, columns: int = COLUMNS, a_thread: int = 16) -> dict[str, int]:
    """Tile and warps, for about `a_thread` elements of each map in a thread's registers."""
    block = channel_block(size.C)
    return {"BP": columns, "BC": block, "num_warps": min(8, max(1, columns * block // (32 * a_thread)))}


def _tail_blocks(size: Sizes, groups: int, tiles: int) -> dict[str, int]:
    spread = power_of_two(size.C // groups)
    return {"BR": min(power_of_two(tiles), max(1, 2048 // spread)), "BG": spread}


def channel_sums(x: Tensor, widths: Tensor) -> Tensor:
    """Sum and sum of squares over valid columns, some rows at a time: x [T, B, H, W, C] -> [T*B, chunks, 2, C]."""
    size = Sizes(*x.shape)
    partial = x.new_empty((size.T * size.B, size.chunks, 2, size.C), dtype=torch.float32)
    with on_device(x):
        launch(
            device.sums,
            (size.T * size.B * size.chunks * size.blocks,),
            x,
            widths,
            partial,
            *size[1:],
            R=size.rows,
            **_blocks(size),
        )
    return partial


class _NormNeuron(torch.autograd.Function):
    """x [T, B, H, W, C] -> y, and x handed through (or None)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        sums: Tensor | None,
        widths: Tensor,
        weight: Tensor,
        bias: Tensor,
        alpha: Tensor | None,
        residual: Tensor | None,
        gain: Tensor | None,
        plan: GroupNormLaunch,
    ) -> tuple[Tensor, Tensor | None]:
        size, neuron = Sizes(*x.shape), plan.neuron
        partial = channel_sums(x, widths) if sums is None else sums
        rows, groups, tiles = size.T * size.B, plan.groups, partial.shape[1]
        scale, shift = x.new_empty((2, rows, size.C), dtype=torch.float32).unbind(0)
        mean, rstd = x.new_empty((2, rows, groups), dtype=torch.float32).unbind(0)
        y = torch.empty_like(x, dtype=plan.dtype)
        with on_device(x):
            launch(device.moments, (rows, groups),
                partial, widths, weight, bias, scale, shift, mean, rstd,
                size.B, size.H, size.C, groups, tiles, plan.eps, **_tail_blocks(size, groups, tiles),
            )  # fmt: skip
            launch(device.apply, (size.B * size.H * -(-size.W // COLUMNS) * size.blocks,),
                x, scale, shift, widths, alpha, residual, gain, y, *size[1:],
                neuron.decay, neuron.threshold, neuron.burst_step,
                T=size.T, KIND=neuron.kind, BURST=neuron.burst, SHORTCUT=alpha is not None,
                RESIDUAL=residual is not None, GAIN=gain is not None,
                **_blocks(size),
            )  # fmt: skip
        ctx.save_for_backward(x, scale, shift, mean, rstd, weight, widths, alpha, gain)
        ctx.plan, ctx.has_residual = plan, residual is not None
        ctx.set_materialize_grads(False)
        return y, x.view_as(x) if plan.fork else None

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, through: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:  # only what was handed through is used
            return through, *([None] * 8)
        x, scale, shift, mean, rstd, weight, widths, alpha, gain = ctx.saved_tensors
        size, neuron, groups = Sizes(*x.shape), ctx.plan.neuron, ctx.plan.groups
        grad = grad.contiguous()
        through = None if through is None else through.contiguous()
        columns = _back_columns(size.C)
        rows, tiles = size.T * size.B, size.chunks
        partial = x.new_empty((rows, tiles, 2, size.C), dtype=torch.float32)
        slopes = x.new_empty(size.B * tiles * size.blocks, dtype=torch.float32)
        by_channel = x.new_empty((rows, 2, size.C), dtype=torch.float32)
        factors = torch.empty_like(by_channel)
        dx = torch.empty_like(x)
        flags = {"T": size.T, "KIND": neuron.kind, "ATAN": neuron.atan, "BURST": neuron.burst}
        flags |= {"SHORTCUT": alpha is not None, "GAIN": gain is not None} | _blocks(size, columns, 8)
        numbers = (*size[1:], neuron.decay, neuron.threshold, neuron.sharpness, neuron.burst_step)
        with on_device(x):
            launch(device.grad_sums, (len(slopes),),
                x, scale, shift, widths, grad, alpha, gain, partial, slopes, *numbers, R=size.rows,
                maxnreg=_REGISTERS if size.T == 1 and gain is None else None, **flags,
            )  # fmt: skip
            launch(device.grad_moments, (rows, groups),
                partial, widths, weight, mean, rstd, by_channel, factors, size.B, size.H, size.C, groups, tiles,
                **_tail_blocks(size, groups, tiles),
            )  # fmt: skip
            launch(device.grad_input, (size.B * size.H * -(-size.W // columns) * size.blocks,),
                x, scale, shift, factors, widths, grad, alpha, gain, through, dx, *numbers,
                THROUGH=through is not None, **flags,
            )  # fmt: skip
        dbias, dweight = add_rows(by_channel).unbind(0)
        dalpha = slopes.sum() if alpha is not None else None
        return dx, None, None, dweight, dbias, dalpha, grad if ctx.has_residual else None, None, None


def norm_neuron(
    x: Tensor,
    widths: Tensor,
    weight: Tensor,
    bias: Tensor,
    plan: GroupNormLaunch,
    alpha: Tensor | None = None,
    residual: Tensor | None = None,
    gain: Tensor | None = None,
    sums: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """y = residual + gain_b * mask * (neuron(H) + alpha * H), H = Norm(x) over valid columns (Eq. 8).

    x, residual [T, B, C, H, W], widths [B], gain [B] -> y [T, B, C, H, W], and x again if `plan` asks for it.
    `sums` are x's, if its maker has them at hand.
    """
    last = None if residual is None else channels_last(residual)
    y, through = _NormNeuron.apply(  # type: ignore[no-untyped-call]
        channels_last(x), sums, widths, weight, bias, alpha, last, gain, plan
    )
    return channels_second(y), None if through is None else channels_second(through)
