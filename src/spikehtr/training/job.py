"""A training from its data to its report: what `spikehtr train` does, for other programs too."""

from __future__ import annotations

import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

from spikehtr.config import Config
from spikehtr.data.compiling import open_lines
from spikehtr.data.formats import locate
from spikehtr.data.store import LineStore
from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder, read_json, write_json
from spikehtr.results.expected_error import NOTE as ERROR_NOTE
from spikehtr.training import verdict
from spikehtr.training.checkpoint import has_checkpoint
from spikehtr.training.datasets import TrainingSets, training_sets
from spikehtr.training.fabric import Fabric
from spikehtr.training.finetune import Handover, Mode, starting_weights
from spikehtr.training.frozen import freeze_remark, suited_freeze
from spikehtr.training.log import Log
from spikehtr.training.loop import BEST, LogCallback, LogEntry, TrainingRun
from spikehtr.training.monitoring import ProgressCallback
from spikehtr.training.records import DATA, ENVIRONMENT, data_record, provenance, run_environment
from spikehtr.weights import BUNDLED, Loaded, load_model, update_notes

SETTINGS, JOB = "config.yaml", "job.json"
_ELSEWHERE = ("config", "folder", "resume")  # what of a job its notes leave out
_AIMS = {"bypass_penalty", "firing_penalty", "firing_target"}  # settings that ask for more than text


@dataclass(frozen=True)
class Job:
    """Everything a run is made of but the devices it runs on."""

    config: Config
    data: Sequence[str | Path]
    folder: Path
    start: Path | None = None  # a model to go on from
    charset: Mode = "extend"  # what becomes of that model's characters
    max_steps: int | None = None
    max_minutes: float | None = None
    resume: bool = False
    allow_unknown: bool = False
    half: bool = False
    save_every: int = 500  # steps between two checkpoints; there is one after each epoch, too
    worst: int = 20  # lines shown in the report
    machine_lines: bool = False  # also what a model read and no person changed or confirmed
    lm: bool = False  # make a language model of the training lines, too, and put it into the model's file

    @classmethod
    def begun(cls, folder: Path) -> Self:
        """The job of the run in a folder, to go on with it."""
        notes, known = read_json(folder / JOB), {one.name for one in fields(cls)}
        if notes is None and not has_checkpoint(folder):
            raise SpikeHTRError(f"{folder} holds no run to go on with: check the name, or begin one with --data")
        if not isinstance(notes, dict) or "data" not in notes or not notes.keys() <= known:
            raise SpikeHTRError(
                f"{folder} does not say how its run was begun: repeat the command that began it, with --resume"
            )
        start = notes["start"] and Path(notes["start"])
        # One that was stopped before its first checkpoint begins anew.
        resume, config = has_checkpoint(folder), Config.load(folder / SETTINGS)
        return cls(config=config, folder=folder, resume=resume, **notes | {"start": start})

    def notes(self) -> dict[str, Any]:
        """What `begun` needs, beside the settings; paths as they are from anywhere."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _ELSEWHERE}
        start = self.start and str(_from_anywhere(self.start))
        return values | {"start": start, "data": [_source_from_anywhere(source) for source in self.data]}

    def claim_folder(self) -> None:
        """Make the folder, or say why it will not do; before any work."""
        if has_checkpoint(self.folder) and not self.resume:
            raise SpikeHTRError(
                f"{self.folder} holds a run already: add --resume to go on with it, or name another folder"
            )
        make_folder(self.folder)


def _from_anywhere(model: Path) -> Path:
    return model if str(model) == BUNDLED else model.absolute()


def _source_from_anywhere(spec: str | Path) -> str:
    name, path = locate(spec)
    return f"{name}:{path.absolute()}" if name else str(path.absolute())


@dataclass(frozen=True)
class Outcome:
    finished: bool
    step: int
    cer: float | None  # of the best model on the validation lines
    report: Path | None
    before: float | None = None  # of the model it went on from, on the same lines


class Ready(NamedTuple):
    """What a job's data and models come to before the first step."""

    sets: TrainingSets
    start: Handover | None


def open_data(job: Job, reading: Callable[[int], None] | None, say: Callable[[str], None]) -> LineStore:
    """The job's lines, as its network takes them; `say` is told what was left out."""
    model, data = job.config.model, job.config.data
    return open_lines(job.data, model.height, data.max_width, reading, say, data.straighten, job.machine_lines)


def split_lines(job: Job, store: LineStore, model: Loaded | None) -> TrainingSets:
    return training_sets(store, job.config, model.charset if model else None, job.charset, job.allow_unknown)


def prepare_job(
    job: Job, store: LineStore, model: Loaded | None, say: Callable[[str], None], left_out: Sequence[str] = ()
) -> Ready:
    """Everything that data may stop a run for: `data check` calls this as well, and so finds the same."""
    sets = split_lines(job, store, model)
    sets.remarks[:0] = left_out
    for remark in sets.remarks:
        say(remark)
    start = starting_weights(model, job.config, sets.train.charset) if model else None
    if start and start.remark:
        say(start.remark)
    return Ready(sets, start)


def run_job(
    job: Job,
    fabric: Fabric,
    say: Callable[[str], None],
    tell: LogCallback | None = None,
    reading: Callable[[int], None] | None = None,
    model: Loaded | None = None,
    beat: ProgressCallback | None = None,
) -> Outcome:
    """Run the job to its end, or until it is interrupted. `fabric` is launched; only its first process writes.

    `model`: what `job.start` names, where it is loaded already. `beat`: called after every step, to show progress.
    """
    if job.start and model is None:
        model = load_model(job.start)
    with fabric.rank_zero_first():  # one process fills the cache, the others find it
        left_out: list[str] = []
        store = open_data(job, reading, left_out.append)
    sets, start = prepare_job(job, store, model, say, left_out)
    config = _decided(job, len(sets.train), fabric, model)
    if remark := freeze_remark(config, len(sets.train)):
        say(remark)
    data = data_record(store, sets)
    run = TrainingRun(
        config,
        sets.train,
        sets.validation,
        job.folder,
        fabric,
        job.max_steps,
        job.max_minutes,
        start.weights if start else None,
        provenance(data, job.start),
        job.half,
    )
    run.beat = beat
    if job.resume and (warning := run.resume()):
        say(warning)
    say(_opening(run, sets))
    environment = run_environment(str(fabric.device), config.training.seed)
    if job.resume and read_json(job.folder / JOB) == job.notes():  # how it was begun says more than that it goes on
        environment |= {"command": (read_json(job.folder / ENVIRONMENT) or environment)["command"]}
    if run.is_main:
        config.save(job.folder / SETTINGS)
        write_json(job.folder / JOB, job.notes())
        write_json(job.folder / DATA, data)
        write_json(job.folder / ENVIRONMENT, environment)
    with stop_on_interrupt(run):
        if model and run.step == 0:
            keep = _same_aim(job, model.config)
            if (before := run.validate_start(keep)) is not None:
                say(f"before the first step: validation CER {before:.2%}")
                if keep and run.is_main:  # these weights are calibrated; few lines may not be enough to do it anew
                    known = {name: note for name, note in model.notes.items() if name in ("temperature", "calibration")}
                    update_notes(job.folder / BEST, known)
        with closing(Log(run.folder, run.step)) if run.is_main else nullcontext() as log:
            listeners = [listener for listener in (log, tell) if listener is not None]

            def tell_all(entry: LogEntry) -> None:
                for listener in listeners:
                    listener(entry)

            run.fit(job.save_every, tell_all)
    cer = None if math.isinf(run.best) else run.best
    report = None
    if run.finished and run.is_main:
        from spikehtr.training.run_page import finish  # and matplotlib with it, which takes a second to load

        report = finish(job.folder, sets.validation, str(fabric.device), data, environment, job.worst)
    if run.finished and run.is_main and start:
        _say_what_came_of_it(run, sets, start, say)
    if run.finished and run.is_main and model and ERROR_NOTE in model.notes:  # of hands that neither knows
        update_notes(job.folder / BEST, {ERROR_NOTE: model.notes[ERROR_NOTE]})
    if run.finished and run.is_main and job.lm:
        from spikehtr.training.language import add_language_model

        say(add_language_model(job.folder, sets, str(fabric.device)))
    fabric.barrier()
    return Outcome(run.finished, run.step, cer, report, run.start_cer)


def _decided(job: Job, lines: int, fabric: Fabric, model: Loaded | None) -> Config:
    """The job's settings with `training.freeze` decided; a run that goes on keeps what it was begun with."""
    freeze = job.config.training.freeze
    if freeze == "encoder" and model is None:
        raise SpikeHTRError("training.freeze=encoder would keep an encoder that was never trained: add --from MODEL")
    if freeze == "auto" and job.resume and (job.folder / SETTINGS).is_file():
        freeze = Config.load(job.folder / SETTINGS).training.freeze
    elif freeze == "auto" and model:
        alone = fabric.device.type == "cpu" and fabric.world_size == 1
        freeze = suited_freeze(model.net, lines) if alone and _same_aim(job, model.config) else "nothing"
    return job.config.with_overrides({"training.freeze": freeze})


def _say_what_came_of_it(run: TrainingRun, sets: TrainingSets, start: Handover, say: Callable[[str], None]) -> None:
    """After a fine-tuning: why nothing was gained, or what can be said without a line to validate on."""
    config, device, best = run.config, str(run.device), load_model(run.folder / BEST)
    if not len(sets.validation):
        lines = verdict.sample(sets.train)
        before = verdict.read_start(start.weights, config, lines, device)
        after = verdict.read(best.net, config, lines, device)
        say(verdict.learned(len(sets.train), verdict.error_rate(before), verdict.error_rate(after)))
    elif best.notes["step"] == 0:  # the start, kept by `validate_start`
        readings = verdict.read(best.net, config, verdict.sample(sets.validation), device)
        say(verdict.Setback(len(sets.train), run.step, readings).message(BEST))


def _same_aim(job: Job, start: Config) -> bool:
    """Whether a run goes on with what its start was trained for: then the start may be the best there is. Otherwise
    (another network, a price on spikes) a higher error rate may well be wanted."""
    now, then = (c.training.model_dump(include=_AIMS) for c in (job.config, start))
    return job.config.model == start.model and now == then


def _opening(run: TrainingRun, sets: TrainingSets) -> str:
    sizes = f"{len(sets.train)} lines to train on, {len(sets.validation)} to validate"
    steps, seconds = run.schedule.steps, run.schedule.seconds
    limit = f"of {steps}" if steps is not None else f"(the run takes {(seconds or 0) / 60:g} minutes)"
    world = f" x {run.fabric.world_size}" if run.fabric.world_size > 1 else ""
    return f"{sizes}, {len(sets.train.charset) - 1} characters; step {run.step} {limit} on {run.device}{world}"


@contextmanager
def stop_on_interrupt(run: TrainingRun) -> Iterator[None]:
    """Ctrl-C, or a batch system's SIGTERM, ends the run after the step under way, saved; a second one at once."""
    if threading.current_thread() is not threading.main_thread():  # only that one may handle signals
        yield
        return

    def stop(*_: object) -> None:
        run.stopping = True
        restore()
        if run.is_main:
            with suppress(OSError, RuntimeError):  # what reads it may be gone; it may be writing just now
                print("\nstopping after the step or validation under way; once more stops at once", file=sys.stderr)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
