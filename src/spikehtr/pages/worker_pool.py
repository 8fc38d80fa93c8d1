"""Processes that work on pages: one that dies costs the page it had in hand, and no other.

Each worker is a Python of its own at the other end of a pair of sockets, so the caller needs no `__main__` guard, what
a worker loads is only what its tasks import, and it ends when the caller is gone, however that ended. What is pickled
goes between the two over that pair alone, never to or from a file.

A task may ask the caller for what only the caller has, such as a network on a GPU: arrays go to and fro in shared
memory, and all who wait are answered together.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.shared_arrays import Arrays, Place, SharedArrays

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_START = "from spikehtr.pages.worker_pool import serve; import sys; serve(*map(int, sys.argv[1:]))"
_DONE, _FAILED, _ASKS = "done", "failed", "asks"  # what a worker says

Answer = Callable[[Sequence[Arrays]], Sequence[Arrays]]  # to each that asks; in a thread of its own


def available_cores() -> int:
    """How many cores this process may use; Slurm and containers give fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerDied(SpikeHTRError):
    """The process that worked on a task is gone: killed, out of memory, or crashed in a library."""


class _Task(NamedTuple):
    future: Future[Any]
    message: bytes


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    connection: Connection
    memory: SharedArrays | None = None
    task: _Task | None = None
    is_ready: bool = False  # it has loaded what it needs, and said so
    since: float = field(default_factory=time.monotonic)
    talking: threading.Lock = field(default_factory=threading.Lock)  # held to answer it, and to end it


class WorkerPool:
    """`submit` as executors have it. Tasks begin in the order they came; those marked `first` before others."""

    def __init__(self, workers: int, longest: float = 900.0, answer: Answer | None = None) -> None:
        """`longest`: seconds for a task, after which its process is killed; `answer`: to what tasks `ask`."""
        self._longest, self._answers = longest, answer
        self._asked: queue.SimpleQueue[tuple[_Worker, list[Place]] | None] = queue.SimpleQueue()
        self._todo: deque[_Task] = deque()
        self._lock = threading.Lock()
        self._closing = False
        self._called, self._call = socket.socketpair()
        self._workers = [self._start() for _ in range(workers)]
        self._threads = [threading.Thread(target=self._dispatch, name="worker pool", daemon=True)]
        if answer:
            self._threads.append(threading.Thread(target=self._answer, name="answers to workers", daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any, first: bool = False) -> Future[Any]:
        """`function` is one of a module, and all it is given and returns can be pickled."""
        future: Future[Any] = Future()
        task = _Task(future, pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL))
        with self._lock:
            (self._todo.appendleft if first else self._todo.append)(task)
        self._wake()
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing = True
        self._asked.put(None)
        self._wake()
        for thread in self._threads:
            thread.join()
        for worker in self._workers:
            _stop(worker, kill=worker.task is not None)
        self._call.close()
        self._called.close()

    def _start(self) -> _Worker:
        return _start(None if self._answers is None else SharedArrays())

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # closed meanwhile
            self._call.send(b"x")

    def _dispatch(self) -> None:
        """In a thread: hand out tasks, take in results, replace processes that died."""
        while not self._closing:
            for number, worker in enumerate(self._workers):
                if worker.is_ready and worker.task is None and not self._give(worker):
                    self._workers[number] = self._start()
            ready = wait([self._called, *(worker.connection for worker in self._workers)], timeout=1.0)
            if self._called in ready:
                self._called.recv(1 << 16)
            for number, worker in enumerate(self._workers):
                is_alive = self._take(worker) if worker.connection in ready else self._is_in_time(worker)
                if not is_alive:
                    self._workers[number] = self._start()
        for task in [*self._todo, *(worker.task for worker in self._workers if worker.task)]:
            task.future.cancel()

    def _give(self, worker: _Worker) -> bool:
        """The next task, if there is one, to an idle worker; False where it is gone."""
        with self._lock:
            while self._todo and self._todo[0].future.cancelled():
                self._todo.popleft()
            if not self._todo:
                return True
            task = self._todo.popleft()
        try:
            worker.connection.send_bytes(task.message)
        except OSError:  # it died while it had nothing to do: the task is another's
            with self._lock:
                self._todo.appendleft(task)
            _stop(worker)
            return False
        worker.task, worker.since = task, time.monotonic()
        return True

    def _take(self, worker: _Worker) -> bool:
        try:
            message = worker.connection.recv_bytes()
        except (EOFError, OSError):
            _stop(worker)
            _settle(worker.task, False, WorkerDied(_last_words(worker.process.returncode)))
            return False
        try:
            said, value = pickle.loads(message)
        except Exception as error:  # what a task returned: it must not end this thread
            said, value = _FAILED, _unreadable("its result", error)
        if said == _ASKS:
            self._asked.put((worker, value))
            return True
        task, worker.task, worker.is_ready = worker.task, None, True
        _settle(task, said == _DONE, value)
        return True

    def _answer(self) -> None:
        """In a thread: to all that wait, together."""
        while (asked := self._asked.get()) is not None:
            waiting = [asked]
            with contextlib.suppress(queue.Empty):
                while (asked := self._asked.get_nowait()) is not None:
                    waiting.append(asked)
                self._asked.put(None)
            workers, questions = [], []
            for worker, places in waiting:
                try:
                    with worker.talking:
                        questions.append(_memory(worker).get(places))
                except Exception as error:  # it is gone, or there is no room
                    _tell(worker, _FAILED, error)
                else:
                    workers.append(worker)
            for worker, (said, value) in zip(workers, self._answered(questions), strict=True):
                _tell(worker, said, value)

    def _answered(self, questions: Sequence[Arrays]) -> list[tuple[str, Any]]:
        """What each is told: where all together fail, each is asked alone, and only who fails again is told so."""
        assert self._answers
        try:
            answers = list(self._answers(questions))
            if len(answers) != len(questions):
                raise RuntimeError(f"{len(answers)} answers to {len(questions)} questions")
        except Exception as error:
            if len(questions) == 1:
                return [(_FAILED, error)]
            return [said for question in questions for said in self._answered([question])]
        return [(_DONE, answer) for answer in answers]

    def _is_in_time(self, worker: _Worker) -> bool:
        if worker.task is None or time.monotonic() - worker.since < self._longest:
            return True
        _stop(worker, kill=True)
        _settle(worker.task, False, WorkerDied(f"took more than {self._longest:.0f} s, and was stopped"))
        return False


def _settle(task: _Task | None, good: bool, value: Any) -> None:
    if task is not None:
        with contextlib.suppress(InvalidStateError):  # cancelled meanwhile
            (task.future.set_result if good else task.future.set_exception)(value)


def _unreadable(what: str, error: Exception) -> Exception:
    return RuntimeError(f"{what} cannot go from one process to another ({type(error).__name__}: {error})")


def _start(memory: SharedArrays | None) -> _Worker:
    ours, theirs = socket.socketpair()
    paths = os.pathsep.join(path for path in sys.path if path)
    with theirs:
        handles = [theirs.fileno(), *([] if memory is None else [memory.handle])]
        process = subprocess.Popen(
            [sys.executable, "-c", _START, *map(str, handles)],
            pass_fds=handles,
            env=os.environ | _ONE_THREAD | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
        )
    return _Worker(process, Connection(ours.detach()), memory)


def _memory(worker: _Worker) -> SharedArrays:
    assert worker.memory
    return worker.memory


def _tell(worker: _Worker, said: str, value: Any) -> None:
    """An answer, to a worker that may be gone."""
    with worker.talking:
        try:
            value = _memory(worker).put(value) if said == _DONE else _plain(value)
        except Exception as error:  # no room, or no arrays
            said, value = _FAILED, _plain(error)
        with contextlib.suppress(OSError):
            worker.connection.send_bytes(pickle.dumps((said, value)))


def _stop(worker: _Worker, kill: bool = False) -> None:
    """Let it end by itself, as one whose connection is closed does, or kill it: it keeps nothing worth waiting for."""
    with worker.talking:
        worker.connection.close()
        if worker.memory is not None:
            worker.memory.close()
    if kill:
        worker.process.kill()
    try:
        worker.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        worker.process.kill()
        worker.process.wait()


def _last_words(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
            return f"the process that worked on it was ended by {name}{hint}"
    return f"the process that worked on it ended (exit code {code})"


_caller: tuple[Connection, SharedArrays] | None = None  # in a worker whose caller answers


def ask(arrays: Arrays) -> list[np.ndarray]:
    """What the caller of a pool answers, whose `answer` it is; for tasks."""
    if _caller is None:
        raise RuntimeError("nobody answers: only tasks of a WorkerPool with an `answer` may ask")
    connection, memory = _caller
    connection.send_bytes(pickle.dumps((_ASKS, memory.put(arrays))))
    said, value = pickle.loads(connection.recv_bytes())
    if said == _FAILED:
        raise value
    return [array.copy() for array in memory.get(value)]


def serve(handle: int, shared: int | None = None) -> None:
    """A worker's life: a task in, a result out, until the other end is closed."""
    global _caller
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's business
    import cv2

    cv2.setNumThreads(1)  # there is a process for each core
    connection = Connection(handle)
    _caller = None if shared is None else (connection, SharedArrays(shared))
    connection.send_bytes(pickle.dumps((_DONE, None)))
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            function, arguments = pickle.loads(message)
            answer = (_DONE, function(*arguments))
        except Exception as error:
            answer = (_FAILED, _plain(error))
        try:
            packed = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            packed = pickle.dumps((_FAILED, _unreadable("its result", error)), pickle.HIGHEST_PROTOCOL)
        try:
            connection.send_bytes(packed)
        except OSError:
            return


def _plain(error: Exception) -> Exception:
    """The error, or one of the same words where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
