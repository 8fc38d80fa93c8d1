"""Linear attention's matched mean and QK's gate as differentiable functions; see `attention.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikehtr.ops.settings import LIF, Neuron
from spikehtr.ops.triton import attention as device
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device, power_of_two

_HALVES = (torch.bfloat16, torch.float16)
_TOKENS = 32  # of a step through a line
_ROWS = 16  # pairs of token and head a program


def _blocks(qkv: Tensor, dtype: torch.dtype) -> dict[str, Any]:
    """Precision and tile; `dtype` is the result's."""
    half = qkv.dtype in _HALVES and dtype in _HALVES
    return {"PRECISION": "tf32" if half else "tf32x3", "BL": _TOKENS, "BD": max(16, power_of_two(qkv.shape[-1]))}


class _MatchedMean(torch.autograd.Function):
    """qkv [T, B, L, 3, h, d/h], mask [B, L] -> [T, B, L, d]"""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
        steps, batch, length, _, heads, size = qkv.shape
        y = qkv.new_empty((steps, batch, length, heads * size), dtype=dtype)
        with on_device(qkv):
            launch(
                device.matched_mean,
                (steps * batch * heads,),
                qkv,
                mask,
                y,
                batch,
                length,
                size,
                heads,
                **_blocks(qkv, dtype),
            )
        ctx.save_for_backward(qkv, mask)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        qkv, mask = ctx.saved_tensors
        steps, batch, length, _, heads, size = qkv.shape
        dqkv = torch.empty_like(qkv)
        with on_device(qkv):
            launch(
                device.matched_mean_back,
                (steps * batch * heads,),
                qkv,
                mask,
                grad.contiguous(),
                dqkv,
                batch,
                length,
                size,
                heads,
                **_blocks(qkv, dqkv.dtype),
            )
        return dqkv, None, None


def matched_mean(qkv: Tensor, mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """q, k, v side by side [T, B, L, 3 d], mask [B, L] -> y [T, B, L, d] of `MatchedMean`, keys masked."""
    split = qkv.contiguous().unflatten(-1, (3, heads, -1))
    y: Tensor = _MatchedMean.apply(split, mask.contiguous().view(torch.uint8), dtype)  # type: ignore[no-untyped-call]
    return y


class _Gate(torch.autograd.Function):
    """qk [T, B, L, 2, h, d/h] -> [T, B, L, d]"""

    @staticmethod
    def forward(ctx: Any, qk: Tensor, neuron: Neuron, dtype: torch.dtype) -> Tensor:
        *lead, _, heads, size = qk.shape
        y = qk.new_empty((*lead, heads * size), dtype=dtype)
        tokens = y[..., 0].numel()
        with on_device(qk):
            launch(
                device.gate,
                (-(-tokens * heads // _ROWS),),
                qk,
                y,
                tokens,
                size,
                heads,
                SPIKING=neuron.kind == LIF,
                ROWS=_ROWS,
                BD=power_of_two(size),
            )
        ctx.save_for_backward(qk)
        ctx.neuron = neuron
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (qk,) = ctx.saved_tensors
        neuron, (*_, heads, size) = ctx.neuron, qk.shape
        dqk, tokens = torch.empty_like(qk), grad[..., 0].numel()
        with on_device(qk):
            launch(device.gate_back, (-(-tokens * heads // _ROWS),),
                qk, grad.contiguous(), dqk, tokens, size, heads, neuron.sharpness, SPIKING=neuron.kind == LIF,
                ATAN=neuron.atan, ROWS=_ROWS, BD=power_of_two(size),
            )  # fmt: skip
        return dqk, None, None


def gate(qk: Tensor, heads: int, neuron: Neuron, dtype: torch.dtype) -> Tensor:
    """q and k side by side [T, B, L, 2 d] -> a * k [T, B, L, d]; a is analog where the neuron does not spike."""
    split = qk.contiguous().unflatten(-1, (2, heads, -1))
    y: Tensor = _Gate.apply(split, neuron, dtype)  # type: ignore[no-untyped-call]
    return y
