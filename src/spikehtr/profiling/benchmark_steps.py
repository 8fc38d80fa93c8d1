"""Whole steps to time: a network and a batch, made ready on a device.

A training step is the one that `spikehtr train` takes (`training.step`): the batch's way to the device, augmentation,
forward pass (bf16 autocast on a GPU), losses, backward pass, clipping, optimiser and averaged weights, recorded as a
CUDA graph where a run records it. An inference step is a batch read by the reader that `Recognizer` takes, from bytes
on the host to logits on the device. Lines are synthetic ink, labels random. Every network is served.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr import ops
from spikehtr.config import Config
from spikehtr.data.batching import Batch
from spikehtr.model.network import Network, Transcripts
from spikehtr.readers import make_reader, uses_bf16
from spikehtr.registry import build
from spikehtr.training.devices import make_fabric
from spikehtr.training.graphs import make_step
from spikehtr.training.step import prepare

REFERENCE, FAST = "reference", "fast"
_LABELS = 80


@dataclass(frozen=True)
class Case:
    """One row's question: which network, trained or only read, on how many lines of what width."""

    name: str
    config: Config
    train: bool
    batch_size: int
    width: int = 512


def chosen(path: str) -> AbstractContextManager[None]:
    """Run on the reference, or on the fast path, as the user's environment asks for it."""
    if path == REFERENCE:
        return ops.reference()
    return ops.using("auto") if ops.reference_asked() else nullcontext()


def has_fast_path(device: torch.device) -> bool:
    with chosen(FAST):
        return ops.uses_triton(torch.zeros(1, device=device))


def ink_lines(count: int, height: int, width: int, device: torch.device, seed: int = 0) -> Tensor:
    """Lines that look written, [count, 1, height, width] in [0, 1]: a pen that loops along, on grainy paper."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 8 * width)  # places of the pen, several a pixel
    speed, phase, size = (torch.rand(count, 1, 3, generator=g) for _ in range(3))
    angle = (speed + 1) * t[:, None] * (width / height) * 8 + 6.3 * phase  # [count, places, 3]
    sway = (angle.sin() * (size + 0.2)).unbind(-1)
    x = (t * width + sway[0] * height / 8).clamp(0, width - 1).long()
    y = (height / 2 + (sway[1] + sway[2] * 0.6) * height / 5).clamp(0, height - 1).long()
    down = sway[0] + sway[2] > -0.9  # now and then the pen is lifted
    ink = torch.zeros(count, height * width).scatter_reduce(1, y * width + x, down.float(), "amax")
    ink = F.avg_pool2d(F.max_pool2d(ink.view(count, 1, height, width), 2, 1, padding=1)[..., :height, :width], 3, 1, 1)
    paper = 0.85 + 0.02 * torch.randn(count, 1, height, width, generator=g)
    return (paper - 0.7 * ink).clamp(0, 1).to(device)


class Step:
    """A case made ready on a device: call it for one step, on the path that is chosen.

    Each path has a network of its own: a recorded step is bound to the tensors it was recorded with.
    """

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.half = uses_bf16("auto", device)
        lines, count = case.batch_size, max(1, case.width // 16)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            targets = torch.randint(1, _LABELS, (lines, count))
        images = (ink_lines(lines, case.config.model.height, case.width, torch.device("cpu")) * 255).round().byte()
        numbers = (torch.full((lines,), case.width), targets, torch.full((lines,), count), torch.arange(lines))
        self.batch = Batch(images, *numbers)
        if device.type == "cuda":
            self.batch = Batch(*(value.pin_memory() for value in self.batch))
        self.made: dict[str, Callable[[], object]] = {}

    def __call__(self) -> None:
        path = REFERENCE if ops.reference_asked() else FAST
        if path not in self.made:
            self.made[path] = self._training() if self.case.train else self._reading()
        self.made[path]()

    def network(self) -> Network:
        """A new one, the same each time, on the device."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return build(self.case.config.model, _LABELS).to(self.device).train(self.case.train)

    def _training(self) -> Callable[[], object]:
        settings = self.case.config.training
        take = make_step(self.case.config, self.network(), make_fabric(str(self.device), precision=settings.precision))
        return lambda: take(self.batch, settings.learning_rate, 0)

    def _reading(self) -> Callable[[], object]:
        read = make_reader(self.network())
        return lambda: read(self.batch.images, self.batch.widths)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the network is given: images, widths and, in training, the frames each transcript needs."""
        batch, config = self.batch.to(self.device), self.case.config
        return prepare(batch, config)[:3] if self.case.train else (batch.lines(), batch.widths, None)

    def transcripts(self) -> Transcripts | None:
        """What a network that reads transcripts is given beside them in training."""
        if not (self.case.train and self.network().reads_transcripts):
            return None
        batch = self.batch.to(self.device)
        return Transcripts(batch.targets, batch.target_lengths)

    def forget(self) -> None:
        """Free what the steps so far have left behind, and what a failed one held."""
        self.made.clear()
        gc.collect()  # a recorded step and its recording hold each other, and the memory of a whole step
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
