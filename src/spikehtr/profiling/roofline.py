"""The least time a step can take on a device: bytes that must move, arithmetic that must be done, and two ceilings.

Nothing is typed in: hooks read the shapes of every call in a real forward pass of the reference network. Each call is
one *operation* forward and, in training, one backward:

- convolution, linear map, linear attention: read input and weights, write output; backward read the output's gradient,
  input and weights, write the gradients of input and weights
- norm, with the neuron, shortcut and mask behind it: read input, write output; backward read gradient and input, write
  gradient
- residual sum: read the other addend; backward read the gradient that goes round the branch
- gated injection, joined to the stem's norm: write T maps instead of one; backward read T gradients instead of one
- DownMix, height pooling: read input, write output; backward read gradient and input, write gradient
- gate of the dual-resolution fusion, joined to DownMix: read stage 3 and gate; backward read gate, write its gradient
- in baselines: an LSTM as a linear map of every token by every weight; attention's two products: read q, k, v, write
  output; backward read q, k, v and gradient, write three gradients. Batch norm, in training only (a reader may fold it
  into the convolution before it), and layer norm as the norms above
- AdamW and averaged weights: read weight, gradient, two moments and average, write all but the gradient, in fp32;
  what Muon trains has one moment, and its products are left out

Every tensor is counted once for each operation that needs it, in the dtype the step computes in (bf16 under autocast),
at the shape it has, padding included. Statistics are free, and so is all that is left out: masks, positions, the
reducer, gates of the mixer, InkCoder, augmentation, losses, clipping, casts. The first layer gives no gradient to the
image, and the preview none to anything. Arithmetic is that of the matrix products, two operations a
multiply-accumulate, twice that backward, all at the rate of a large matrix product, depthwise kernels too. Each of
these choices can only make the floor lower, and so the share of it that is reached smaller.

The roofline is the sum over operations of max(bytes / bandwidth, FLOPs / rate). An operation waits for the one before
it, so a pass that only moves bytes cannot lend its idle arithmetic to a product that comes later.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from spikehtr.baselines.htr_vt import Attention
from spikehtr.model.encoder import ConvMix2d, DownMix, DualResolutionFusion, HeightPool
from spikehtr.model.entry import Entry
from spikehtr.model.masking import MaskedGroupNorm, TokenNorm
from spikehtr.model.mixer import MatchedMean, MixerBlock
from spikehtr.model.network import Network, Transcripts
from spikehtr.model.watching import watch
from spikehtr.profiling.watched_layers import PRODUCTS, layer_macs, watched_layers
from spikehtr.training.muon import matrices_of

_NORMS = (MaskedGroupNorm, TokenNorm)
_PASSES = (nn.LayerNorm, nn.BatchNorm2d, Entry, DownMix, DualResolutionFusion, HeightPool, ConvMix2d, MixerBlock)
_STATE = 9  # fp32 numbers AdamW and the average move for each parameter: five read, four written; Muon two fewer
_CHUNK = 8  # lines counted at a time: the reference needs a GiB and more a line


@dataclass
class Op:
    """One operation of a step."""

    name: str  # the module's path
    kind: str  # its class, or "optimiser"
    direction: str  # forward, backward or update
    flops: int = 0
    activations: int = 0  # numbers moved that grow with the batch
    weights: int = 0  # numbers moved that do not
    itemsize: int = 4  # bytes a number

    @property
    def moved(self) -> int:
        """Bytes."""
        return (self.activations + self.weights) * self.itemsize


@dataclass(frozen=True)
class Ceilings:
    """What the device reaches: a large copy (bytes read plus written) and a large matrix product, a second."""

    bandwidth: float
    rate: float


@dataclass(frozen=True)
class Roofline:
    """The operations of one step."""

    ops: list[Op]

    @property
    def moved(self) -> int:
        return sum(op.moved for op in self.ops)

    @property
    def flops(self) -> int:
        return sum(op.flops for op in self.ops)

    def seconds(self, ceilings: Ceilings) -> float:
        """The roofline: one operation after the other."""
        return sum(max(op.moved / ceilings.bandwidth, op.flops / ceilings.rate) for op in self.ops)


class OpTable:
    """Operations seen so far, keyed by module, number of the call within a pass, and direction."""

    def __init__(self, itemsize: int) -> None:
        self.itemsize = itemsize
        self.rows: dict[tuple[str, int, str], Op] = {}
        self.calls: Counter[str] = Counter()

    def ops(self) -> list[Op]:
        return list(self.rows.values())

    def see(self, name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        """Add one call; a later pass over other lines adds to the same rows (`calls` is cleared in between)."""
        call = self.calls[name]
        self.calls[name] += 1
        learns = output.requires_grad
        if isinstance(module, nn.BatchNorm2d) and not module.training:
            return
        if isinstance(module, Attention):
            lines, tokens, width = inputs[0].shape
            size, flops = inputs[0].numel(), 4 * lines * tokens * tokens * width
            forward, backward = (flops, 4 * size, 0), (2 * flops, 7 * size, 0)
        elif isinstance(module, nn.LSTM):
            weights = sum(p.numel() for p in module.parameters())
            flops = 2 * output.shape[:-1].numel() * weights
            read = inputs[0].numel()
            forward = (flops, read + output.numel(), weights)
            backward = (2 * flops, output.numel() + 2 * read, 2 * weights)
        elif isinstance(module, PRODUCTS):
            x_learns = inputs[0].requires_grad
            read, weights = sum(x.numel() for x in inputs), sum(p.numel() for p in module.parameters())
            flops = 2 * layer_macs(module, inputs[0], output)
            sides = (x_learns + (weights > 0)) if not isinstance(module, MatchedMean) else 2 * x_learns
            forward = (flops, read + output.numel(), weights)
            backward = (sides * flops, output.numel() + read * (1 + x_learns), 2 * weights)
        else:
            elements, back = pass_elements(module, inputs, output)
            forward, backward = (0, elements, 0), (0, back, 0)
        self._add(name, module, call, "forward", *forward)
        if learns:
            self._add(name, module, call, "backward", *backward)

    def _add(
        self, name: str, module: nn.Module, call: int, direction: str, flops: int, activations: int, weights: int
    ) -> None:
        new = Op(name, type(module).__name__, direction, itemsize=self.itemsize)
        row = self.rows.setdefault((name, call, direction), new)
        row.flops += flops
        row.activations += activations
        row.weights = weights


def pass_elements(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> tuple[int, int]:
    """Numbers that a pass without products moves, forward and backward (the table above)."""
    size = inputs[0].numel()
    if isinstance(module, ConvMix2d | MixerBlock):  # two residual sums
        return 2 * size, 2 * size
    if isinstance(module, Entry):
        return output.numel() - size, output.numel() - size
    if isinstance(module, DualResolutionFusion):
        return 2 * output.numel(), 2 * output.numel()
    return size + output.numel(), output.numel() + 2 * size


@contextmanager
def counted_ops(net: nn.Module, itemsize: int) -> Iterator[OpTable]:
    """While open, every forward pass of `net` adds to the yielded table; closing removes all hooks."""
    table = OpTable(itemsize)

    def hear(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(module, _NORMS):  # a token norm is a layer norm, too
            table.see(name, module, inputs, output)

    with (
        watched_layers(net, hear, (*PRODUCTS, *_PASSES)),
        watch(net, lambda name, module, x, y: table.see(name, module, (x,), y), *_NORMS),
    ):
        yield table


def step_roofline(
    net: Network,
    images: Tensor,
    widths: Tensor,
    min_lengths: Tensor | None,
    train: bool,
    half: bool,
    muon: bool = False,
    transcripts: Transcripts | None = None,
) -> Roofline:
    """The operations of a step on this very batch, by the reference operators.

    The lines pass through in small groups, since the reference may not fit as a whole; weights are counted once.
    """
    device, was_training = images.device, net.training
    net.train(train)
    cuda = [device] if device.type == "cuda" else []
    with counted_ops(net, 2 if half else 4) as table, torch.random.fork_rng(devices=cuda):
        for lines in torch.arange(len(images), device=device).split(_CHUNK):
            need = None if min_lengths is None else min_lengths[lines]
            text = () if transcripts is None else (Transcripts(*(value[lines] for value in transcripts)),)
            with torch.set_grad_enabled(train), torch.autocast(device.type, torch.bfloat16, enabled=half):
                net(images[lines], widths[lines], need, *text)
            table.calls.clear()
    net.train(was_training)
    ops = table.ops()
    if train:
        moved = _STATE * sum(p.numel() for p in net.parameters())
        moved -= 2 * sum(p.numel() for p in matrices_of(net)) if muon else 0
        ops.append(Op("parameters", "optimiser", "update", weights=moved, itemsize=4))
    return Roofline(ops)


def measure_ceilings(device: torch.device, half: bool) -> Ceilings:
    """A large copy and a large product of random numbers on this device, medians, in this process."""
    big = device.type == "cuda"
    source = torch.rand(2**29 if big else 2**24, device=device)
    target = torch.empty_like(source)
    side = 8192 if big else 1024
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16 if half else torch.float32) for _ in range(2))
    copied = _seconds(lambda: target.copy_(source), device)
    multiplied = _seconds(lambda: a @ b, device)
    return Ceilings(2 * source.numel() * source.element_size() / copied, 2 * side**3 / multiplied)


def _seconds(work: Callable[[], Any], device: torch.device, rounds: int = 7, burst: int = 4) -> float:
    """Median time of one call; several in a row, so that what it takes to start the first is spread over them."""
    times = []
    for _ in range(rounds + 1):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(burst):
            work()
        synchronize(device)
        times.append((time.perf_counter() - start) / burst)
    return median(times[1:])


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
