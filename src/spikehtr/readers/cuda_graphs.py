"""Spike-HTR on a GPU by recordings of the whole pass: the host starts a pass at once instead of kernel by kernel.

A batch is rounded up to one of few sizes, so that few recordings serve all batches; that changes no line's result but
for the last digits, since padding does not reach it.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from spikehtr import ops
from spikehtr.model.network import Network, Output
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.ops.recording import Recordings
from spikehtr.readers.base import as_floats, pinned, send
from spikehtr.readers.torch import TorchReader

_COLUMNS = 64  # canvas widths are rounded up to multiples of it


def can_record(net: Network) -> bool:
    """Whether a pass can be recorded: on a GPU, by kernels of which none waits for the device."""
    weight = next(net.parameters())
    return weight.device.type == "cuda" and isinstance(net, SpikeHTR) and ops.uses_triton(weight)


class GraphBuffers(NamedTuple):
    """What a recorded pass reads and writes, on the device."""

    images: Tensor  # [B, 1, H, W], as they came
    widths: Tensor  # [B]
    output: Output


class CudaGraphReader(TorchReader):
    """Spike-HTR by recordings of the whole pass, with L = L0: the host never waits for the device.

    Sizes are rounded up, so that few recordings serve all batches: canvases to multiples of 64 px, lines to powers of
    two. A size is recorded when it is met the second time.
    """

    net: SpikeHTR

    def __init__(self, net: SpikeHTR, half: bool = True) -> None:
        super().__init__(net, half)
        self._lock = threading.Lock()  # threads may share a reader, but not the tensors of a recording
        self.recordings: Recordings[GraphBuffers] = Recordings(self.device)

    def read(self, images: Tensor, widths: Tensor) -> Output:
        if ops.reference_asked():  # a replay would not be that
            return super().read(images, widths)
        lines = len(images)
        images, widths = round_up(images, widths, self.net.config.max_width)
        with self._lock, self.autocast():
            found = self._replay(images, widths)
            return Output(*(None if v is None else v[:lines].clone() for v in found))  # type: ignore[arg-type]  # the next replay writes over them

    def _replay(self, images: Tensor, widths: Tensor) -> Output:
        key = (images.shape, images.dtype)
        if not self.recordings.wanted(key):
            return self._run(send(images, self.device), send(widths, self.device)).output
        buffers = self.recordings.get(key)
        if buffers is None:
            mine, own = images.to(self.device, copy=True), widths.to(self.device, copy=True)
            self.recordings.add(key, lambda: self._run(mine, own))
        else:
            buffers.images.copy_(pinned(images, self.device), non_blocking=True)
            buffers.widths.copy_(pinned(widths, self.device), non_blocking=True)
        return self.recordings.replay(key).output

    def _run(self, images: Tensor, widths: Tensor) -> GraphBuffers:
        return GraphBuffers(images, widths, self.net(as_floats(images), widths, full=True))


def round_up(images: Tensor, widths: Tensor, widest: int) -> tuple[Tensor, Tensor]:
    """White columns up to a multiple of 64 (or to `widest`), and white lines one pixel wide up to a power of two."""
    lines, width = images.shape[0], images.shape[-1]
    right = max(0, min(-width % _COLUMNS, widest - width))
    missing = (1 << (lines - 1).bit_length()) - lines
    if not (right or missing):
        return images, widths
    white = 1.0 if images.is_floating_point() else 255
    images = F.pad(images, (0, right, 0, 0, 0, 0, 0, missing), value=white)
    return images, F.pad(widths, (0, missing), value=1)
