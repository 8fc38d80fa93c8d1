"""The two paths really take turns, and a report says what was measured."""

import pytest
import torch
from steps_help import CPU, case

from conftest import ask_for
from spikehtr import ops
from spikehtr.errors import SpikeHTRError
from spikehtr.profiling import step_timing as timing
from spikehtr.profiling.benchmark_steps import FAST, REFERENCE, Step
from spikehtr.profiling.roofline import Ceilings
from spikehtr.profiling.step_timing import benchmark, run_case

CEILINGS = Ceilings(1e9, 1e9)


class Recorder(Step):
    """A step that only notes which path it was asked on; the reference may be too large."""

    seen: list[str]
    fits = True

    def __call__(self):
        path = REFERENCE if ops.reference_asked() else FAST
        self.seen.append(path)
        if path == REFERENCE and not self.fits:
            raise torch.OutOfMemoryError("too large")


@pytest.fixture
def recorder(monkeypatch):
    ask_for(monkeypatch, "auto")
    monkeypatch.setattr(timing, "Step", Recorder)
    monkeypatch.setattr(timing, "has_fast_path", lambda device: True)
    monkeypatch.setattr(Recorder, "seen", [], raising=False)
    return Recorder


def test_paths_take_turns(recorder):
    row = run_case(case(), CPU, CEILINGS, rounds=3)
    assert recorder.seen == 3 * [REFERENCE] + 3 * [FAST] + 3 * [REFERENCE, REFERENCE, FAST, FAST]
    assert all(len(timing.rounds) == 3 for timing in row.paths.values())
    assert row.share(FAST) == pytest.approx(row.roofline_seconds / row.paths[FAST].seconds)


def test_a_reference_that_does_not_fit_is_said_and_the_rest_goes_on(recorder, monkeypatch):
    monkeypatch.setattr(recorder, "fits", False)
    row = run_case(case(train=False), CPU, CEILINGS, rounds=2)
    assert row.paths[REFERENCE].seconds is None
    assert row.lines_per_second(REFERENCE) is None
    assert row.lines_per_second(FAST) > 0
    assert row.to_dict()["paths"]["reference"]["share"] is None


def test_a_first_step_that_does_not_fit_is_a_plain_message(recorder, monkeypatch):
    def too_large(self):
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(recorder, "__call__", too_large)
    with pytest.raises(SpikeHTRError, match="micro: 2 lines of 48 px do not fit"):
        benchmark([case()], CPU)


@pytest.mark.slow
def test_report_of_a_real_run(monkeypatch):
    ask_for(monkeypatch, "reference")
    told = []
    report = benchmark(
        [case(), case(train=False)], CPU, rounds=1, profile=True, tell=lambda r: told.append(len(r.rows))
    )
    assert told == [1, 2]
    assert not report.has_fast_path  # none for a CPU, unless asked for
    assert 0 < report.first_step_seconds < 3600
    train, read = report.to_dict()["rows"]
    assert train["flops"] > 2.5 * read["flops"]
    assert len(train["kernels"]) > 10
    shares = [kernel["share"] for kernel in train["kernels"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
