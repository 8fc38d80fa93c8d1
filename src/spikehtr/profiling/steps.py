"""Whole steps to time: a network, a batch and an optimiser, made ready on a device.

A training step is all of it: augmentation, forward pass (bf16 autocast on a GPU), losses, backward pass, clipping,
optimiser and averaged weights. An inference step is a forward pass. Lines are synthetic ink, labels random.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr import kernels
from spikehtr.config import Config
from spikehtr.data.augment import augment
from spikehtr.model.losses import spike_htr_loss
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.model.reducer import ctc_min_length
from spikehtr.training.optim import WeightAverage, make_optimizer

SWITCH = "SPIKEHTR_KERNELS"
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


@contextmanager
def chosen(path: str) -> Iterator[None]:
    """Run on the reference, or on the fast path as the user's environment asks for it."""
    before = os.environ.get(SWITCH)
    if path == REFERENCE:
        os.environ[SWITCH] = "reference"
    elif before == "reference":
        del os.environ[SWITCH]
    try:
        yield
    finally:
        os.environ.pop(SWITCH, None)
        if before is not None:
            os.environ[SWITCH] = before


def has_fast_path(device: torch.device) -> bool:
    with chosen(FAST):
        return kernels.fast(torch.zeros(1, device=device))


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
    """A case made ready on a device: call it for one step."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.half = device.type == "cuda"
        config = case.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = SpikeHTR(config.model, _LABELS).to(device).train(case.train)
            count = max(1, case.width // 16)
            self.targets = torch.randint(1, _LABELS, (case.batch_size, count)).to(device)
        self.target_lengths = torch.full((case.batch_size,), count, device=device)
        self.images = ink_lines(case.batch_size, config.model.height, case.width, device)
        self.widths = torch.full((case.batch_size,), case.width, device=device)
        if case.train:
            self.optimizer = make_optimizer(self.net, config.training)
            self.average = WeightAverage(self.net, config.training.ema_decay)

    def __call__(self) -> None:
        if self.case.train:
            self._train()
        else:
            with torch.no_grad(), self._autocast():
                self.net(self.images, self.widths)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the network is given: images, widths and, in training, the frames each transcript needs."""
        if not self.case.train:
            return self.images, self.widths, None
        need = ctc_min_length(self.targets, self.target_lengths)
        data = self.case.config.data
        images, widths = augment(self.images, self.widths, data.augment, None, 4 * need, data.max_width)
        return images, widths, need

    def _train(self) -> None:
        settings = self.case.config.training
        inputs = self.inputs()
        with self._autocast():
            out = self.net(*inputs)
        loss = spike_htr_loss(out, self.targets, self.target_lengths, self.net, settings).total
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.average.update(self.net)

    def forget(self) -> None:
        """Free what a step leaves behind, and what a failed one held."""
        self.net.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
