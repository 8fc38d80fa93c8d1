"""Whether a training would stop at its data, found out by running its preparation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spikehtr.data.samples import ImportReport, Severity
from spikehtr.errors import SpikeHTRError
from spikehtr.text import normalise, show
from spikehtr.training.datasets import TrainingSets
from spikehtr.training.job import Job, open_data, prepare_job, split_lines
from spikehtr.weights import Loaded


def reason_to_stop(
    job: Job, model: Loaded | None, report: ImportReport, progress: Callable[[int], None] | None = None
) -> str | None:
    """Why `train` would stop at the job's data, in its own words; None if it would not. `model`: what it starts from.

    The lines are compiled for it, into the cache, where `train` finds them. `report` gets the lines with characters
    that the model would not know.
    """
    try:
        store = open_data(job, progress, _ignore)
        _list_unknown(split_lines(replace(job, allow_unknown=True), store, model), report, job.allow_unknown)
        sets = prepare_job(job, store, model, _ignore).sets
        for row in (*sets.train.rows, *sets.validation.rows):
            store.line(int(row))  # a damaged one is met on the way
    except SpikeHTRError as error:
        return str(error)
    return None


def _ignore(_: str) -> None:
    """Takes the remarks of a training that is not started."""


def _list_unknown(sets: TrainingSets, report: ImportReport, allowed: bool) -> None:
    """Validation and test lines with characters that the model could not write."""
    store, charset = sets.train.store, sets.train.charset
    rest: dict[int, Severity] = {int(row): "warning" for row in store.rows("test")}
    rest |= {int(row): "warning" if allowed else "error" for row in sets.validation.rows}
    for row, severity in sorted(rest.items()):
        if unknown := sorted(charset.unknown(normalise(store.text(row)))):
            message = f"characters that no training line has: {show(unknown)}"
            remedy = "add such lines to train, or respell; or train with --allow-unknown"
            report.add("unknown character", store.record(row)["origin"], message, remedy, severity)
