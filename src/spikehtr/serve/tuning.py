"""Learning from corrections: which lines are learned from and which are held out, and the run in its own process."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spikehtr.errors import SpikeHTRError
from spikehtr.serve.event_steps import timestamp
from spikehtr.serve.exporting import lines_of, write_parquet
from spikehtr.serve.http_errors import RequestError, invalid, not_found
from spikehtr.serve.jobs import BackgroundJob, Cancelled
from spikehtr.serve.models import check_new_name

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_LEAST_LINES = 10  # corrected, over two pages at least
_SHARE = 5  # of so many pages one is held out
_MINUTES = 10.0
_PATIENCE = 300.0  # seconds in which a run may end by itself
_ROLES = "tuning.roles"  # the setting that remembers for what a page was used
PLAN, DATA, RUN = "plan.json", "lines.parquet", "run"


class Choice(NamedTuple):
    """Pages with corrected lines: to learn from, and held out to judge by; and how many lines each has."""

    training: dict[int, int]
    heldout: dict[int, int]

    @property
    def reason(self) -> str | None:
        """Why that is not enough."""
        lines = sum(self.training.values()) + sum(self.heldout.values())
        if lines < _LEAST_LINES:
            return f"{lines} corrected lines: correct {_LEAST_LINES} at least"
        if not self.training or not self.heldout:
            return "corrected lines on one page only: correct some of another page, to judge by"
        return None


def choose(bench: Workbench) -> Choice:
    """A page keeps the role it was once used in: what was learned from can judge nothing."""
    rows = bench.project.log.rows(
        "SELECT e.page, p.image, count(*) AS lines FROM entities e JOIN pages p ON p.id = e.page "
        "WHERE e.part = 'lines' AND e.by = 'person' AND e.text != '' AND NOT p.removed GROUP BY e.page ORDER BY e.page"
    )
    lines = {row["page"]: row["lines"] for row in rows}
    roles: dict[str, str] = _roles(bench)
    known = {page: roles[str(page)] for page in lines if str(page) in roles}
    drawn = {row["page"]: _drawn(row["image"]) for row in rows if row["page"] not in known}
    heldout = {page for page, role in known.items() if role == "heldout"}
    if drawn and not heldout:  # the smallest would judge with too few lines, the largest leave too few to learn from
        ordered = sorted(drawn, key=lambda page: (lines[page], drawn[page]))
        heldout.add(ordered[len(ordered) // 2 if len(lines) > len(drawn) or len(ordered) > 2 else 0])
    further = sorted(drawn.keys() - heldout, key=lambda page: drawn[page])
    heldout |= set(further[: max(0, round(len(lines) / _SHARE) - len(heldout))])
    return Choice(
        {page: count for page, count in lines.items() if page not in heldout},
        {page: count for page, count in lines.items() if page in heldout},
    )


def _drawn(image: str) -> int:
    return int.from_bytes(hashlib.blake2b(image.encode(errors="replace"), digest_size=4).digest())


def _roles(bench: Workbench) -> dict[str, str]:
    found = bench.project.log.row("SELECT value FROM settings WHERE key = ?", _ROLES)
    roles: dict[str, str] = json.loads(found["value"]) if found else {}
    return roles


def _remember(bench: Workbench, choice: Choice) -> None:
    roles = _roles(bench)
    roles |= {str(page): "train" for page in choice.training} | {str(page): "heldout" for page in choice.heldout}
    bench.project.log.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", _ROLES, json.dumps(roles))


def overview(bench: Workbench) -> dict[str, Any]:
    choice = choose(bench)
    training, heldout = sum(choice.training.values()), sum(choice.heldout.values())
    return {
        "lines": training + heldout,
        "pages": len(choice.training) + len(choice.heldout),
        "training_lines": training,
        "heldout_lines": heldout,
        "heldout_pages": sorted(choice.heldout),
        "enough": choice.reason is None,
        "reason": choice.reason,
        "job": bench.jobs.latest("finetune"),
    }


def add_job(bench: Workbench, body: dict[str, Any]) -> BackgroundJob:
    if bench.jobs.is_busy("finetune"):
        raise RequestError(409, "busy", "a model is being fine-tuned already", "wait, or cancel that")
    choice = choose(bench)
    if choice.reason is not None:
        raise invalid("lines", choice.reason, "correct more lines first")
    start = body.get("model") or bench.current_model
    if not isinstance(start, str):
        raise invalid("model", "must be the name of a model")
    bench.models.file(start)
    options = {
        "model": start,
        "name": check_new_name(bench.models, body.get("name")),
        "minutes": _amount(body, "minutes", 0.05, 24 * 60),
        "steps": _amount(body, "steps", 1, 1_000_000),
    }
    if options["minutes"] is not None and options["steps"] is not None:
        raise invalid("steps", "minutes and steps both end the run", "give one of them")
    if options["minutes"] is None and options["steps"] is None:
        options["minutes"] = _MINUTES
    return bench.jobs.add("finetune", options, lambda job: tune(bench, job, choice))


def _amount(body: dict[str, Any], name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise invalid(name, f"must be a number from {least:g} to {most:g}")
    return value


def resume_job(bench: Workbench, number: int) -> BackgroundJob:
    """Go on with a fine-tuning that was cancelled or interrupted."""
    before = bench.jobs.get(number)
    if before["kind"] != "finetune" or not before["can_resume"]:
        raise RequestError(409, "conflict", f"job {number} cannot be gone on with", "begin a new one")
    if bench.jobs.is_busy("finetune"):
        raise RequestError(409, "busy", "a model is being fine-tuned already", "wait, or cancel that")
    if not (_folder(bench, number) / PLAN).is_file():
        raise not_found(f"run of job {number}")
    options = bench.jobs.options(number)
    return bench.jobs.add("finetune", options, lambda job: tune(bench, job, None), resumes=number)


def _folder(bench: Workbench, number: int) -> Path:
    return bench.project.private / "tuning" / str(number)


def tune(bench: Workbench, job: BackgroundJob, choice: Choice | None) -> None:
    """`choice`: what to learn from; None to go on with what the job's folder has."""
    folder = _folder(bench, job.id)
    job.can_resume = True
    job.result = {"curve": [], "loss": []}
    job.advance(message="collecting the corrected lines", unit="steps")
    if choice is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _remember(bench, choice)
        count = write_parquet(_rows(bench, choice), folder / DATA)
        plan = {**job.options, "start": str(bench.models.file(job.options["model"])), "device": bench.models.device}
        (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        job.advance(message=f"{count} lines")
    found = _run(job, folder)
    if found.get("stopped"):
        raise Cancelled
    name = job.options["name"]
    shutil.copyfile(folder / RUN / "best.safetensors", _unfinished := bench.models.folder / f".{name}.tmp")
    from spikehtr.weights import update_notes

    about = {"from": job.options["model"], "created": timestamp(time.time()), "cer": found["comparison"]["new"]["cer"]}
    update_notes(_unfinished, {"workbench": about})
    _unfinished.replace(bench.models.folder / f"{name}.safetensors")
    job.result = {**job.result, "model": name, "comparison": found["comparison"], "examples": found["examples"]}
    job.can_resume = False
    shutil.rmtree(folder, ignore_errors=True)


def _rows(bench: Workbench, choice: Choice) -> Iterator[dict[str, Any]]:
    for split, pages in (("train", choice.training), ("validation", choice.heldout)):
        for page in pages:
            for row in lines_of(bench, [page], corrected=True):
                yield {**row, "split": split, "id": f"{page}/{row['id']}"}


def _run(job: BackgroundJob, folder: Path) -> dict[str, Any]:
    """The run in a process of its own, which stops when this one ends; what it found at last."""
    command = [sys.executable, "-m", "spikehtr.serve.tuning_worker", str(folder)]
    pipe = subprocess.PIPE
    over, errors, last = threading.Event(), deque[str](maxlen=20), dict[str, Any]()
    # In a session of its own: a Ctrl-C for the server must not reach it as well, since a second signal ends it at once.
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, encoding="utf-8", start_new_session=True
    ) as process:
        threads = [
            threading.Thread(target=_stop_when_cancelled, args=(job, process, over), daemon=True),
            threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    last = json.loads(line)
                    _note(job, last)
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            over.set()
            for thread in threads:
                thread.join(timeout=5)
    if "error" in last:
        raise SpikeHTRError(last["error"])
    if process.returncode and not last.get("stopped"):
        if job.cancelled.is_set():
            raise Cancelled
        told = [line.strip() for line in errors if line.strip()][-1:] or [f"it ended with {process.returncode}"]
        raise SpikeHTRError(f"the training failed: {told[0]}")
    return last


def _stop_when_cancelled(job: BackgroundJob, process: subprocess.Popen[str], over: threading.Event) -> None:
    while not over.wait(0.2):
        if job.cancelled.is_set():
            if process.stdin is not None:
                process.stdin.close()  # it ends with the step under way, saves, and can be gone on with
            if not over.wait(_PATIENCE):
                process.kill()
            return


def _note(job: BackgroundJob, told: dict[str, Any]) -> None:
    """A word from the run."""
    assert job.result is not None
    if "loss" in told:
        job.result["loss"] = [*job.result["loss"], [told["step"], round(told["loss"], 4)]][-2000:]
    if told.get("cer") is not None:
        job.result["curve"] = [*job.result["curve"], {"step": told["step"], "cer": round(told["cer"], 5)}]
    if "progress" in told:
        job.done = max(job.done, told["step"])
        job.total = round(told["step"] / told["progress"]) if told["progress"] > 0.01 else job.total
    job.message = told.get("message", job.message)
    if time.monotonic() - job._told >= 0.25:
        job.tell()
