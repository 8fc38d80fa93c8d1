"""LayerNorm of tokens and what follows it (neuron, dropout, residual), and the neuron alone, differentiable.

One pass forward, one backward; only the input is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from spikehtr.ops.settings import Neuron
from spikehtr.ops.triton import tokennorm as device
from spikehtr.ops.triton.addup import add_rows
from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device, power_of_two

# Of a backward pass at most so many, by steps: what an H200 holds at once (132 times 4, 3 or 2, as registers allow).
# More would be a second round for few of them, and each writes sums of its own.
_PROGRAMS = {1: 528, 2: 396}
_FEWER = 264  # at more steps
_ELEMENTS = {"apply": 8, "grad": 8}  # of a step's tile in a thread's registers
_WARPS = 4  # of a program, where a token's channels are not too many
_BLOCK = 1024


class Drop(NamedTuple):
    """Dropout of units at `rate` and of whole lines' branches at `path_rate`, one draw for all timesteps.

    The draw is a function of `seed` [1], itself drawn on the device: nothing waits, and a recorded step draws anew each
    time it is replayed.
    """

    seed: Tensor
    rate: float
    path_rate: float

    @classmethod
    def draw(cls, rate: float, path_rate: float, device: torch.device) -> Drop:
        return cls(torch.randint(2**31 - 1, (1,), device=device), rate, path_rate)


class TokenNormLaunch(NamedTuple):
    eps: float
    neuron: Neuron
    dtype: torch.dtype  # of the result
    tokens: int = 1  # of a line
    drop: Drop | None = None

    @property
    def dropping(self) -> tuple[int, Tensor | None, float, float]:
        seed, rate, path_rate = self.drop or (None, 0.0, 0.0)
        return self.tokens, seed, 1 - rate, 1 - path_rate


def blocks(channels: int, kernel: str) -> dict[str, int]:
    """Tile and warps: as many tokens as make `_ELEMENTS` a thread, but one at least, whatever its channels are."""
    block = power_of_two(channels)
    rows = max(1, 32 * _WARPS * _ELEMENTS[kernel] // block)
    return {"ROWS": rows, "BC": block, "num_warps": min(16, max(_WARPS, rows * block // (32 * 2 * _ELEMENTS[kernel])))}


class _TokenNormNeuron(torch.autograd.Function):
    """x [T, N, C] -> y [T, N, C]"""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, plan: TokenNormLaunch
    ) -> Tensor:
        (steps, tokens, channels), neuron = x.shape, plan.neuron
        y = torch.empty_like(x, dtype=plan.dtype)
        shape = blocks(channels, "apply")
        with on_device(x):
            launch(device.token_apply, (-(-tokens // shape["ROWS"]),),
                x, weight, bias, residual, y, tokens, channels, *plan.dropping, plan.eps, neuron.decay,
                neuron.threshold, neuron.burst_step, T=steps, KIND=neuron.kind, BURST=neuron.burst,
                RESIDUAL=residual is not None, DROP=plan.drop is not None,
                **shape,
            )  # fmt: skip
        ctx.save_for_backward(x, weight, bias)
        ctx.plan, ctx.has_residual = plan, residual is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        plan: TokenNormLaunch = ctx.plan
        (steps, tokens, channels), neuron = x.shape, plan.neuron
        grad = grad.contiguous()
        dx = torch.empty_like(x)
        shape = blocks(channels, "grad")
        programs = min(_PROGRAMS.get(steps, _FEWER), -(-tokens // shape["ROWS"]))
        partial = x.new_empty((programs, 2, channels), dtype=torch.float32)
        with on_device(x):
            launch(device.token_grad, (programs,),
                x, weight, bias, grad, dx, partial, tokens, channels, *plan.dropping, plan.eps,
                neuron.decay, neuron.threshold, neuron.sharpness, neuron.burst_step, T=steps, KIND=neuron.kind,
                ATAN=neuron.atan, BURST=neuron.burst, DROP=plan.drop is not None, **shape,
            )  # fmt: skip
        dbias, dweight = add_rows(partial).unbind(0)
        return dx, dweight, dbias, grad if ctx.has_residual else None, None


def token_norm_neuron(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    plan: TokenNormLaunch,
    residual: Tensor | None = None,
) -> Tensor:
    """y = residual + dropout(neuron(Norm(x))): x, residual [T, ..., C] -> [T, ..., C]."""
    flat = x.contiguous().flatten(1, -2)
    added = None if residual is None else residual.contiguous().flatten(1, -2)
    y: Tensor = _TokenNormNeuron.apply(flat, weight, bias, added, plan)  # type: ignore[no-untyped-call]
    return y.view(x.shape)


class _Fire(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, neuron: Neuron) -> Tensor:
        y, size = torch.empty_like(x), x[0].numel()
        with on_device(x):
            launch(device.fire, (-(-size // _BLOCK),),
                x, y, size, neuron.decay, neuron.threshold, neuron.burst_step, T=len(x), KIND=neuron.kind,
                BURST=neuron.burst, BLOCK=_BLOCK,
            )  # fmt: skip
        ctx.save_for_backward(x)
        ctx.neuron = neuron
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        neuron, dx, size = ctx.neuron, torch.empty_like(x), x[0].numel()
        with on_device(x):
            launch(device.fire_back, (-(-size // _BLOCK),),
                x, grad.contiguous(), dx, size, neuron.decay, neuron.threshold, neuron.sharpness,
                neuron.burst_step, T=len(x), KIND=neuron.kind, ATAN=neuron.atan, BURST=neuron.burst, BLOCK=_BLOCK,
            )  # fmt: skip
        return dx, None


def fire(x: Tensor, neuron: Neuron) -> Tensor:
    """The neuron alone (Eq. 1): drives [T, ...] -> outputs in the same shape and dtype."""
    y: Tensor = _Fire.apply(x.contiguous(), neuron)  # type: ignore[no-untyped-call]
    return y
