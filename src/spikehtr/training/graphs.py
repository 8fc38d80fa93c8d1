"""A step's forward and backward pass as a CUDA graph: recorded once for a shape, then replayed by a single launch.

A spiking network launches some fifteen hundred small kernels a step, and a host that launches them one by one is slower
than the device that runs them. Nothing in the step waits for the device, so it can be recorded. Batches are padded to
few sizes; padding changes no result. Where a recording would not fit into memory, steps run as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.data.batching import Batch

Work = Callable[[Batch, bool], Tensor]
Key = tuple[torch.Size, torch.Size, bool]

_COLUMNS, _LABELS = 64, 32  # sizes are rounded up to multiples of these
_SIGHTINGS = 2  # of a size before it is recorded: recording costs a few steps
_MOST = 24  # recordings
_ROOM = 0.4  # of the device's memory: a step that takes more is not recorded, since it would be there twice


class GraphedStep:
    """`work(batch, flag)` adds to the parameters' gradients and returns numbers; so does this, for batches still on the
    host."""

    def __init__(self, work: Work, parameters: Iterable[Tensor], device: torch.device) -> None:
        self.work, self.device = work, device
        self.parameters = [p for p in parameters if p.requires_grad]
        for p in self.parameters:  # their places must never change: recordings write to them
            p.grad = torch.zeros_like(p)
        self.seen: Counter[Key] = Counter()
        self.recorded: dict[Key, tuple[torch.cuda.CUDAGraph, Batch, Tensor]] = {}
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, batch: Batch, flag: bool, seed: int) -> Tensor:
        """Gradients and numbers of a batch that is still on the host."""
        batch = pad_batch(batch)
        key = (batch.images.shape, batch.targets.shape, flag)
        self.seen[key] += 1
        if key not in self.recorded and not (self.seen[key] >= _SIGHTINGS and self._has_room()):
            torch.manual_seed(seed)
            return self._run(Batch(*(value.to(self.device, non_blocking=True) for value in batch)), flag)
        if key not in self.recorded:
            self.recorded[key] = self._record(batch, flag)
        graph, static, numbers = self.recorded[key]
        for place, value in zip(static, batch, strict=True):
            place.copy_(value, non_blocking=True)
        torch.manual_seed(seed)
        graph.replay()
        return numbers.clone()

    def _run(self, batch: Batch, flag: bool) -> Tensor:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        torch._foreach_zero_(grads)
        return self.work(batch, flag)

    def _has_room(self) -> bool:
        whole = torch.cuda.get_device_properties(self.device).total_memory
        return len(self.recorded) < _MOST and torch.cuda.max_memory_allocated(self.device) < _ROOM * whole

    def _record(self, batch: Batch, flag: bool) -> tuple[torch.cuda.CUDAGraph, Batch, Tensor]:
        static = Batch(*(value.to(self.device) for value in batch))
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.stream):  # once as it is: what is made on first use must not be in the recording
            self._run(static, flag)
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            numbers = self._run(static, flag)
        return graph, static, numbers


def pad_batch(batch: Batch) -> Batch:
    """White columns and empty labels up to the next of few sizes."""
    width, labels = batch.images.shape[-1], batch.targets.shape[-1]
    images = F.pad(batch.images, (0, -width % _COLUMNS), value=255)
    targets = F.pad(batch.targets, (0, -labels % _LABELS if labels else _LABELS))
    return batch._replace(images=images, targets=targets)
