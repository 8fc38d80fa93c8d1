"""One step of training: prepare (augmentation) -> loss and gradients -> update (clipping, optimiser).

`TrainStep` does that as it stands; `graphs.RecordedStep` records the same work as CUDA graphs, from outside. What
belongs to a run rather than to a step (batches, schedule, files) is in `loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.augment import augment, without_ink
from spikehtr.data.batching import Batch, Indices
from spikehtr.model.masking import valid_mask
from spikehtr.model.network import Network, Output, Transcripts
from spikehtr.model.reducer import ctc_min_length
from spikehtr.training.fabric import Fabric
from spikehtr.training.losses import Share, spike_htr_loss
from spikehtr.training.optim import WeightAverage, make_optimizer


class Prepared(NamedTuple):
    """What the network and the losses are given of a batch, on the device."""

    images: Tensor  # [B, 1, H, W] in [0, 1], augmented
    widths: Tensor  # [B]
    min_lengths: Tensor  # [B], frames that each transcript needs
    targets: Tensor  # [B, U] of labels
    target_lengths: Tensor  # [B]

    def of(self, net: Network) -> tuple[Tensor | Transcripts, ...]:
        """What the network takes of it."""
        shown = (self.images, self.widths, self.min_lengths)
        return (*shown, Transcripts(self.targets, self.target_lengths)) if net.reads_transcripts else shown


def prepare(batch: Batch, config: Config) -> Prepared:
    """A batch on the device, some of its lines without their ink and their text, and all of them augmented."""
    share, c = config.data.augment.blank, config.data
    if share > 0:
        chosen = torch.rand(len(batch.images), device=batch.images.device) < share
        lengths = batch.target_lengths.masked_fill(chosen, 0)
        batch = batch._replace(images=without_ink(batch.images, batch.widths, chosen), target_lengths=lengths)
    need = ctc_min_length(batch.targets, batch.target_lengths)
    narrowest = config.model.character_width * need
    images, widths = augment(batch.lines(), batch.widths, c.augment, None, narrowest, c.max_width)
    if images.device.type == "cpu":  # the room that no line grew into would be computed for nothing; a GPU would wait
        images = images[..., : int(widths.max())]
    return Prepared(images, widths, need, batch.targets, batch.target_lengths)


class TrainStep:
    """A network with its optimiser and its average; called, it takes one step on a batch that is still on the host."""

    epoch = 0  # of the batches that it is called on; who calls it says so

    def __init__(self, config: Config, net: Network, fabric: Fabric) -> None:
        self.config, self.net, self.fabric = config, net, fabric
        self.forward: Callable[..., Output] = fabric.setup_module(net)  # moves the network to the device
        self.optimizer = make_optimizer(net, config.training)
        self.average = WeightAverage(net, config.training.ema_decay)

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    def __call__(self, batch: Batch, rate: float, seed: int, indices: Indices | None = None) -> Tensor:
        """One step at this learning rate; `seed`: of everything random in it. The numbers of MEASURED, still on the
        device.

        `indices`: those of the whole batch, where several devices share it.
        """
        self.net.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        numbers = self.learn(batch, seed, indices)
        norm = self.apply(rate)
        self.average.update(self.net)
        return torch.cat([numbers, norm.float()[None]])

    def learn(self, batch: Batch, seed: int, indices: Indices | None) -> Tensor:
        """Leave the gradients of a batch that is still on the host; the numbers of MEASURED but the last."""
        torch.manual_seed(seed)
        self.optimizer.zero_grad(set_to_none=True)
        return self.gradients(batch.to(self.device), indices)

    def apply(self, rate: float) -> Tensor:
        """Take the gradients into the weights; their norm, as it was. The optimiser knows the rate already."""
        return self.update()

    def gradients(self, batch: Batch, indices: Indices | None = None) -> Tensor:
        """`prepare`, `loss` and the backward pass, for a batch on the device; the numbers of MEASURED but the last."""
        total, numbers = self.loss(prepare(batch, self.config), indices)
        self.fabric.backward(total)
        return numbers

    def loss(self, given: Prepared, indices: Indices | None = None) -> tuple[Tensor, Tensor]:
        """What is minimised, and the numbers of MEASURED but the last."""
        out = self.forward(*given.of(self.net))
        return self.measure(out, given.targets, given.target_lengths, indices)

    def measure(
        self, out: Output, targets: Tensor, target_lengths: Tensor, indices: Indices | None = None
    ) -> tuple[Tensor, Tensor]:
        """As `loss`, of what the network has said."""
        part = None if indices is None else self._part(out, indices)
        losses = spike_htr_loss(out, targets, target_lengths, self.net, self.config.training, part)
        parts = (losses.total, losses.main, losses.aux, losses.kl, out.keep_ratio.mean())
        return losses.total, torch.stack([value.detach().float() for value in parts])

    def update(self) -> Tensor:
        """Clip the gradients and take them into the weights; their norm, as it was."""
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.training.clip_norm)
        self.optimizer.step()
        return norm.detach()

    def _part(self, out: Output, indices: Indices) -> Share | None:
        """What this device's lines count for, where several share the batch."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        if world == 1:
            return None
        size = len(out.lengths)
        mine = torch.tensor([len(range(rank, len(indices), world))], device=self.device)
        own = valid_mask(mine, size)[0].to(out.logits.dtype)
        frames = self.fabric.all_reduce((out.lengths * own).sum(), reduce_op="mean")
        assert isinstance(frames, Tensor)
        return Share(own, len(indices) / world, frames)
