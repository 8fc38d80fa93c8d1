"""The steps that are timed do the whole work, and the two paths really take turns."""

import os

import pytest
import torch

from conftest import micro
from spikehtr.profiling import steps
from spikehtr.profiling.roofline import Ceilings
from spikehtr.profiling.steps import FAST, REFERENCE, SWITCH, Case, Step, benchmark, chosen, ink_lines, run_case

CPU = torch.device("cpu")
CEILINGS = Ceilings(1e9, 1e9)


def case(train=True, **overrides):
    return Case("micro", micro(timesteps=1, **overrides), train, batch_size=2, width=48)


def test_lines_look_written():
    lines = ink_lines(3, 32, 96, CPU)
    assert lines.shape == (3, 1, 32, 96)
    assert lines.min() >= 0
    assert lines.max() <= 1
    dark = (lines < 0.5).float().mean((1, 2, 3))
    assert (dark > 0.02).all()
    assert (dark < 0.5).all()
    assert not torch.equal(lines[0], lines[1])
    assert torch.equal(lines, ink_lines(3, 32, 96, CPU))


def test_a_training_step_moves_weights_moments_and_average():
    step = Step(case(), CPU)
    before = {name: p.detach().clone() for name, p in step.net.named_parameters()}
    step()
    moved = [name for name, p in step.net.named_parameters() if not torch.equal(p, before[name])]
    assert {name.split(".")[0] for name in moved} >= {"encoder", "positions", "mixer", "head"}
    assert len(step.optimizer.state) > 0
    assert any(not torch.equal(step.average.values[name], before[name]) for name in moved)
    images, widths, need = step.inputs()
    assert images.shape[-1] > 48  # augmented: room for a stretched line
    assert (widths >= 4 * need).all()


def test_an_inference_step_changes_nothing():
    step = Step(case(train=False), CPU)
    before = torch.random.get_rng_state()
    step()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(p.grad is None for p in step.net.parameters())


@pytest.mark.parametrize("user", [None, "reference", "triton"])
def test_paths_are_chosen_and_the_environment_is_put_back(user, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    if user:
        monkeypatch.setenv(SWITCH, user)
    with chosen(REFERENCE):
        assert os.environ[SWITCH] == "reference"
    with chosen(FAST):
        assert os.environ.get(SWITCH) == ("triton" if user == "triton" else None)
    assert os.environ.get(SWITCH) == user


class Recorder(Step):
    """A step that only notes which path it was asked on; the reference may be too large."""

    seen: list[str | None]
    fits = True

    def __call__(self):
        path = os.environ.get(SWITCH)
        self.seen.append(path)
        if path == "reference" and not self.fits:
            raise torch.OutOfMemoryError("too large")


@pytest.fixture
def recorder(monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setattr(steps, "Step", Recorder)
    monkeypatch.setattr(steps, "has_fast_path", lambda device: True)
    monkeypatch.setattr(Recorder, "seen", [], raising=False)
    return Recorder


def test_paths_take_turns(recorder):
    row = run_case(case(), CPU, CEILINGS, rounds=3)
    assert recorder.seen == 3 * ["reference"] + 3 * [None] + 3 * ["reference", None]
    assert all(len(timing.rounds) == 3 for timing in row.paths.values())
    assert row.share(FAST) == pytest.approx(row.roofline_seconds / row.paths[FAST].seconds)


def test_a_reference_that_does_not_fit_is_said_and_the_rest_goes_on(recorder, monkeypatch):
    monkeypatch.setattr(recorder, "fits", False)
    row = run_case(case(train=False), CPU, CEILINGS, rounds=2)
    assert row.paths[REFERENCE].seconds is None
    assert row.lines_per_second(REFERENCE) is None
    assert row.lines_per_second(FAST) > 0
    assert row.to_dict()["paths"]["reference"]["share"] is None


def test_report_of_a_real_run(monkeypatch):
    monkeypatch.setenv(SWITCH, "reference")
    told = []
    report = benchmark(
        [case(), case(train=False)], CPU, rounds=1, profile=True, tell=lambda r: told.append(len(r.rows))
    )
    assert told == [1, 2]
    assert not report.has_fast_path  # none for a CPU, unless asked for
    assert 0 < report.first_step_seconds < 3600
    train, read = report.to_dict()["rows"]
    assert train["flops"] > 2.5 * read["flops"]
    assert train["overlapped_seconds"] <= train["roofline_seconds"]
    assert len(train["kernels"]) == 10
    shares = [kernel["share"] for kernel in train["kernels"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1
