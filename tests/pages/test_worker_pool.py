"""Processes that work on pages; tasks of the standard library, which load fast."""

from __future__ import annotations

import errno
import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spikehtr.pages.shared_arrays import Arrays, SharedArrays
from spikehtr.pages.worker_pool import WorkerDied, WorkerPool, ask


def test_tasks_are_done_and_their_errors_come_back() -> None:
    with WorkerPool(2) as pool:
        futures = [pool.submit(math.factorial, number) for number in range(20)]
        wrong = pool.submit(math.sqrt, -1.0)
        assert [future.result(60) for future in futures] == [math.factorial(number) for number in range(20)]
        with pytest.raises(ValueError, match=r"math domain|nonnegative"):
            wrong.result(60)


class Unreadable:
    """What can be sent and not be received."""

    def __reduce__(self) -> tuple[object, ...]:
        return math.sqrt, (-1.0,)


def test_results_that_cannot_be_sent_or_received_cost_their_task_alone() -> None:
    with WorkerPool(1) as pool:
        never_sent, never_received = pool.submit(threading.Lock), pool.submit(Unreadable)
        given_up = pool.submit(time.sleep, 0.2)
        after = pool.submit(math.factorial, 5)
        given_up.cancel()
        for future in (never_sent, never_received):
            with pytest.raises(RuntimeError, match="its result cannot go from one process to another"):
                future.result(60)
        assert after.result(60) == 120


def test_a_process_that_dies_costs_the_task_it_had_and_no_other() -> None:
    with WorkerPool(2) as pool:
        before = [pool.submit(math.factorial, number) for number in range(6)]
        killed = pool.submit(signal.raise_signal, signal.SIGKILL)
        gone = pool.submit(os._exit, 3)
        after = [pool.submit(math.factorial, number) for number in range(6)]
        assert [future.result(60) for future in before + after] == [math.factorial(number) for number in range(6)] * 2
        with pytest.raises(WorkerDied, match="SIGKILL, perhaps for want of memory"):
            killed.result(60)
        with pytest.raises(WorkerDied, match="exit code 3"):
            gone.result(60)


def test_a_task_that_never_ends_is_stopped_and_what_was_not_begun_is_cancelled() -> None:
    with WorkerPool(1, longest=0.5) as pool:
        stuck = pool.submit(time.sleep, 1000)
        with pytest.raises(WorkerDied, match="took more than"):
            stuck.result(60)
        assert pool.submit(math.sqrt, 4.0).result(60) == 2.0
        pool.submit(time.sleep, 0.2)
        left = pool.submit(time.sleep, 1000)
    with pytest.raises(CancelledError):
        left.result(1)


def test_urgent_tasks_come_first(tmp_path: Path) -> None:
    with WorkerPool(1) as pool:
        pool.submit(time.sleep, 0.3)
        late = [pool.submit(os.mkdir, tmp_path / f"late{number}") for number in range(3)]
        first = pool.submit(os.listdir, tmp_path, first=True)
        assert first.result(60) == []
        assert [future.result(60) for future in late] == [None] * 3


def test_workers_end_when_the_caller_is_gone() -> None:
    with WorkerPool(1) as pool:
        number = pool.submit(os.getpid).result(60)
        os.kill(number, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def doubled(asked: Sequence[Arrays]) -> list[Arrays]:
    if any(array.size and array.flat[0] == 13 for arrays in asked for array in arrays):
        raise ValueError("thirteen")
    time.sleep(0.05)  # so that some are answered together
    return [[2 * array for array in arrays] for arrays in asked]


def test_tasks_ask_their_caller_with_arrays_of_any_size() -> None:
    questions: list[Arrays] = [
        [np.full((number, 7 * number), number % 90, np.uint8), np.arange(3.0 * number), np.zeros((0, 4), np.float32)]
        for number in (1, 300, 2, 900, 5, 40)
    ]
    with WorkerPool(2, answer=doubled) as pool:
        futures = [pool.submit(ask, question) for question in questions]
        for question, future in zip(questions, futures, strict=True):
            for array, answer in zip(question, future.result(60), strict=True):
                assert answer.dtype == array.dtype
                np.testing.assert_array_equal(answer, 2 * array)


def test_of_those_who_ask_together_only_who_fails_alone_is_refused() -> None:
    together = threading.Semaphore(0)

    def once_all_ask(asked: Sequence[Arrays]) -> list[Arrays]:
        if together.acquire(timeout=0.5):  # the first: the others come to wait meanwhile
            time.sleep(1.0)
        return doubled(asked)

    with WorkerPool(3, answer=once_all_ask) as pool:
        for ready in [pool.submit(time.sleep, 0.5) for _ in range(3)]:
            ready.result(60)
        together.release()
        futures = [pool.submit(ask, [np.full(2, value)]) for value in (1, 13, 4)]
        with pytest.raises(ValueError, match="thirteen"):
            futures[1].result(60)
        assert [futures[one].result(60)[0].tolist() for one in (0, 2)] == [[2, 2], [8, 8]]


@pytest.mark.parametrize("fault", ["no room", "too few answers", "no arrays"])
def test_whoever_cannot_be_answered_is_told_at_once(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: Sequence[Arrays]) -> Any:
        if asked[0][0][0] == 1:
            return doubled(asked)
        if fault == "no arrays":
            return [["text"] for _ in asked]
        return [] if fault == "too few answers" else doubled(asked)

    put = SharedArrays.put

    def full(self: SharedArrays, arrays: Arrays) -> Any:
        if fault == "no room" and arrays[0][0] != 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(self, arrays)

    monkeypatch.setattr(SharedArrays, "put", full)  # in this process, which answers
    with WorkerPool(1, answer=answer) as pool:
        with pytest.raises((OSError, RuntimeError, AttributeError), match=r"space|answers|attribute"):
            pool.submit(ask, [np.full(2, 5)]).result(60)
        assert pool.submit(ask, [np.ones(2)]).result(60)[0].tolist() == [2.0, 2.0]


def test_a_question_that_fails_costs_those_who_ask_and_no_pool() -> None:
    with WorkerPool(1, answer=doubled) as pool:
        wrong, after = pool.submit(ask, [np.full(3, 13)]), pool.submit(ask, [np.ones(3)])
        with pytest.raises(ValueError, match="thirteen"):
            wrong.result(60)
        assert after.result(60)[0].tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(WorkerDied):
            pool.submit(os._exit, 3).result(60)
        assert pool.submit(ask, [np.ones(1)]).result(60)[0].tolist() == [2.0]
    with WorkerPool(1) as pool, pytest.raises(RuntimeError, match="nobody answers"):
        pool.submit(ask, [np.ones(1)]).result(60)


def test_a_worker_that_is_killed_while_it_waits_costs_no_other() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(asked: Sequence[Arrays]) -> list[Arrays]:
        begun.set()
        go_on.wait(60)
        return doubled(asked)

    with WorkerPool(2, answer=slow) as pool:
        where = pool.submit(os.getpid).result(60)
        one, other = pool.submit(ask, [np.ones(2)]), pool.submit(ask, [np.ones(3)])
        assert begun.wait(60)
        os.kill(where, signal.SIGKILL)
        time.sleep(0.2)
        go_on.set()
        results = []
        for future in (one, other):
            try:
                results.append(future.result(60)[0].sum())
            except WorkerDied:
                results.append("died")
        assert sorted(map(str, results)) in (["4.0", "died"], ["6.0", "died"])
