"""The training loop: a run in a folder, resumable at any step with the very same result.

Everything random in a step (dropout, stochastic depth, augmentation, Poisson coding) is seeded by the run's seed and
the step's number, and an epoch's batches are a function of seed and epoch. So a run's state is its weights, its
optimiser, its average and one counter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.augment import augment
from spikehtr.data.batching import Batch, Indices, Lines, load_batches, plan_epoch
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.predict import predict
from spikehtr.evaluation.rates import character_edits, total
from spikehtr.model.losses import spike_htr_loss
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.model.reducer import ctc_min_length
from spikehtr.training.checkpoint import load_checkpoint, restore, save_checkpoint
from spikehtr.training.optim import WeightAverage, learning_rate, make_optimizer
from spikehtr.weights import save_model

BEST = "best.safetensors"
_SEED_STRIDE = 1_000_003  # keeps the step seeds of two runs apart


class TrainingError(SpikeHTRError):
    """A run that cannot go on: the message names what to look at."""


@dataclass(frozen=True)
class Epoch:
    """What is told after each epoch."""

    number: int
    step: int
    loss: float
    cer: float | None  # of the averaged weights on the validation lines; None where there are none
    best: bool
    lines_per_second: float


class Run:
    """Training of one network on `train`, validated on `validation`, kept in `folder`."""

    def __init__(
        self,
        config: Config,
        train: Lines,
        validation: Lines | None,
        folder: Path,
        device: str | torch.device = "cpu",
        max_steps: int | None = None,
    ) -> None:
        self.config, self.train, self.validation, self.folder = config, train, validation, folder
        self.device = torch.device(device)
        settings = config.training
        self.epoch_length = math.ceil(len(train) / settings.batch_size)
        self.steps = max_steps or settings.epochs * self.epoch_length
        self.warmup = min(0.5, settings.warmup_epochs * self.epoch_length / self.steps)
        torch.manual_seed(settings.seed)
        self.net = SpikeHTR(config.model, len(train.charset)).to(self.device)
        self.optimizer = make_optimizer(self.net, settings)
        self.average = WeightAverage(self.net, settings.ema_decay)
        self.step = 0
        self.best = math.inf
        self.stopping = False  # set it, from a signal handler say, to end `fit` after the step under way, saved

    def resume(self) -> str | None:
        """Go to where the folder's newest checkpoint is; a warning where it had to take the one before it."""
        found = load_checkpoint(self.folder)
        if found.state["config"] != self.config.to_dict() or found.state["steps"] != self.steps:
            raise TrainingError(
                f"{self.folder} was begun with other settings; resume with those, or start a new folder"
            )
        if found.state["charset"] != list(self.train.charset.characters):
            raise TrainingError(f"{self.folder} was begun with other characters; has its data changed?")
        restore(found, self.net, self.optimizer, self.average)
        best = found.state["best"]
        self.step, self.best = found.state["step"], math.inf if best is None else best
        return found.warning

    def save(self) -> None:
        state: dict[str, Any] = {
            "step": self.step,
            "best": None if math.isinf(self.best) else self.best,
            "steps": self.steps,
        }
        state |= {"config": self.config.to_dict(), "charset": list(self.train.charset.characters)}
        save_checkpoint(self.folder, self.net, self.optimizer, self.average, state)

    def fit(self, save_every: int = 500, tell: Callable[[Epoch], None] | None = None) -> None:
        """Train to the last step, from wherever the run is; a checkpoint every `save_every` steps and each epoch."""
        while self.step < self.steps and not self.stopping:
            number, began, first = self.step // self.epoch_length, time.perf_counter(), self.step
            losses: list[Tensor] = []
            for batch in self._batches(number):
                losses.append(self._train_on(batch))
                self.step += 1
                if self.step == self.steps:
                    break
                # An epoch's last step is saved after its validation only: resumed in between, that would be skipped.
                inside = self.step % self.epoch_length != 0
                if inside and (self.stopping or self.step % save_every == 0):
                    self._check_losses(losses)
                    self.save()
                if inside and self.stopping:
                    return
            mean = self._check_losses(losses)
            rate = (self.step - first) * self.config.training.batch_size / (time.perf_counter() - began)
            cer = self._validate()
            better = cer is not None and cer < self.best
            if better or cer is None:
                self.best = cer if cer is not None else self.best
                self._save_model(cer)
            self.save()
            if tell:
                tell(Epoch(number + 1, self.step, mean, cer, better, rate))

    def _batches(self, epoch: int) -> Iterator[Batch]:
        settings, data = self.config.training, self.config.data
        plan: list[Indices] = plan_epoch(self.train.widths, settings.batch_size, settings.seed, epoch)
        rest = plan[self.step - epoch * self.epoch_length :]
        return load_batches(self.train, rest, data.workers, pin_memory=self.device.type == "cuda")

    def _train_on(self, batch: Batch) -> Tensor:
        """One optimiser step; the loss, not yet read back from the device."""
        settings = self.config.training
        torch.manual_seed(settings.seed * _SEED_STRIDE + self.step)
        self.net.train()
        rate = learning_rate(self.step / self.steps, self.warmup, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch = batch.to(self.device)
        need = ctc_min_length(batch.targets, batch.target_lengths)
        images, widths = augment(batch.images, batch.widths, self.config.data.augment, min_widths=4 * need)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            out = self.net(images, widths, need)
        loss = spike_htr_loss(out, batch.targets, batch.target_lengths, self.net, settings).total
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.average.update(self.net)
        return loss.detach()

    def _check_losses(self, losses: list[Tensor]) -> float:
        """The mean; a loss that is no number stops the run before it is saved over the last good checkpoint."""
        values = torch.stack(losses).cpu()
        if not torch.isfinite(values).all():
            step = self.step - len(values) + int((~torch.isfinite(values)).nonzero()[0])
            epoch, place = divmod(step, self.epoch_length)
            settings = self.config.training
            batch = plan_epoch(self.train.widths, settings.batch_size, settings.seed, epoch)[place]
            ids = [self.train.store.record(int(self.train.rows[i]))["id"] for i in batch]
            raise TrainingError(f"the loss is not finite at step {step}; look at its lines: {', '.join(ids)}")
        return float(values.mean())

    def _validate(self) -> float | None:
        if self.validation is None or not len(self.validation):
            return None
        averaged = self._averaged()
        found = predict(averaged, self.validation, self.config.training.batch_size, self.config.data.workers)
        return total(character_edits(p.reference, p.text) for p in found).rate

    def _averaged(self) -> SpikeHTR:
        net = SpikeHTR(self.config.model, self.net.vocab_size).to(self.device).eval()
        self.average.copy_to(net)
        return net

    def _save_model(self, cer: float | None) -> None:
        notes = {"step": self.step, "seed": self.config.training.seed, "validation_cer": cer}
        save_model(self.folder / BEST, self._averaged(), self.config, self.train.charset, notes)
