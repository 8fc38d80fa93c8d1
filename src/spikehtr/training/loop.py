"""The training loop: a run in a folder, resumable at any step with the very same result.

Everything random in a step (dropout, stochastic depth, augmentation, Poisson coding) is seeded by the run's seed and
the step's number, and an epoch's batches are a function of seed and epoch. So a run's state is its weights, its
optimiser, its average and one counter. Several devices make the same plan and share each batch: their mean gradient is
the whole batch's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.batching import Batch, Indices, Lines, balanced_sizes, load_batches, plan_epoch, share
from spikehtr.evaluation.predict import predict
from spikehtr.evaluation.rates import character_edits, total
from spikehtr.model.network import Network
from spikehtr.registry import build
from spikehtr.training.checkpoint import load_checkpoint, restore, save_checkpoint
from spikehtr.training.devices import make_fabric
from spikehtr.training.fabric import Fabric
from spikehtr.training.graphs import make_step
from spikehtr.training.monitoring import LogCallback, LogEntry, Meter, ProgressCallback, TrainingError, validation_beat
from spikehtr.training.optim import Schedule
from spikehtr.weights import save_model

BEST = "best.safetensors"
# What errors other than torch.OutOfMemoryError say: of a CPU, of a driver, of a library that has to make its workspace.
_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")
LOG_EVERY = 50  # steps: how often losses are read back from the device, checked and told
_AGREE_EVERY = 10  # steps: how often several devices ask whether to stop
_SEED_STRIDE, _RANK_STRIDE = 1_000_003, 7_919  # keep the seeds of two runs, and of two devices, apart


class TrainingRun:
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
        # The sets that lines are of, where they are to be shown more evenly than they are large.
        self.sets = train.by_set() if config.data.balance else []
        shown = (
            sum(balanced_sizes([len(one) for one in self.sets], config.data.balance))
            if len(self.sets) > 1
            else len(train)
        )
        self.epoch_length = math.ceil(shown / settings.batch_size)
        self.schedule = Schedule(settings, self.epoch_length, max_steps, max_minutes)
        torch.manual_seed(settings.seed)
        self.net = build(config.model, len(train.charset))
        if start:
            self.net.load_state_dict(start)
        self.train_step = make_step(config, self.net, self.fabric, len(train))
        self.optimizer, self.average = self.train_step.optimizer, self.train_step.average
        self.step, self.best = 0, math.inf
        self.start_cer: float | None = None  # of the weights that were begun with, where `validate_start` read them
        self.seconds, self._since = 0.0, time.monotonic()  # of training, and when they were last counted
        self.stopping = False  # set it, from a signal handler say, to end `fit` after the step under way, saved
        self._halt = False  # the devices have agreed to stop
        self.beat: ProgressCallback | None = None  # set it to be shown every step, and a validation on its way

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes files and speaks."""
        return bool(self.fabric.is_global_zero)

    @property
    def progress(self) -> float:
        return self.schedule.progress(self.step, self.seconds)

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0

    @property
    def _digest(self) -> str | None:
        """Of all lines, where they are known; changes when any of them does."""
        digest: str | None = self.notes.get("data", {}).get("digest")
        return digest

    def resume(self) -> str | None:
        """Go to where the folder's newest checkpoint is; a warning where it had to take the one before it."""
        found = load_checkpoint(self.folder)
        # As settings, not as text: a key that is new since then has its default, which is what happened before it.
        begun = Config.from_dict(found.state["config"])
        here = self.config.data  # how a machine loads lines changes nothing else
        begun = begun.with_overrides({"data.workers": here.workers, "data.cache_mb": here.cache_mb})
        if begun != self.config or found.state["limit"] != self.schedule.limit:
            then, now = found.state["limit"] | begun.flat(), self.schedule.limit | self.config.flat()
            changed = [f"{key} was {then[key]}, is {now[key]}" for key in now if then[key] != now[key]]
            some = "; ".join([*changed[:4], *["..."] * (len(changed) > 4)])
            raise TrainingError(
                f"{self.folder} was begun with other settings ({some}): resume with those, or start a new folder"
            )
        if found.state["charset"] != list(self.train.charset.characters):
            raise TrainingError(f"{self.folder} was begun with other characters; has its data changed?")
        if found.state.get("data", self._digest) != self._digest:
            raise TrainingError(
                f"{self.folder} was begun with other lines: resume with the very same data, or start a new folder"
                + (f" with --from {self.folder / BEST}" if (self.folder / BEST).exists() else "")
            )
        restore(found, self.net, self.optimizer, self.average)
        best = found.state["best"]
        self.step, self.best = found.state["step"], math.inf if best is None else best
        self.start_cer = found.state.get("start_cer")
        self.seconds, self.schedule.warmed = found.state["seconds"], found.state["warmed"]
        return found.warning

    def save(self) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "start_cer": self.start_cer,
            "seconds": self.seconds,
            "warmed": self.schedule.warmed,
            "limit": self.schedule.limit,
            "config": self.config.to_dict(),
            "charset": list(self.train.charset.characters),
            "data": self._digest,
        }
        if self.is_main:
            save_checkpoint(self.folder, self.net, self.optimizer, self.average, state)
        self.fabric.barrier()

    def validate_start(self, keep: bool) -> float | None:
        """The validation CER of the weights a run begins with; kept as its best so far, if asked for."""
        cer = self.start_cer = self._validate()
        if cer is not None and keep:
            self.best = cer
            self._save_model(cer, 0)
        return cer

    def fit(self, save_every: int = 500, tell: LogCallback | None = None) -> None:
        """Train to the end, from wherever the run is; a checkpoint every `save_every` steps and each epoch."""
        self._since = time.monotonic()
        while not self.finished and not self._halt:
            epoch = self.step // self.epoch_length
            meter = Meter(self)
            for batch, indices in self._batches(epoch):
                meter.add(self._try(batch, indices), len(indices))
                self.step += 1
                self._agree()
                if self.beat is not None and self.is_main:
                    self.beat(meter.pulse(epoch))
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

    def _end_epoch(self, epoch: int, meter: Meter, tell: LogCallback | None) -> None:
        """Check, validate where it is due, keep the model if it is the best, save, tell."""
        told = meter.read(epoch)
        due = self.finished or (epoch + 1) % self.config.training.validate_every == 0
        cer = self._validate() if due else None
        better = cer is not None and cer < self.best
        if better or self.validation is None:
            self.best = cer if cer is not None else self.best
            self._save_model(cer, epoch + 1)
        self._agree(now=True)
        # LogEntry before it is saved: what is told of a step that was never saved can be taken back, not the reverse.
        told = replace(told, seconds=self.seconds, progress=self.progress, cer=cer, best=better, epoch_ended=True)
        self._say(tell, told)
        self.save()

    def _say(self, tell: LogCallback | None, told: LogEntry) -> None:
        if tell is not None and self.is_main:
            tell(told)

    def _batches(self, epoch: int) -> Iterator[tuple[Batch, Indices]]:
        """This device's part of each batch that is left of the epoch, and the whole batch's indices."""
        rest = self.plan(epoch)[self.step - epoch * self.epoch_length :]
        rank, world = self.fabric.global_rank, self.fabric.world_size
        parts = [share(batch, rank, world) for batch in rest]
        loaded = load_batches(self.train, parts, self.config.data.workers, pin_memory=self.device.type == "cuda")
        return zip(loaded, rest, strict=True)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of an epoch."""
        settings = self.config.training
        balance = self.config.data.balance
        return plan_epoch(self.train.widths, settings.batch_size, settings.seed, epoch, sets=self.sets, balance=balance)

    def _agree(self, now: bool = False) -> None:
        """Count the time and see whether to stop; several devices take the first one's time, every few steps."""
        if self.fabric.world_size > 1 and self.step % _AGREE_EVERY and not now:
            return
        before, self._since = self._since, time.monotonic()
        self.seconds, self._halt = self.seconds + self._since - before, self.stopping
        if self.fabric.world_size > 1:
            mine = torch.tensor([self.seconds if self.is_main else 0.0, float(self.stopping)], device=self.device)
            agreed = self.fabric.all_reduce(mine, reduce_op="sum")
            assert isinstance(agreed, Tensor)
            self.seconds, self._halt = float(agreed[0]), bool(agreed[1] > 0)

    def _try(self, batch: Batch, indices: Indices) -> Tensor:
        try:
            return self._train_on(batch, indices)
        except RuntimeError as error:  # torch.OutOfMemoryError is one of them
            if not isinstance(error, torch.OutOfMemoryError) and not any(s in str(error) for s in _NO_MEMORY):
                raise
            lines, _, height, width = batch.images.shape
            steps = f", T = {self.config.model.timesteps}" if self.config.model.arch == "spike-htr" else ""
            raise TrainingError(
                f"out of memory on a batch of {lines} lines, {height} x {width} px{steps}: "
                f"lower training.batch_size (now {self.config.training.batch_size}; -s training.batch_size=N), "
                f"or data.max_width (now {self.config.data.max_width})"
            ) from None

    def _train_on(self, batch: Batch, indices: Indices) -> Tensor:
        """One optimiser step; the numbers of MEASURED, not yet read back from the device."""
        settings = self.config.training
        rate = self.schedule.rate(self.step, self.progress)
        self.train_step.epoch = self.step // self.epoch_length
        seed = settings.seed * _SEED_STRIDE + self.step + self.fabric.global_rank * _RANK_STRIDE
        return self.train_step(batch, rate, seed, indices)

    def _validate(self) -> float | None:
        """CER of the averaged weights; each device reads its share of the lines."""
        if self.validation is None:
            return None
        v, rank, world = self.validation, self.fabric.global_rank, self.fabric.world_size
        mine = v if world == 1 else Lines(v.store, v.rows[rank::world], v.charset, v.max_width, labelled=False)
        self._share_buffers()
        size, workers = self.config.training.batch_size, self.config.data.workers
        found = predict(self._averaged(), mine, size, workers, validation_beat(self, len(mine)))
        if self.device.type == "cuda":  # others may share the card, and training has no use for what reading took
            torch.cuda.empty_cache()
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
        if not self.is_main:
            return
        made = {"step": self.step, "epochs": epochs, "seed": self.config.training.seed, "validation_cer": cer}
        made["minutes"] = round(self.seconds / 60, 2)
        save_model(
            self.folder / BEST, self._averaged(), self.config, self.train.charset, self.notes | made, half=self.half
        )


__all__ = ["BEST", "LOG_EVERY", "LogCallback", "LogEntry", "TrainingError", "TrainingRun"]
