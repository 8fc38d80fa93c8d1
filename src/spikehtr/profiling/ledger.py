"""The operation ledger: what each layer costs, dense and driven by events, counted from the spikes that were recorded.

Dense: multiply-accumulates at a line's own output positions, taps on zero padding included (as `counts` and torch's
own counter have them). Event-driven: a layer that reads spikes adds, for each unit of input, one weight for each
output it reaches; taps lost past the image's edge are not there, so a spike at the border reaches fewer.

A layer reads spikes when every input is a whole number from 0 to 16 (a spike, a burst, or a sum of spikes that met in
the residual stream) and at least half of all inputs are 0. Under the stricter `binary` rule bursts and sums are not.
Not counted: biases, norms, pooling, gates, residual sums, softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod

import torch
from torch import Tensor, nn

from spikehtr.model.masking import valid_mask
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.watched_layers import Extent, component, watched_layers

LARGEST_COUNT = 16
_LOOK = 4096  # values looked at first: an analog map shows in them
ONCE = ("stem", "head")  # run once a line; everything else once a timestep


@dataclass
class LayerWork:
    """One layer, summed over its calls and lines."""

    name: str
    macs: int = 0
    additions: int = 0  # event-driven; means nothing where the input is no spikes
    inputs: int = 0  # values read at valid positions
    outputs: int = 0  # values written there
    weights: int = 0
    zeros: int = 0
    largest: float = 0.0
    whole: bool = True  # every input was a whole number, none negative

    def eligible(self, binary: bool = False) -> bool:
        limit = 1 if binary else LARGEST_COUNT
        return self.whole and self.largest <= limit and 2 * self.zeros >= self.inputs

    @property
    def bits(self) -> int:
        """What an input takes where all are spikes."""
        return max(1, int(self.largest).bit_length())

    @property
    def component(self) -> str:
        return component(self.name)


@contextmanager
def recorded_work(net: SpikeHTR, extent: Extent) -> Iterator[dict[str, LayerWork]]:
    """While open, every forward pass of `net` adds to the yielded table; closing removes all hooks."""
    table: dict[str, LayerWork] = {}

    def hook(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        row = table.setdefault(name, LayerWork(name, weights=sum(p.numel() for p in module.parameters())))
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            _convolution(row, module, inputs[0], output, extent)
        elif isinstance(module, nn.Linear):
            _linear(row, module, inputs[0], extent)
        else:
            _matched(row, inputs, extent)

    with watched_layers(net, hook):
        yield table


def _look(row: LayerWork, x: Tensor, inside: Tensor, count: int) -> Tensor | None:
    """Note what kind of numbers x holds where `inside` (which broadcasts to it); x, 0 elsewhere, if they are whole."""
    row.inputs += count
    if not row.whole:
        return None
    padded = not bool(inside.all())
    few = x.flatten()[:_LOOK]
    if not padded and not torch.equal(few, few.round()):  # padding may hold anything
        row.whole = False
        return None
    own = x * inside if padded else x
    row.whole = torch.equal(own, own.round()) and bool(own.min() >= 0)
    row.largest = max(row.largest, float(own.max()))
    row.zeros += count - int(own.count_nonzero())
    return own if row.whole else None


@cache
def fan_out(size: int, outputs: int, kernel: int, stride: int, padding: int) -> Tensor:
    """[size]: how many of `outputs` positions each input position reaches along one side, in fp64."""
    taps = torch.arange(outputs)[:, None] * stride - padding + torch.arange(kernel)
    inside = taps[(taps >= 0) & (taps < size)]
    return torch.bincount(inside, minlength=size).double()


def _convolution(row: LayerWork, conv: nn.Conv1d | nn.Conv2d, x: Tensor, y: Tensor, extent: Extent) -> None:
    """x [T*B or B, C, (H,) W]; the last side is the line's."""
    flat = isinstance(conv, nn.Conv1d)
    if flat:
        x, y = x.unsqueeze(2), y.unsqueeze(2)
    own_in, own_out = (extent.tokens if flat else extent.columns(z.shape[-1]) for z in (x, y))
    high, times = (1, 1) if flat else (x.shape[2], y.shape[2])  # rows in and out
    calls = x.shape[0] // extent.batch  # T, or 1
    taps = conv.in_channels // conv.groups * prod(conv.kernel_size)
    outputs = calls * int(own_out.sum()) * times * conv.out_channels
    row.macs += outputs * taps
    row.outputs += outputs
    inside = valid_mask(own_in, x.shape[-1]).repeat(calls, 1)[:, None, None, :]  # [T*B, 1, 1, W]
    own = _look(row, x, inside, calls * int(own_in.sum()) * high * conv.in_channels)
    if own is None:
        return
    sides = [(1, 1, 0)] if flat else []
    padding = conv.padding if isinstance(conv.padding, tuple) else (0, 0)
    sides += [(k, s, int(p)) for k, s, p in zip(conv.kernel_size, conv.stride, padding, strict=True)]
    down = fan_out(x.shape[2], y.shape[2], *sides[0])  # [H]
    along = torch.stack([fan_out(x.shape[3], n, *sides[1]) for n in own_out.tolist()])  # [B, W]
    units = own.sum(1, dtype=torch.float64).unflatten(0, (calls, -1)).sum(0)  # [B, H, W]
    reached = torch.einsum("bhw,h,bw->", units, down.to(units.device), along.to(units.device))
    row.additions += int(reached) * (conv.out_channels // conv.groups)


def _linear(row: LayerWork, linear: nn.Linear, x: Tensor, extent: Extent) -> None:
    """x [T, B, L, d], [B, L, d], or [T, B, L, H', d] of height pooling."""
    place = min(2, x.dim() - 2)
    count = x.numel() // (x.shape[place] * extent.batch * x.shape[-1]) * int(extent.tokens.sum())  # rows of x
    row.macs += count * linear.in_features * linear.out_features
    row.outputs += count * linear.out_features
    inside = valid_mask(extent.tokens, x.shape[place])  # [B, L]
    inside = inside.view(*inside.shape, *([1] * (x.dim() - place - 1)))
    own = _look(row, x, inside, count * linear.in_features)
    if own is not None:
        row.additions += int(own.sum(dtype=torch.float64)) * linear.out_features


def _matched(row: LayerWork, inputs: tuple[Tensor, ...], extent: Extent) -> None:
    """q, k, v [T, B, L, h, d/h]: k v^T adds where both fire, q then picks rows of it and counts what it matched."""
    steps, _, size, heads, width = inputs[0].shape
    inside = valid_mask(extent.tokens, size)[:, :, None, None]
    count = steps * int(extent.tokens.sum()) * heads * width
    row.macs += count * (2 * width + 1)
    row.outputs += count
    own = [_look(row, x, inside, count) for x in inputs]
    q, k, v = (None if x is None else x.sum(-1, dtype=torch.float64) for x in own)  # [T, B, L, h]
    if q is not None and k is not None and v is not None:
        row.additions += int((k * v).sum() + q.sum() * (width + 1))


@dataclass(frozen=True)
class Ledger:
    """The work of some lines. All figures are sums over them: divide by `lines`."""

    layers: list[LayerWork]
    lines: int
    timesteps: int

    @property
    def dense(self) -> int:
        return sum(row.macs for row in self.layers)

    @property
    def stem(self) -> int:
        return sum(row.macs for row in self.layers if row.component == "stem")

    def event_driven(self, binary: bool = False) -> int:
        """The dense MACs of the layers that read spikes."""
        return sum(row.macs for row in self.layers if row.eligible(binary))

    def additions(self, binary: bool = False) -> int:
        return sum(row.additions for row in self.layers if row.eligible(binary))

    def eligible_share(self, binary: bool = False) -> float:
        return self.event_driven(binary) / max(1, self.dense)

    @property
    def one_pass(self) -> int:
        """What the same layers cost an ordinary network, which runs them once: T = 1."""
        once = sum(row.macs for row in self.layers if row.component in ONCE)
        return once + (self.dense - once) // self.timesteps
