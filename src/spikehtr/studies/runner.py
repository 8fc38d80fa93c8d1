"""Carrying out the tasks of a study: one after the other in this process, or several at a time in their own."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from spikehtr.data.compiling import left_out, open_lines, tell_once
from spikehtr.errors import SpikeHTRError
from spikehtr.files import read_json, whole_file
from spikehtr.studies.study_plan import FAILED, LOG, STOPPED, Task
from spikehtr.training.records import DATA

Say = Callable[[str], None]
_LAST = 20  # lines of a log in which its last exception is looked for
_LOOK_EVERY = 0.2  # seconds between two looks at the processes


@dataclass
class Carried:
    """How it went."""

    finished: list[Task] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # title -> reason
    stopped: bool = False
    progress: Callable[[int], None] | None = None  # called with the number of runs that are over

    def tell(self) -> None:
        if self.progress:
            self.progress(len(self.finished) + len(self.failed))


def check_lines(tasks: Sequence[Task], say: Say) -> None:
    """Open what the tasks will read, before any of them begins: with no lines to judge it by, training is for nothing.

    Where no line is marked as training, `say` is told how validation lines were chosen.
    """
    from spikehtr.training.datasets import split_rows  # torch is loaded when there is work

    told: set[str] = set()
    waiting = [task for task in tasks if not task.finished]
    shapes = [(task.source, task.config.model.height, task.config.data) for task in waiting]
    wanted = {(source, height, data.max_width, data.straighten): None for source, height, data in shapes}
    for source, height, width, straighten in wanted:
        store = open_lines([source], height, width, straighten=straighten)
        _, validation, remark = split_rows(store)
        if not len(validation) and not len(store.rows("test")):
            why = f" ({remark})" if remark else ""
            raise SpikeHTRError(f"{source} has no validation or test lines to judge a run by{why}: mark some as such")
        if remark and source not in told:
            say(f"{source}: {remark}")
            told.add(source)


def carry_out_tasks(
    tasks: Sequence[Task],
    devices: Sequence[str],
    jobs: int,
    say: Say,
    progress: Callable[[int], None] | None = None,
) -> Carried:
    """Bring every task to its end; one that fails does not hold up the others. Finished ones are passed over."""
    carried = Carried([task for task in tasks if task.finished], progress=progress)
    carried.tell()
    open_tasks = [task for task in tasks if not task.finished]
    for task in tasks:
        task.write()
    if carried.finished:
        say(f"{len(carried.finished)} of {len(tasks)} runs are there already")
    if jobs == 1:
        _in_turn(open_tasks, devices[0], carried, len(tasks), say)
    else:
        _side_by_side(open_tasks, devices, jobs, carried, len(tasks), say)
    return carried


def _in_turn(tasks: Sequence[Task], device: str, carried: Carried, total: int, say: Say) -> None:
    from spikehtr.studies.worker import carry_out_task  # torch is loaded when there is work

    with _terminate_as_interrupt():
        for task in tasks:
            say(f"{task.title}: on {device}")
            _forget(task)
            try:
                done = carry_out_task(task, device)
            except KeyboardInterrupt:
                done = False
            except Exception as error:
                with (task.folder / LOG).open("a", encoding="utf-8", errors="backslashreplace") as log:
                    log.write(str(error) if isinstance(error, SpikeHTRError) else traceback.format_exc())
                _note(task, f"{error}" if isinstance(error, SpikeHTRError) else repr(error), carried, say)
                continue
            finally:
                _free(device)
            if not done:
                carried.stopped = True
                return
            _finished(task, carried, total, say)


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM then stops a training as Ctrl-C does: after a save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _free(device: str) -> None:
    """Give back a run's memory before the next: a recorded step and its run hold on to each other."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


def _side_by_side(
    tasks: Sequence[Task], devices: Sequence[str], jobs: int, carried: Carried, total: int, say: Say
) -> None:
    waiting = list(tasks)
    running: dict[int, tuple[Task, subprocess.Popen[bytes]]] = {}  # by slot
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with stopping() as asked:
        while waiting or running:
            for slot in range(jobs):
                if asked.count or slot in running or not waiting:
                    continue
                task, device = waiting.pop(0), devices[slot % len(devices)]
                say(f"{task.title}: on {device}")
                running[slot] = task, _start(task, device, threads)
            asked.pass_on([process for _, process in running.values()])
            if asked.count and not running:
                break
            time.sleep(_LOOK_EVERY)
            for slot, (task, process) in list(running.items()):
                if process.poll() is not None:
                    del running[slot]
                    _ended(task, process, carried, total, say, bool(asked.count))
    carried.stopped = carried.stopped or bool(asked.count)


def _start(task: Task, device: str, threads: int) -> subprocess.Popen[bytes]:
    _forget(task)
    environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    with (task.folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "spikehtr.studies.worker", str(task.folder), device],
            stdin=subprocess.PIPE,  # never written to: its end tells the worker that we are gone
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C is ours to pass on
        )


def _ended(
    task: Task, process: subprocess.Popen[bytes], carried: Carried, total: int, say: Say, stopping: bool
) -> None:
    if process.stdin:
        process.stdin.close()
    if process.returncode == 0 and task.finished:
        _finished(task, carried, total, say)
    elif stopping or process.returncode == STOPPED:
        carried.stopped = True
    else:
        _note(task, _last_line(task) or f"exit code {process.returncode}", carried, say)


class _Asked:
    """How often the user has asked to stop: once, after a save; twice, at once."""

    def __init__(self) -> None:
        self.count = 0
        self._told: dict[int, int] = {}  # process -> the count it was told

    def pass_on(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if self.count > self._told.get(process.pid, 0):
                self._told[process.pid] = self.count
                process.send_signal(signal.SIGTERM if self.count == 1 else signal.SIGKILL)


@contextmanager
def stopping() -> Iterator[_Asked]:
    asked = _Asked()

    def note(*_: object) -> None:
        asked.count += 1

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {sign: signal.signal(sign, note) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _finished(task: Task, carried: Carried, total: int, say: Say) -> None:
    carried.finished.append(task)
    carried.tell()
    read = read_json(task.folder / "validation" / "evaluation.json")
    rate = read["rates"]["CER, plain"]["rate"] if read else None
    score = "done" if rate is None else f"validation CER {rate:.2%}"
    say(f"[{len(carried.finished)}/{total}] {task.title}: {score}")
    data = read_json(task.folder / DATA)  # the run itself told only its log
    if data and (number := data["left_out_by_reading"]):
        tell_once(left_out(number, [task.source]))


def _forget(task: Task) -> None:
    (task.folder / FAILED).unlink(missing_ok=True)


def _note(task: Task, reason: str, carried: Carried, say: Say) -> None:
    carried.failed[task.title] = reason
    carried.tell()
    with whole_file(task.folder / FAILED) as temporary:
        temporary.write_text(reason + "\n", encoding="utf-8", errors="backslashreplace")
    say(f"{task.title}: failed: {reason} (see {task.folder / LOG})")


def _last_line(task: Task) -> str:
    """Of the log, or of its last exception, whose message may have several."""
    lines = (task.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    named = [line for line in lines[-_LAST:] if re.match(r"[A-Za-z_][\w.]*(Error|Exception): ", line)]
    return named[-1] if named else lines[-1] if lines else ""
