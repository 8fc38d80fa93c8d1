"""One step of training, all of it: augmentation, forward pass, losses, backward pass, clipping, optimiser, average.

What belongs to a run rather than to a step (batches, schedule, files) is in `loop.py`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr import kernels
from spikehtr.config import Config
from spikehtr.data.augment import augment, augmented_columns, without_ink
from spikehtr.data.batching import Batch, Indices
from spikehtr.errors import SpikeHTRError
from spikehtr.kernels.ahead import compile_ahead
from spikehtr.model.lif import set_softness, set_surrogate
from spikehtr.model.losses import Part, spike_htr_loss
from spikehtr.model.masking import valid_mask
from spikehtr.model.network import Network, Output
from spikehtr.model.reducer import ctc_min_length
from spikehtr.training.annealing import bypass_ceiling, hold_below, shortcuts, spike_softness, surrogate_sharpness
from spikehtr.training.fabric import Fabric
from spikehtr.training.graphs import GraphedStep, GraphedUpdate, pad_batch
from spikehtr.training.optim import WeightAverage, kept_buffers, make_optimizer
from spikehtr.training.teacher import Teacher

_WAITS = (5, 10, 20, 30, 60, 60)  # seconds, where a step finds too little memory on a card that others use, too
MUCH = 0.1  # of a card's memory: who waits for less waits in vain
_OWN = 1 << 30  # bytes that a program holds beside its tensors, about


class Moment(NamedTuple):
    """When a step is taken: all that a step depends on beside the weights and the batch."""

    progress: float  # of the run, 0 to 1
    rate: float  # learning rate
    seed: int  # of everything random in the step
    reduced: bool = True  # whether the reducer is at work


class TrainStep:
    """A network with its optimiser and its average; called, it takes one step on a batch that is still on the host."""

    def __init__(self, config: Config, net: Network, fabric: Fabric, teacher: Teacher | None = None) -> None:
        self.config, self.fabric = config, fabric
        self.net, self.teacher = net, teacher
        if teacher is not None and config.data.augment.blank > 0:
            raise SpikeHTRError(
                "a teacher may find letters on empty paper: set data.augment.blank to 0, or do without it"
            )
        # Of the surrogate and of spikes, as the network has them now.
        self.sharpness, self.softness = config.model.lif.surrogate_alpha, 0.0
        self.forward: Callable[..., Output] = fabric.setup_module(net)  # moves the network to the device
        self.optimizer = make_optimizer(net, config.training)
        self.average = WeightAverage(net, config.training.ema_decay)
        self.alphas = shortcuts(net)
        if teacher is not None:
            teacher.to(next(net.parameters()))
        self.graphed: GraphedStep | None = None
        self.graphed_update: GraphedUpdate | None = None
        self.compiled = self.device.type != "cuda"  # whether the kernels are
        if self._can_graph():
            self.graphed = GraphedStep(self._gradients, net.parameters(), kept_buffers(net).values(), self.device)
        if self._alone():
            self.graphed_update = GraphedUpdate(self._update, net.parameters(), self.optimizer, self.device)

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    def _alone(self) -> bool:
        """Whether it is one GPU that trains, and may record what it does."""
        return self.fabric.world_size == 1 and self.device.type == "cuda" and self.config.training.cuda_graphs

    def _can_graph(self) -> bool:
        """Whether a pass can be recorded: by kernels of which none waits for the device."""
        ready = self.teacher is None or self.teacher.recordable
        return self._alone() and ready and kernels.fast(next(self.net.parameters()))

    def __call__(self, batch: Batch, moment: Moment, indices: Indices | None = None) -> Tensor:
        """The numbers of MEASURED, not yet read back from the device.

        `indices`: those of the whole batch, where several devices share it.
        """
        self.net.train()
        for group in self.optimizer.param_groups:
            group["lr"] = moment.rate
        self._anneal(surrogate_sharpness(self.config, moment.progress), spike_softness(self.config, moment.progress))
        if self.graphed is not None and not self.compiled and self.config.model.arch == "spike-htr":
            self._compile(batch)
        numbers = self._patiently(lambda: self._learn_from(batch, moment, indices))
        norm = self.graphed_update(moment.rate) if self.graphed_update is not None else self._update()
        if (ceiling := bypass_ceiling(self.config, moment.progress)) is not None:
            hold_below(self.alphas, ceiling)
        self.average.update(self.net)
        return torch.cat([numbers, norm.float()[None]])

    def _update(self) -> Tensor:
        """Clip the gradients and take them into the weights; their norm, as it was."""
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.training.clip_norm)
        self.optimizer.step()
        return norm.detach()

    def _learn_from(self, batch: Batch, moment: Moment, indices: Indices | None) -> Tensor:
        if self.graphed is not None:
            return self.graphed(batch, moment.reduced, moment.seed)
        torch.manual_seed(moment.seed)
        self.optimizer.zero_grad(set_to_none=True)
        return self._gradients(batch.to(self.device), moment.reduced, indices)

    def _patiently(self, work: Callable[[], Tensor]) -> Tensor:
        """Trainings that share a card need most of it at their start: where a pass lacks memory, wait for theirs to
        end. It is then the pass it would have been, but that batch normalisation has seen its batch more than once."""
        for seconds in _WAITS:
            try:
                return work()
            except torch.OutOfMemoryError:
                if self.fabric.world_size > 1 or (others := held_by_others(self.device)) < MUCH:
                    raise
            # Not in the `except`: the traceback would keep alive what failed.
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            warnings.warn(f"waiting for memory: others hold {others:.0%} of {self.device}", stacklevel=2)
            time.sleep(seconds)
        return work()

    def _compile(self, batch: Batch) -> None:
        """The step's kernels, before the first step asks for one after the other."""

        def work() -> None:
            held = Batch(*(torch.empty_like(value, device=self.device) for value in pad_batch(batch)))
            held = views(held, self.config)
            lines, data = held.lines(), self.config.data
            columns = augmented_columns(lines.shape[-1], data.augment, data.max_width)
            changed, need = lines.new_empty(*lines.shape[:-1], columns), torch.empty_like(held.widths)
            self._learn(held, changed, held.widths, need, reduced=True, indices=None)

        self.compiled = True
        try:
            compile_ahead(work)
        except Exception as error:  # whatever it is, the step itself can do without
            warnings.warn(f"kernels are compiled one after the other ({type(error).__name__}: {error})", stacklevel=2)
        self.optimizer.zero_grad(set_to_none=True)

    def _anneal(self, sharpness: float, softness: float) -> None:
        if (sharpness, softness) != (self.sharpness, self.softness):
            self.sharpness, self.softness = sharpness, softness
            set_surrogate(self.net, sharpness)
            set_softness(self.net, softness)
            if self.graphed is not None:  # recordings hold them as constants
                self.graphed.recordings.forget()

    def _gradients(self, batch: Batch, reduced: bool, indices: Indices | None = None) -> Tensor:
        """Augmentation, forward, losses, backward, for a batch on the device; the numbers of MEASURED but the last."""
        batch = emptied(views(batch, self.config), self.config)
        return self._learn(batch, *augmented(batch, self.config), reduced, indices)

    def _learn(
        self, batch: Batch, images: Tensor, widths: Tensor, need: Tensor, reduced: bool, indices: Indices | None
    ) -> Tensor:
        # More than a line has tokens: none is reduced.
        out = self.forward(images, widths, need if reduced else widths)
        part = None if indices is None else self._part(out, indices)
        wanted = self._wanted(images, widths, out)
        losses = spike_htr_loss(out, batch.targets, batch.target_lengths, self.net, self.config.training, part, wanted)
        self.fabric.backward(losses.total)
        parts = (losses.total, losses.main, losses.aux, losses.kl, losses.teacher, losses.consistency)
        return torch.stack([value.detach().float() for value in (*parts, out.keep_ratio.mean())])

    def _wanted(self, images: Tensor, widths: Tensor, out: Output) -> Tensor | None:
        """What the teacher says of the frames of `out`: [B, L, V]"""
        if self.teacher is None:
            return None
        with self.fabric.autocast():
            return self.teacher(images, widths, out.spans, self.net.config.reducer.longest)

    def _part(self, out: Output, indices: Indices) -> Part | None:
        """What this device's lines count for, where several share the batch."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        if world == 1:
            return None
        size = len(out.lengths)
        readings = self.config.training.readings
        mine = torch.tensor([readings * len(range(rank, len(indices), world))], device=self.device)
        own = valid_mask(mine, size)[0].to(out.logits.dtype)
        frames = self.fabric.all_reduce((out.lengths * own).sum(), reduce_op="mean")
        assert isinstance(frames, Tensor)
        return Part(own, readings * len(indices) / world, frames)


def held_by_others(device: torch.device) -> float:
    """The share of a device's memory that other programs hold."""
    if device.type != "cuda":
        return 0.0
    free, whole = torch.cuda.mem_get_info(device)
    return (whole - free - torch.cuda.memory_reserved(device) - _OWN) / whole


def views(batch: Batch, config: Config) -> Batch:
    """Every line as often as it is read in a step, side by side."""
    times = config.training.readings
    return Batch(*(value.repeat_interleave(times, 0) for value in batch)) if times > 1 else batch


def emptied(batch: Batch, config: Config) -> Batch:
    """Some lines of a batch on the device without their ink and their text: both readings of a line, or none."""
    share, times = config.data.augment.blank, config.training.readings
    if share == 0:
        return batch
    chosen = torch.rand(len(batch.images) // times, device=batch.images.device) < share
    chosen = chosen.repeat_interleave(times)
    lengths = batch.target_lengths.masked_fill(chosen, 0)
    return batch._replace(images=without_ink(batch.images, batch.widths, chosen), target_lengths=lengths)


def augmented(batch: Batch, config: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Augmented images and widths, and the frames each transcript needs, of a batch's views on the device."""
    need = ctc_min_length(batch.targets, batch.target_lengths)
    narrowest = config.model.stride * need
    c, twins = config.data, config.training.readings > 1
    images, widths = augment(batch.lines(), batch.widths, c.augment, None, narrowest, c.max_width, twins)
    return images, widths, need
