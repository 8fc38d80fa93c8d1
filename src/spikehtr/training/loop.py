"""The training loop: a run in a folder, resumable at any step with the very same result.

Everything random in a step (dropout, stochastic depth, augmentation, Poisson coding) is seeded by the run's seed and
the step's number, and an epoch's batches are a function of seed and epoch. So a run's state is its weights, its
optimiser, its average and one counter. Several devices make the same plan and share each batch: their mean gradient is
the whole batch's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from spikehtr import kernels
from spikehtr.baselines import build
from spikehtr.config import Config
from spikehtr.data.augment import augment
from spikehtr.data.batching import Batch, Indices, Lines, load_batches, plan_epoch, share
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.predict import predict
from spikehtr.evaluation.rates import character_edits, total
from spikehtr.files import whole_file
from spikehtr.model.losses import Part, spike_htr_loss
from spikehtr.model.masking import valid_mask
from spikehtr.model.network import Network, Output
from spikehtr.model.reducer import ctc_min_length
from spikehtr.training.checkpoint import load_checkpoint, restore, save_checkpoint
from spikehtr.training.devices import make_fabric
from spikehtr.training.graphs import GraphedStep
from spikehtr.training.optim import Schedule, WeightAverage, make_optimizer
from spikehtr.weights import save_model

BEST, BAD_LINES = "best.safetensors", "bad-lines.txt"
LOG_EVERY = 50  # steps: how often losses are read back from the device, checked and told
_AGREE_EVERY = 10  # steps: how often several devices ask whether to stop
_SEED_STRIDE, _RANK_STRIDE = 1_000_003, 7_919  # keep the seeds of two runs, and of two devices, apart
_MEASURED = ("loss", "ctc", "aux", "kl", "keep_ratio", "gradient")


class TrainingError(SpikeHTRError):
    """A run that cannot go on: the message names what to look at."""


@dataclass(frozen=True)
class Told:
    """What is told every LOG_EVERY steps and at the end of each epoch: means since the last time."""

    step: int
    epoch: int  # from 1
    progress: float  # of the whole run, 0 to 1
    seconds: float  # of training so far, earlier parts of a resumed run included
    lines_per_second: float
    learning_rate: float
    values: dict[str, float]  # by the names of _MEASURED
    cer: float | None = None  # of the averaged weights on the validation lines, after an epoch that was validated
    best: bool = False
    epoch_ended: bool = False


Tell = Callable[[Told], None]


class Run:
    """Training of one network on `train`, validated on `validation`, kept in `folder`.

    `start` holds weights to begin from (by `training.finetune`), `notes` what the model file shall say of its making.
    """

    def __init__(
        self,
        config: Config,
        train: Lines,
        validation: Lines | None,
        folder: Path,
        fabric: Fabric | None = None,
        max_steps: int | None = None,
        max_minutes: float | None = None,
        start: dict[str, Tensor] | None = None,
        notes: dict[str, Any] | None = None,
        half: bool = False,
    ) -> None:
        self.config, self.train, self.folder = config, train, folder
        self.validation = validation if validation is not None and len(validation) else None
        self.fabric = fabric or make_fabric()
        self.notes, self.half = notes or {}, half
        settings = config.training
        self.epoch_length = math.ceil(len(train) / settings.batch_size)
        self.schedule = Schedule(settings, self.epoch_length, max_steps, max_minutes)
        torch.manual_seed(settings.seed)
        self.net = build(config.model, len(train.charset))
        if start:
            self.net.load_state_dict(start)
        wrapped = self.fabric.setup_module(self.net)
        self.forward: Callable[..., Output] = wrapped
        self.optimizer = make_optimizer(self.net, settings)
        self.average = WeightAverage(self.net, settings.ema_decay)
        self.graphed = None
        if self._can_graph():
            self.graphed = GraphedStep(self._gradients, self.net.parameters(), self.device)
        self.step, self.best = 0, math.inf
        self.seconds, self._since = 0.0, time.monotonic()  # of training, and when they were last counted
        self.stopping = False  # set it, from a signal handler say, to end `fit` after the step under way, saved
        self._halt = False  # the devices have agreed to stop

    def _can_graph(self) -> bool:
        """Whether a step can be recorded: on one GPU, by kernels of which none waits for the device."""
        alone = self.fabric.world_size == 1 and self.device.type == "cuda" and self.config.model.arch == "spike-htr"
        return alone and self.config.training.cuda_graphs and kernels.fast(next(self.net.parameters()))

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes files and speaks."""
        return bool(self.fabric.is_global_zero)

    @property
    def progress(self) -> float:
        return self.schedule.progress(self.step, self.seconds)

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0

    def resume(self) -> str | None:
        """Go to where the folder's newest checkpoint is; a warning where it had to take the one before it."""
        found = load_checkpoint(self.folder)
        if found.state["config"] != self.config.to_dict() or found.state["limit"] != self.schedule.limit:
            raise TrainingError(
                f"{self.folder} was begun with other settings; resume with those, or start a new folder"
            )
        if found.state["charset"] != list(self.train.charset.characters):
            raise TrainingError(f"{self.folder} was begun with other characters; has its data changed?")
        restore(found, self.net, self.optimizer, self.average)
        best = found.state["best"]
        self.step, self.best = found.state["step"], math.inf if best is None else best
        self.seconds, self.schedule.warmed = found.state["seconds"], found.state["warmed"]
        return found.warning

    def save(self) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "seconds": self.seconds,
            "warmed": self.schedule.warmed,
            "limit": self.schedule.limit,
            "config": self.config.to_dict(),
            "charset": list(self.train.charset.characters),
        }
        if self.leads:
            save_checkpoint(self.folder, self.net, self.optimizer, self.average, state)
        self.fabric.barrier()

    def fit(self, save_every: int = 500, tell: Tell | None = None) -> None:
        """Train to the end, from wherever the run is; a checkpoint every `save_every` steps and each epoch."""
        self._since = time.monotonic()
        while not self.finished and not self._halt:
            epoch = self.step // self.epoch_length
            meter = _Meter(self)
            for batch, indices in self._batches(epoch):
                meter.add(self._try(batch, indices))
                self.step += 1
                self._agree()
                if self.finished:
                    break
                # An epoch's last step is saved after its validation only: resumed in between, that would be skipped.
                inside = self.step % self.epoch_length != 0
                saving = self._halt or self.step % save_every == 0
                if inside and (saving or self.step % LOG_EVERY == 0):
                    self._say(tell, meter.read(epoch))
                if inside and saving:
                    self.save()
                if inside and self._halt:
                    return
            self._end_epoch(epoch, meter, tell)

    def _end_epoch(self, epoch: int, meter: _Meter, tell: Tell | None) -> None:
        """Check, validate where it is due, keep the model if it is the best, save, tell."""
        told = meter.read(epoch)
        due = self.finished or (epoch + 1) % self.config.training.validate_every == 0
        cer = self._validate() if due else None
        better = cer is not None and cer < self.best
        if better or self.validation is None:
            self.best = cer if cer is not None else self.best
            self._save_model(cer, epoch + 1)
        self._agree(now=True)
        # Told before it is saved: what is told of a step that was never saved can be taken back, not the reverse.
        told = replace(told, seconds=self.seconds, progress=self.progress, cer=cer, best=better, epoch_ended=True)
        self._say(tell, told)
        self.save()

    def _say(self, tell: Tell | None, told: Told) -> None:
        if tell is not None and self.leads:
            tell(told)

    def _batches(self, epoch: int) -> Iterator[tuple[Batch, Indices]]:
        """This device's part of each batch that is left of the epoch, and the whole batch's indices."""
        rest = self._plan(epoch)[self.step - epoch * self.epoch_length :]
        rank, world = self.fabric.global_rank, self.fabric.world_size
        parts = [share(batch, rank, world) for batch in rest]
        loaded = load_batches(self.train, parts, self.config.data.workers, pin_memory=self.device.type == "cuda")
        return zip(loaded, rest, strict=True)

    def _plan(self, epoch: int) -> list[Indices]:
        settings = self.config.training
        return plan_epoch(self.train.widths, settings.batch_size, settings.seed, epoch)

    def _agree(self, now: bool = False) -> None:
        """Count the time and see whether to stop; several devices take the first one's time, every few steps."""
        if self.fabric.world_size > 1 and self.step % _AGREE_EVERY and not now:
            return
        before, self._since = self._since, time.monotonic()
        self.seconds, self._halt = self.seconds + self._since - before, self.stopping
        if self.fabric.world_size > 1:
            mine = torch.tensor([self.seconds if self.leads else 0.0, float(self.stopping)], device=self.device)
            agreed = self.fabric.all_reduce(mine, reduce_op="sum")
            assert isinstance(agreed, Tensor)
            self.seconds, self._halt = float(agreed[0]), bool(agreed[1] > 0)

    def _try(self, batch: Batch, indices: Indices) -> Tensor:
        try:
            return self._train_on(batch, indices)
        except (torch.OutOfMemoryError, RuntimeError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
                raise
            lines, _, height, width = batch.images.shape
            steps = f", T = {self.config.model.timesteps}" if self.config.model.arch == "spike-htr" else ""
            raise TrainingError(
                f"out of memory on a batch of {lines} lines, {height} x {width} px{steps}: "
                f"lower training.batch_size (now {self.config.training.batch_size}; -s training.batch_size=N), "
                f"or data.max_width (now {self.config.data.max_width})"
            ) from None

    def _train_on(self, batch: Batch, indices: Indices) -> Tensor:
        """One optimiser step; the numbers of _MEASURED, not yet read back from the device."""
        settings = self.config.training
        self.net.train()
        rate = self.schedule.rate(self.step, self.progress)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed = settings.seed * _SEED_STRIDE + self.step + self.fabric.global_rank * _RANK_STRIDE
        reduced = self.step >= settings.reducer_warmup * self.epoch_length
        if self.graphed is not None:
            numbers = self.graphed(batch, reduced, seed)
        else:
            torch.manual_seed(seed)
            self.optimizer.zero_grad(set_to_none=True)
            numbers = self._gradients(batch.to(self.device), reduced, indices)
        norm = torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.average.update(self.net)
        return torch.cat([numbers, norm.detach().float()[None]])

    def _gradients(self, batch: Batch, reduced: bool, indices: Indices | None = None) -> Tensor:
        """Augmentation, forward, losses, backward, for a batch on the device; the numbers of _MEASURED but the last."""
        settings, data = self.config.training, self.config.data
        need = ctc_min_length(batch.targets, batch.target_lengths)
        narrowest = self.net.stride * need
        images, widths = augment(batch.lines(), batch.widths, data.augment, None, narrowest, data.max_width)
        # More than a line has tokens: none is reduced.
        out = self.forward(images, widths, need if reduced else widths)
        part = None if indices is None else self._part(out, indices)
        losses = spike_htr_loss(out, batch.targets, batch.target_lengths, self.net, settings, part)
        self.fabric.backward(losses.total)
        parts = (losses.total, losses.main, losses.aux, losses.kl, out.keep_ratio.mean())
        return torch.stack([value.detach().float() for value in parts])

    def _part(self, out: Output, indices: Indices) -> Part | None:
        """What this device's lines count for, where several share the batch."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        if world == 1:
            return None
        size = len(out.lengths)
        mine = torch.tensor([len(range(rank, len(indices), world))], device=self.device)
        own = valid_mask(mine, size)[0].to(out.logits.dtype)
        frames = self.fabric.all_reduce((out.lengths * own).sum(), reduce_op="mean")
        assert isinstance(frames, Tensor)
        return Part(own, len(indices) / world, frames)

    def _validate(self) -> float | None:
        """CER of the averaged weights; each device reads its share of the lines."""
        if self.validation is None:
            return None
        v, rank, world = self.validation, self.fabric.global_rank, self.fabric.world_size
        mine = v if world == 1 else Lines(v.store, v.rows[rank::world], v.charset, v.max_width, labelled=False)
        self._share_buffers()
        found = predict(self._averaged(), mine, self.config.training.batch_size, self.config.data.workers)
        edits = total(character_edits(p.reference, p.text) for p in found)
        counts = torch.tensor([edits.errors, edits.length], dtype=torch.float64, device=self.device)
        summed = self.fabric.all_reduce(counts, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return float(summed[0] / summed[1])

    def _share_buffers(self) -> None:
        """Running statistics come from each device's own lines: the first one's count, on every device."""
        if self.fabric.world_size > 1 and self.average.buffers:
            first = self.fabric.broadcast({name: value.cpu() for name, value in self.average.buffers.items()})
            for name, value in self.average.buffers.items():
                value.copy_(first[name])

    def _averaged(self) -> Network:
        """A network with the averaged weights."""
        net = build(self.config.model, self.net.vocab_size).to(self.device, next(self.net.parameters()).dtype).eval()
        self.average.copy_to(net)
        return net

    def _save_model(self, cer: float | None, epochs: int) -> None:
        if not self.leads:
            return
        made = {"step": self.step, "epochs": epochs, "seed": self.config.training.seed, "validation_cer": cer}
        made["minutes"] = round(self.seconds / 60, 2)
        save_model(
            self.folder / BEST, self._averaged(), self.config, self.train.charset, self.notes | made, half=self.half
        )


class _Meter:
    """Collects the steps' numbers on the device and reads them back now and then."""

    def __init__(self, run: Run) -> None:
        self.run, self.began = run, time.monotonic()
        self.steps: list[Tensor] = []

    def add(self, numbers: Tensor) -> None:
        self.steps.append(numbers)

    def read(self, epoch: int) -> Told:
        """The means since the last reading; a loss that is no number stops the run before it is saved."""
        run = self.run
        values = torch.stack(self.steps)
        if run.fabric.world_size > 1:
            reduced = run.fabric.all_reduce(values, reduce_op="mean")
            assert isinstance(reduced, Tensor)
            values = reduced
        values = values.cpu()
        finite = torch.isfinite(values[:, 0])
        if not finite.all():
            raise _not_finite(run, run.step - len(values) + int((~finite).nonzero()[0]))
        took = time.monotonic() - self.began
        lines = len(values) * run.config.training.batch_size
        self.steps, self.began = [], time.monotonic()
        return Told(
            run.step,
            epoch + 1,
            run.progress,
            run.seconds,
            lines / max(took, 1e-9),
            float(run.optimizer.param_groups[0]["lr"]),
            dict(zip(_MEASURED, values.mean(0).tolist(), strict=True)),
        )


def _not_finite(run: Run, step: int) -> TrainingError:
    """Writes out the lines of the step's batch."""
    epoch, place = divmod(step, run.epoch_length)
    rows = [int(run.train.rows[i]) for i in run._plan(epoch)[place]]
    records = [run.train.store.record(row) for row in rows]
    if run.leads:
        with whole_file(run.folder / BAD_LINES) as temporary:
            lines = (f"{record['id']}\t{record['origin']}\t{record['text']}\n" for record in records)
            temporary.write_text("".join(lines), encoding="utf-8")
    ids = ", ".join(record["id"] for record in records)
    return TrainingError(
        f"the loss is not finite at step {step}; look at its lines: {ids} (also in {run.folder / BAD_LINES}). "
        "Where they are in order, a lower training.learning_rate helps; --resume goes on from the checkpoint before it"
    )
