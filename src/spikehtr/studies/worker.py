"""One task from its folder to its result: training, reading validation and test lines, and what the network costs.

`python -m spikehtr.studies.worker FOLDER DEVICE` does it as a process of its own. SIGTERM, SIGINT or the end of the
standard input (its parent is gone) stop it after a save. Exit code 0: done; 2: the user can mend it;
3: stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import evaluate_lines
from spikehtr.evaluation.write_report import write_evaluation
from spikehtr.files import read_json, write_json
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.counts import dense_macs
from spikehtr.profiling.diagnosis import some
from spikehtr.profiling.firing import distribution
from spikehtr.profiling.record_activity import measure
from spikehtr.studies.study_plan import LOG, RESULT, STOPPED, Task
from spikehtr.training.checkpoint import has_checkpoint
from spikehtr.training.datasets import split_rows
from spikehtr.training.devices import make_fabric
from spikehtr.training.job import Job, run_job
from spikehtr.training.log import read_log
from spikehtr.training.loop import BEST, LogEntry
from spikehtr.weights import Loaded, load_model

_WORST = 5  # lines shown in each report: a study has many
_FIRING_LINES = 16
_PATIENCE = 60  # seconds that a worker whose parent was killed has to save and leave the folder


def carry_out_task(task: Task, device: str) -> bool:
    """Whether it came to its end; what it says goes into its log. A task that was begun goes on."""
    try:
        with FileLock(task.folder / ".lock", timeout=_PATIENCE):
            return task.finished or _carry_out(task, device)
    except Timeout:
        raise SpikeHTRError(f"{task.folder} is in use by another process") from None


def _carry_out(task: Task, device: str) -> bool:
    with (task.folder / LOG).open("a", encoding="utf-8", errors="backslashreplace") as log:

        def say(text: str) -> None:
            print(text, file=log, flush=True)

        if task.train:
            if not _train(task, device, say):
                return False
            model = load_model(task.folder / BEST)
        else:
            assert task.start is not None
            model = load_model(task.start)
            _read(task, model, "validation", device)
        _read(task, model, "test", device)
        write_json(task.folder / RESULT, _facts(task, model, device))
        say("done")
        return True


def _train(task: Task, device: str, say: Callable[[str], None]) -> bool:
    """Whether it came to its end. The report that comes with a training reads the validation lines, too."""
    job = Job(
        task.config,
        [task.source],
        task.folder,
        Path(task.start) if task.start else None,
        max_minutes=task.max_minutes,
        resume=has_checkpoint(task.folder),
        allow_unknown=task.allow_unknown,
        worst=_WORST,
    )
    job.claim_folder()
    fabric = make_fabric(device, 1, task.config.training.precision)
    fabric.launch()
    outcome = run_job(job, fabric, say, _teller(say))
    if not outcome.finished:
        say(f"stopped at step {outcome.step}")
    return outcome.finished


def _read(task: Task, model: Loaded, split: Literal["validation", "test"], device: str) -> None:
    """Read a split's lines, if there are any, and write what `evaluate` would."""
    lines = _split(task, model, split)
    if len(lines):
        about = {"model": BEST if task.train else Path(task.start or "").name, "split": split}
        batch, workers = task.config.training.batch_size, task.config.data.workers
        read = evaluate_lines(model.net.to(device), [lines], batch_size=batch, workers=workers, about=about)
        write_evaluation(task.folder / split, read, _WORST)


def _teller(say: Callable[[str], None]) -> Callable[[LogEntry], None]:
    def tell(told: LogEntry) -> None:
        if told.epoch_ended:
            cer = "" if told.cer is None else f", validation CER {told.cer:.2%}"
            loss, speed = told.values["loss"], told.lines_per_second
            say(f"epoch {told.epoch}, step {told.step}: loss {loss:.4f}{cer}, {speed:.0f} lines/s")

    return tell


def _split(task: Task, model: Loaded, split: Literal["validation", "test"]) -> Lines:
    """Its lines; where none is marked as training, those that training holds out are the validation lines."""
    config = task.config
    store = open_lines([task.source], config.model.height, config.data.max_width, straighten=config.data.straighten)
    rows = split_rows(store)[1] if split == "validation" else store.rows(split)
    return Lines(store, rows, model.charset, config.data.max_width, labelled=False)


def _facts(task: Task, model: Loaded, device: str) -> dict[str, Any]:
    """What the table tells of a row beside its error rates."""
    rows = read_log(task.folder) if task.train else []
    speeds = sorted(row["lines_per_second"] for row in rows)
    last = rows[-1] if rows else {"seconds": 0.0, "step": 0, "epoch": 0}
    read = read_json(task.folder / "validation" / "evaluation.json")
    ratio = read["keep_ratio"] if read else 1.0
    made = read_json(task.folder / "environment.json") or {}
    return {
        "variant": task.variant,
        "data": task.data,
        "seed": task.seed,
        "parameters": sum(p.numel() for p in model.net.parameters()),
        "macs": dense_macs(task.config, model.net.vocab_size, task.config.data.max_width, ratio),
        "firing_rate": _firing_rate(task, model, device),
        "minutes": last["seconds"] / 60,
        "steps": last["step"],
        "epochs": last["epoch"],
        "training_lines_per_second": speeds[len(speeds) // 2] if speeds else None,
        "device": made.get("device", device),
        "digest": model.notes["data"]["digest"] if task.train else _split(task, model, "test").store.digest(),
    }


def _firing_rate(task: Task, model: Loaded, device: str) -> float | None:
    """The mean over modules, on a few lines; None where nothing fires."""
    net = model.net
    if not isinstance(net, SpikeHTR) or net.config.neuron != "lif":
        return None
    lines = _split(task, model, "validation")
    if not len(lines):
        lines = Lines(lines.store, lines.store.rows(), model.charset, lines.max_width, labelled=False)
    return distribution(measure(net.to(device), some(lines, _FIRING_LINES), 4).firing)["mean"]


def _stop_with_parent() -> None:
    """The parent holds the other end of our standard input: once it is gone, we stop too."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main() -> int:
    folder, device = Path(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    _stop_with_parent()
    try:
        task = Task.read(folder)
        sys.argv[1:] = task.command  # the run's papers name the command that the user typed
        return 0 if carry_out_task(task, device) else STOPPED
    except SpikeHTRError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # outside of training: there is nothing to save
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
