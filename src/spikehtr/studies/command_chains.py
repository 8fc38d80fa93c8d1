"""Chains of `spikehtr` commands, some side by side: each command is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder
from spikehtr.studies.runner import stopping
from spikehtr.training.checkpoint import has_checkpoint

_LOOK_EVERY = 0.2  # seconds


class Step(NamedTuple):
    """A command and the file that is there once it is done."""

    done: Path
    command: list[str]
    fine: tuple[int, ...] = ()  # exit codes besides 0 that are an answer: then the file is made here


class Chain(NamedTuple):
    """Steps that follow each other."""

    name: str
    steps: list[Step]
    after: str | None = None  # the chain that must have come to its end before


@dataclass
class _Running:
    chain: Chain
    step: Step
    process: subprocess.Popen[bytes]
    log: Path


def carry_out(chains: Sequence[Chain], jobs: int, output: Path, say: Callable[[str], None]) -> bool:
    """All chains, so many at a time; whether all came to their end. What commands say is in files of the chains' names.

    A chain that fails does not hold up the others, but for those that come after it. Ctrl-C and SIGTERM stop trainings
    after a save, a second one at once. What is done is not done again, and trainings go on.
    """
    make_folder(output)
    try:
        with FileLock(output / ".lock", timeout=0):
            return _carry_out(chains, jobs, output, say)
    except Timeout:
        raise SpikeHTRError(f"{output}: another command is at work there") from None


def _carry_out(chains: Sequence[Chain], jobs: int, output: Path, say: Callable[[str], None]) -> bool:
    left = {chain.name: [step for step in chain.steps if not step.done.exists()] for chain in chains}
    waiting = [chain for chain in chains if left[chain.name]]
    running: list[_Running] = []
    failed: set[str] = set()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    with stopping() as asked:
        while waiting or running:
            waiting = [chain for chain in waiting if chain.after not in failed]
            ready = [chain for chain in waiting if chain.after is None or not left[chain.after]]
            while ready and len(running) < jobs and not asked.count:
                chain = ready.pop(0)
                waiting.remove(chain)
                running.append(_start(chain, left[chain.name][0], output, threads, say))
            asked.pass_on([one.process for one in running])
            if not running:
                break
            time.sleep(_LOOK_EVERY)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                if _ended(one, bool(asked.count), say):
                    left[one.chain.name].pop(0)
                    if left[one.chain.name]:
                        waiting.insert(0, one.chain)
                elif not asked.count:
                    failed.add(one.chain.name)
        stopped = bool(asked.count)
    if stopped or failed:
        count = sum(map(len, left.values()))
        say(f"{'stopped' if stopped else 'failed'}: {count} commands are left to do; the same command goes on")
    return not (stopped or failed)


def _start(chain: Chain, step: Step, output: Path, threads: int, say: Callable[[str], None]) -> _Running:
    command = step.command
    if command[0] == "train" and has_checkpoint(step.done.parent):
        command = ["train", "--resume", "-o", str(step.done.parent)]
    make_folder(step.done.parent)
    log = output / f"{chain.name.replace(': ', '-').replace(', ', '-').replace(' ', '-')}.txt"
    say(f"{chain.name}: {_verb(command)} -> {step.done.parent}")
    environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads))}
    with closing(log.open("ab")) as said:
        said.write(f"spikehtr {' '.join(command)}\n".encode())
        said.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "spikehtr", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
    return _Running(chain, step, process, log)


def _verb(command: Sequence[str]) -> str:
    return " ".join(["spikehtr", *command[: 2 if command[0] in ("data", "lm") else 1]])


def _ended(one: _Running, stopped: bool, say: Callable[[str], None]) -> bool:
    """Whether the step is done."""
    code = one.process.returncode
    if code == 0 or code in one.step.fine:
        if one.step.fine:
            one.step.done.touch()
        if one.step.done.exists():
            return True
        reason = f"ended without {one.step.done}"
    else:
        reason = f"exit code {code}"
    if not stopped:
        say(f"{one.chain.name}: failed: {_verb(one.step.command)}: {reason} (see {one.log})")
    return False
