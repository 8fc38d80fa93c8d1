"""Long work: one job after another in a thread, with progress that every browser hears of, and cancelling.

Jobs are noted in the database, so that what a kill interrupted is known afterwards. Fine-tuning runs beside the others.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from spikehtr.serve.broadcast import Broadcast
from spikehtr.serve.event_log import EventLog
from spikehtr.serve.http_errors import RequestError, as_request_error, not_found

_TOLD_EVERY = 0.25  # seconds between two words on a job's progress
_PROBLEMS = 200  # kept of a job; more are counted
_SHOWN = 50
_BESIDE = frozenset({"finetune"})  # kinds with a thread of their own
_ENDED = frozenset({"done", "failed", "cancelled", "interrupted"})
_log = logging.getLogger("spikehtr.serve")


class Cancelled(Exception):
    """The job was cancelled: raised within it by `BackgroundJob.advance` and `BackgroundJob.check`."""


class BackgroundJob:
    """What a job's function is given. `work(job)` reports by `advance`, `problem` and `result`."""

    def __init__(
        self, jobs: Jobs, number: int, kind: str, options: dict[str, Any], work: Callable[[BackgroundJob], None]
    ) -> None:
        self.jobs, self.id, self.kind, self.options, self.work = jobs, number, kind, options, work
        self.state = "queued"
        self.done, self.total, self.unit = 0, None if kind != "finetune" else 0, "pages"
        self.message = ""
        self.problems: list[dict[str, str]] = []
        self.problem_count = 0
        self.result: dict[str, Any] | None = None
        self.error: dict[str, Any] | None = None
        self.can_resume = False
        self.cancelled = threading.Event()
        self.began: float | None = None
        self.ended: float | None = None
        self._told = 0.0
        self._counted_from: float | None = None  # when the present count began: a job may have several

    def check(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled

    def advance(
        self, done: int | None = None, total: int | None = None, message: str | None = None, unit: str | None = None
    ) -> None:
        if done == 0 and total is not None:
            self._counted_from = time.monotonic()
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        self.message = self.message if message is None else message
        self.unit = unit or self.unit
        if time.monotonic() - self._told >= _TOLD_EVERY:
            self.tell()
        self.check()

    def problem(self, title: str, reason: str) -> None:
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS:
            self.problems.append({"title": title, "reason": reason})

    def tell(self) -> None:
        self._told = time.monotonic()
        self.jobs.broadcast.tell("job", self.view())

    def view(self) -> dict[str, Any]:
        seconds = 0.0 if self.began is None else (self.ended or time.monotonic()) - self.began
        left = None
        if self.state == "running" and self.total and self.done:
            spent = seconds if self._counted_from is None else time.monotonic() - self._counted_from
            left = round(spent / self.done * max(0, self.total - self.done), 1)
        return {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "unit": self.unit,
            "message": self.message,
            "seconds": round(seconds, 1),
            "seconds_left": left,
            "error": self.error,
            "problems": self.problems,
            "problem_count": self.problem_count,
            "result": self.result,
            "can_cancel": self.state in ("queued", "running"),
            "can_resume": self.can_resume and self.state in ("cancelled", "interrupted", "failed"),
            "as_of": time.time(),  # an answer may come later than an event that says more
        }


class Jobs:
    def __init__(self, log: EventLog, broadcast: Broadcast) -> None:
        self.log, self.broadcast = log, broadcast
        self.running: dict[int, BackgroundJob] = {}
        self._queue: deque[BackgroundJob] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._mark_interrupted()
        self._start(self._work_through)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name="jobs", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _mark_interrupted(self) -> None:
        """What a run before this one did not finish."""
        for row in self.log.rows("SELECT id, value FROM jobs WHERE state IN ('queued', 'running')"):
            value = json.loads(row["value"])
            value |= {"state": "interrupted", "can_cancel": False, "seconds_left": None, "as_of": time.time()}
            value["can_resume"] = value["kind"] == "finetune"
            self.log.execute(
                "UPDATE jobs SET state = 'interrupted', value = ? WHERE id = ?",
                json.dumps(value, ensure_ascii=False),
                row["id"],
            )

    def add(
        self, kind: str, options: dict[str, Any], work: Callable[[BackgroundJob], None], resumes: int | None = None
    ) -> BackgroundJob:
        """Queue a job. `resumes`: it goes on under the number of an earlier one."""
        with self._wake:
            if self._stopping:
                raise RequestError(503, "stopping", "the server is stopping", "start it again")
            if len(self._queue) >= 100:
                raise RequestError(429, "too_many", "100 jobs wait already", "wait", headers={"Retry-After": "10"})
            value = json.dumps({"kind": kind, "options": options})
            if resumes is None:
                number = self.log.execute("INSERT INTO jobs (state, value) VALUES ('queued', ?)", value)
            else:
                number = resumes
            job = BackgroundJob(self, number, kind, options, work)
            self.running[number] = job
            self._save(job)
            if kind in _BESIDE:
                self._start(lambda: self._run(job))
            else:
                self._queue.append(job)
                self._wake.notify_all()
        job.tell()
        return job

    def _work_through(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    return
                job = self._queue.popleft()
            self._run(job)

    def _run(self, job: BackgroundJob) -> None:
        try:
            job.check()
            job.state, job.began = "running", time.monotonic()
            self._save(job)
            job.tell()
            job.work(job)
            job.state = "done"
        except Cancelled:
            job.state = "interrupted" if self._stopping else "cancelled"
        except Exception as error:
            known = as_request_error(error)
            if known is None:
                _log.exception("job %d (%s)", job.id, job.kind)
                known = RequestError(500, "internal", f"{type(error).__name__}: {error}", "report it as a fault")
            job.state, job.error = "failed", known.body()["error"]
        job.ended = time.monotonic()
        try:
            self._save(job)
        except Exception:
            _log.exception("job %d cannot be noted", job.id)
        job.tell()
        with self._wake:
            self.running.pop(job.id, None)
            self._wake.notify_all()

    def _save(self, job: BackgroundJob) -> None:
        value = json.dumps(job.view() | {"options": job.options}, ensure_ascii=False)
        self.log.execute("UPDATE jobs SET state = ?, value = ? WHERE id = ?", job.state, value, job.id)

    def get(self, number: int) -> dict[str, Any]:
        job = self.running.get(number)
        if job is not None:
            return job.view()
        row = self.log.row("SELECT value FROM jobs WHERE id = ?", number)
        if row is None:
            raise not_found(f"job {number}")
        return {"id": number} | _public(json.loads(row["value"]))

    def options(self, number: int) -> dict[str, Any]:
        row = self.log.row("SELECT value FROM jobs WHERE id = ?", number)
        if row is None:
            raise not_found(f"job {number}")
        options: dict[str, Any] = json.loads(row["value"]).get("options", {})
        return options

    def list(self, limit: int = _SHOWN) -> list[dict[str, Any]]:
        rows = self.log.rows("SELECT id FROM jobs ORDER BY id DESC LIMIT ?", limit)
        return [self.get(row["id"]) for row in rows]

    def latest(self, kind: str) -> dict[str, Any] | None:
        return next((job for job in self.list() if job["kind"] == kind), None)

    def is_busy(self, kind: str) -> bool:
        return any(job.kind == kind and job.state not in _ENDED for job in list(self.running.values()))

    def cancel(self, number: int) -> dict[str, Any]:
        job = self.running.get(number)
        if job is not None:
            job.cancelled.set()
            with self._wake:
                waiting = job in self._queue
                if waiting:
                    self._queue.remove(job)
            if waiting:
                self._run(job)
        return self.get(number)

    def wait(self, number: int, seconds: float = 60.0) -> dict[str, Any]:
        """Until a job has ended; for tests and commands."""
        with self._wake:
            self._wake.wait_for(lambda: number not in self.running, seconds)
        return self.get(number)

    def stop(self) -> None:
        """End what runs, after the page or step under way."""
        with self._wake:
            self._stopping = True
            for job in [*self.running.values()]:
                job.cancelled.set()
            self._wake.notify_all()
        for thread in self._threads:
            thread.join(timeout=20)


def _public(value: dict[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key != "options"}
