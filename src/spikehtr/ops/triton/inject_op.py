"""The gated injection as a differentiable function; see `inject.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spikehtr.ops.triton import inject as device
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device, power_of_two

_PIXELS = 32


class _Inject(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, gain: Tensor, dtype: torch.dtype) -> Tensor:
        steps, pixels, channels = gain.shape[0], gain[0].numel(), s.shape[-1]
        x = s.new_empty((steps, *s.shape), dtype=dtype)
        with on_device(s):
            launch(
                device.spread,
                (-(-pixels // _PIXELS),),
                s,
                gain,
                x,
                pixels,
                channels,
                T=steps,
                BP=_PIXELS,
                BC=power_of_two(channels),
            )
        ctx.save_for_backward(s, gain)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        s, gain = ctx.saved_tensors
        steps, pixels, channels = gain.shape[0], gain[0].numel(), s.shape[-1]
        ds, dgain = torch.empty_like(s), torch.empty_like(gain)
        with on_device(s):
            launch(device.gather, (-(-pixels // _PIXELS),),
                s, gain, grad.contiguous(), ds, dgain, pixels, channels,
                T=steps, BP=_PIXELS, BC=power_of_two(channels),
            )  # fmt: skip
        return ds, dgain, None


def inject(s: Tensor, gain: Tensor, dtype: torch.dtype) -> Tensor:
    """s [B, C, H, W], gain [T, B, 1, H, W] -> [T, B, C, H, W] in `dtype`."""
    x: Tensor = _Inject.apply(s.movedim(1, 3).contiguous(), gain.contiguous(), dtype)  # type: ignore[no-untyped-call]
    return x.movedim(4, 2)
