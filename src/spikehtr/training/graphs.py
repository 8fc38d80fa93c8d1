"""A training step as CUDA graphs (`ops.recording`): one of the forward and backward pass, one of the update.

Nothing in the step waits for the device, so it can be recorded. Batches are padded to few sizes; padding changes no
result. Where a recording would not fit into memory, steps run as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr import ops
from spikehtr.config import Config
from spikehtr.data.batching import Batch, Indices
from spikehtr.model.network import Network
from spikehtr.ops.recording import Recordings
from spikehtr.training.fabric import Fabric
from spikehtr.training.frozen import FrozenStep
from spikehtr.training.optim import kept_buffers, rate_on_device
from spikehtr.training.step import TrainStep

Work = Callable[[Batch], Tensor]

_COLUMNS, _LABELS = 64, 32  # sizes are rounded up to multiples of these


class _Held(NamedTuple):
    """What a recording reads and writes, on the device."""

    batch: Batch
    numbers: Tensor
    gradients: list[Tensor | None]


class RecordedStep(TrainStep):
    """A `TrainStep` on one GPU whose update is recorded, and its pass where Triton computes it."""

    def __init__(self, config: Config, net: Network, fabric: Fabric) -> None:
        super().__init__(config, net, fabric)
        self.graphed: GraphedPass | None = None
        if ops.uses_triton(next(net.parameters())):
            self.graphed = GraphedPass(self.gradients, net.parameters(), kept_buffers(net).values(), self.device)
        self.graphed_update = GraphedUpdate(self.update, net.parameters(), self.optimizer, self.device)
        self.compiled = False

    def learn(self, batch: Batch, seed: int, indices: Indices | None) -> Tensor:
        if self.graphed is None:
            return super().learn(batch, seed, indices)
        if not self.compiled and self.config.model.arch == "spike-htr":
            self._compile(batch)
        return self.graphed(batch, seed)

    def _compile(self, batch: Batch) -> None:
        """The kernels of a pass, side by side, before the first pass asks for one after the other."""
        from spikehtr.ops.triton.launch import compile_together

        compile_together(lambda: self.gradients(pad_batch(batch).to(self.device)), self.device)
        self.optimizer.zero_grad(set_to_none=True)
        self.compiled = True

    def apply(self, rate: float) -> Tensor:
        return self.graphed_update(rate)


def make_step(config: Config, net: Network, fabric: Fabric, lines: int = 1) -> TrainStep:
    """Recorded where one GPU trains and `training.cuda_graphs` allows it; of a frozen encoder, what it gave is
    kept. `lines`: how many there are to train on."""
    if config.training.freeze == "encoder":
        return FrozenStep(config, net, fabric, lines)
    alone = fabric.world_size == 1 and fabric.device.type == "cuda"
    kind = RecordedStep if alone and config.training.cuda_graphs else TrainStep
    return kind(config, net, fabric)


class GraphedPass:
    """`work(batch)` leaves the parameters' gradients and returns numbers; so does this, for batches still on the host.
    A recording has gradients of its own, which become the parameters' when it is replayed: added to a common place,
    each parameter would cost a kernel more.

    A recording holds every plain number that `work` uses as a constant: what changes from step to step lives in a
    tensor on the device instead.
    """

    def __init__(
        self, work: Work, parameters: Iterable[Tensor], buffers: Iterable[Tensor], device: torch.device
    ) -> None:
        """`buffers`: what a pass changes beside the gradients (running statistics); recording one must not."""
        self.work, self.device = work, device
        self.parameters, self.buffers = [p for p in parameters if p.requires_grad], list(buffers)
        self.recordings: Recordings[_Held] = Recordings(device)

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Gradients and numbers of a batch that is still on the host."""
        batch = pad_batch(batch)
        key = (batch.images.shape, batch.targets.shape)
        if not self.recordings.wanted(key):
            torch.manual_seed(seed)
            return self._run(Batch(*(value.to(self.device, non_blocking=True) for value in batch))).numbers
        held = self.recordings.get(key)
        if held is None:
            static = Batch(*(value.to(self.device, copy=True) for value in batch))
            before = [buffer.clone() for buffer in self.buffers]
            held = self.recordings.add(key, lambda: self._run(static))
            for buffer, value in zip(self.buffers, before, strict=True):
                buffer.copy_(value)
        for place, value in zip(held.batch, batch, strict=True):
            place.copy_(value, non_blocking=True)
        torch.manual_seed(seed)
        held = self.recordings.replay(key)
        for p, gradient in zip(self.parameters, held.gradients, strict=True):
            p.grad = gradient
        return held.numbers.clone()

    def _run(self, batch: Batch) -> _Held:
        for p in self.parameters:
            p.grad = None
        numbers = self.work(batch)
        return _Held(batch, numbers, [p.grad for p in self.parameters])


class GraphedUpdate:
    """`work()` takes the parameters' gradients into the weights by the optimiser and returns a number; so does this,
    from its second step on as a recording, which has gradients of its own. The rate is on the device before that, too:
    as a number it would be rounded otherwise, and a run that is resumed, so records anew, would take another course."""

    def __init__(
        self,
        work: Callable[[], Tensor],
        parameters: Iterable[Tensor],
        optimizer: torch.optim.Optimizer,
        device: torch.device,
    ) -> None:
        self.work, self.optimizer = work, optimizer
        self.parameters = list(parameters)
        self.rate, self.number = torch.zeros((), device=device), torch.zeros((), device=device)
        self.places: dict[Hashable, list[Tensor]] = {}  # of gradients, by which parameters have one
        self.recordings: Recordings[None] = Recordings(device)

    def __call__(self, rate: float) -> Tensor:
        self.rate.fill_(rate)
        key = tuple(p.grad is not None for p in self.parameters)
        if self._recorded(key):
            self.recordings.replay(key)
        else:
            self._run()
        return self.number.clone()

    def _recorded(self, key: Hashable) -> bool:
        """Whether there is a recording; the gradients are then where it reads them."""
        if not self.recordings.wanted(key):
            return False
        learning = [p for p in self.parameters if p.grad is not None]
        found = [p.grad for p in learning if p.grad is not None]
        try:
            if key not in self.places:
                self.places[key] = [torch.empty_like(gradient) for gradient in found]
            torch._foreach_copy_(self.places[key], found)
            for p, place in zip(learning, self.places[key], strict=True):
                p.grad = place
            if key not in self.recordings.kept:
                self.recordings.add(key, self._run, rehearse=False)
        except torch.OutOfMemoryError:  # others have taken it: a recording is not worth a run
            self.places.pop(key, None)
            self.recordings.most = len(self.recordings.kept)
            return False
        return True

    def _run(self) -> None:
        with rate_on_device(self.optimizer, self.rate):
            self.number.copy_(self.work())


def pad_batch(batch: Batch) -> Batch:
    """White columns and empty labels up to the next of few sizes."""
    labels = batch.targets.shape[-1]
    images = _widen(batch.images, -batch.images.shape[-1] % _COLUMNS, 255)
    return batch._replace(images=images, targets=_widen(batch.targets, -labels % _LABELS if labels else _LABELS, 0))


def _widen(value: Tensor, columns: int, fill: int) -> Tensor:
    """The value itself where nothing is added; pinned if it is, or its way to the device would stop the host."""
    if columns == 0:
        return value
    size = value.shape[-1]
    wide = value.new_full((*value.shape[:-1], size + columns), fill, pin_memory=value.is_pinned())
    wide[..., :size] = value
    return wide
