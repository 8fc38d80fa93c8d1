"""What a run tells of itself on the way: means of its numbers, and what is wrong with a step that cannot go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file

if TYPE_CHECKING:
    from spikehtr.training.loop import TrainingRun

BAD_LINES = "bad-lines.txt"
MEASURED = ("loss", "ctc", "aux", "kl", "keep_ratio", "gradient")


class TrainingError(SpikeHTRError):
    """A run that cannot go on: the message names what to look at."""


@dataclass(frozen=True)
class LogEntry:
    """What is told every LOG_EVERY steps and at the end of each epoch: means since the last time."""

    step: int
    epoch: int  # from 1
    progress: float  # of the whole run, 0 to 1
    seconds: float  # of training so far, earlier parts of a resumed run included
    lines_per_second: float
    learning_rate: float
    values: dict[str, float]  # by the names of MEASURED
    cer: float | None = None  # of the averaged weights on the validation lines, after an epoch that was validated
    best: bool = False
    epoch_ended: bool = False


LogCallback = Callable[[LogEntry], None]


@dataclass(frozen=True)
class RunProgress:
    """A sign of life after every step and every batch of a validation; nothing is read back from the device for it."""

    epoch: int  # from 1; 0: the start is read, before the first step
    done: int  # steps of this epoch, or lines read of a validation
    of: int
    validating: bool
    progress: float  # of the whole run, 0 to 1
    seconds: float  # of training so far
    lines_per_second: float


ProgressCallback = Callable[[RunProgress], None]


class Meter:
    """Collects the steps' numbers on the device and reads them back now and then; one for each epoch."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.first = self.began = time.monotonic()
        self.steps: list[Tensor] = []
        self.lines = self.all_lines = 0  # since the last reading, and since the first step

    def add(self, numbers: Tensor, lines: int) -> None:
        self.steps.append(numbers)
        self.lines += lines
        self.all_lines += lines

    def pulse(self, epoch: int) -> RunProgress:
        run, took = self.run, max(time.monotonic() - self.first, 1e-9)
        done = run.step - epoch * run.epoch_length
        return RunProgress(epoch + 1, done, run.epoch_length, False, run.progress, run.seconds, self.all_lines / took)

    def read(self, epoch: int) -> LogEntry:
        """The means since the last reading; a loss or gradient that is no number stops the run before it is saved."""
        run = self.run
        values = torch.stack(self.steps)
        if run.fabric.world_size > 1:
            reduced = run.fabric.all_reduce(values, reduce_op="mean")
            assert isinstance(reduced, Tensor)
            values = reduced
        values = values.cpu()
        finite = torch.isfinite(values[:, [0, -1]]).all(1)
        if not finite.all():
            raise not_finite(run, run.step - len(values) + int((~finite).nonzero()[0]))
        took = time.monotonic() - self.began
        lines, self.lines = self.lines, 0
        self.steps, self.began = [], time.monotonic()
        return LogEntry(
            run.step,
            epoch + 1,
            run.progress,
            run.seconds,
            lines / max(took, 1e-9),
            float(run.optimizer.param_groups[0]["lr"]),
            dict(zip(MEASURED, values.mean(0).tolist(), strict=True)),
        )


def validation_beat(run: TrainingRun, lines: int) -> Callable[[int], None] | None:
    """To be called with the number of lines read so far, where somebody wants to know."""
    beat, began = run.beat, time.monotonic()
    if beat is None or not run.is_main:
        return None
    epoch = -(-run.step // run.epoch_length)

    def show(done: int) -> None:
        speed = done / max(time.monotonic() - began, 1e-9)
        beat(RunProgress(epoch, done, lines, True, run.progress, run.seconds, speed))

    return show


def not_finite(run: TrainingRun, step: int) -> TrainingError:
    """Writes out the lines of the step's batch."""
    epoch, place = divmod(step, run.epoch_length)
    rows = [int(run.train.rows[i]) for i in run.plan(epoch)[place]]
    records = [run.train.store.record(row) for row in rows]
    if run.is_main:
        with whole_file(run.folder / BAD_LINES) as temporary:
            lines = (f"{record['id']}\t{record['origin']}\t{record['text']}\n" for record in records)
            temporary.write_text("".join(lines), encoding="utf-8")
    ids, more = ", ".join(record["id"] for record in records[:3]), len(records) - 3
    return TrainingError(
        f"the loss or its gradient is not finite at step {step}; look at its lines: {ids}"
        f"{f' and {more} more' if more > 0 else ''} (all in {run.folder / BAD_LINES}). "
        "Where they are in order, a lower training.learning_rate helps: start a new folder with it"
    )
