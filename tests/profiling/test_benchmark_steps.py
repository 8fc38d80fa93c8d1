"""The steps that are timed do the whole work."""

import pytest
import torch
from steps_help import CPU, case

from conftest import ask_for
from spikehtr import ops
from spikehtr.config import Config
from spikehtr.profiling.benchmark_steps import FAST, REFERENCE, Case, Step, chosen, ink_lines
from spikehtr.profiling.roofline import step_roofline
from spikehtr.readers import make_reader
from spikehtr.training.step import TrainStep


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


def test_a_training_step_is_a_run_s(monkeypatch):
    took = []
    take = TrainStep.__call__
    monkeypatch.setattr(TrainStep, "__call__", lambda self, *args: took.append(self) or take(self, *args))
    step = Step(case(), CPU)
    before = {name: p.detach().clone() for name, p in step.network().named_parameters()}
    step()
    (trained,) = took
    moved = [name for name, p in trained.net.named_parameters() if not torch.equal(p, before[name])]
    assert {name.split(".")[0] for name in moved} >= {"encoder", "positions", "mixer", "head"}
    assert len(trained.optimizer.state) > 0
    assert any(not torch.equal(trained.average.values[name], before[name]) for name in moved)
    step()
    assert took == [trained, trained]
    images, widths, need = step.inputs()
    assert images.shape[-1] == widths.max()  # as wide as the widest line once augmented
    assert (widths >= 4 * need).all()


def test_an_inference_step_reads_the_batch_and_changes_nothing(monkeypatch):
    read = []
    step = Step(case(train=False), CPU)
    reader = type(make_reader(step.network()))  # what a recogniser takes here: the engine, where it can be had
    monkeypatch.setattr(reader, "__call__", lambda self, *batch: read.append(batch))
    before = torch.random.get_rng_state()
    step()
    assert torch.equal(before, torch.random.get_rng_state())
    assert read == [(step.batch.images, step.batch.widths)]


@pytest.mark.parametrize("arch", ["dan", "htr-convtext"])
def test_networks_that_read_transcripts_are_served(arch):
    config = Config.preset(arch).with_overrides({"model.baseline.scale": 0.1, "model.height": 32})
    for train in (True, False):
        step = Step(Case(arch, config, train, batch_size=2, width=64), CPU)
        step()
        given = (*step.inputs(), train)
        counted = step_roofline(step.network(), *given, half=False, transcripts=step.transcripts())
        assert counted.flops > 0
        assert {"Lookup", "Attention"} & {op.kind for op in counted.ops}


@pytest.mark.parametrize("arch", ["htr-vt", "retsinas", "kraken", "cnn-blstm"])
def test_baselines_are_served(arch):
    config = Config.preset(arch).with_overrides({"model.baseline.scale": 0.05, "model.height": 32})
    for train in (True, False):
        step = Step(Case(arch, config, train, batch_size=2, width=64), CPU)
        step()
        images, widths, need = step.inputs()
        counted = step_roofline(step.network(), images, widths, need, train, half=False)
        assert counted.flops > 0
        kinds = {op.kind for op in counted.ops}
        assert ("LSTM" in kinds) == (arch != "htr-vt")
        assert ("Attention" in kinds) == (arch == "htr-vt")
        assert ("BatchNorm2d" in kinds) == (train and arch != "kraken")


def test_each_path_has_a_network_of_its_own(monkeypatch):
    ask_for(monkeypatch, "auto")
    step = Step(case(), CPU)
    for path in (REFERENCE, FAST, REFERENCE):
        with chosen(path):
            step()
    assert list(step.made) == [REFERENCE, FAST]
    step.forget()
    assert not step.made


@pytest.mark.parametrize("user", ["auto", "reference", "triton"])
def test_paths_are_chosen_whatever_the_environment_says(user, monkeypatch):
    ask_for(monkeypatch, user)
    with chosen(REFERENCE):
        assert ops.reference_asked()
    with chosen(FAST):
        assert not ops.reference_asked()
        assert ops.uses_triton(torch.zeros(1)) == (user == "triton")
    assert ops.reference_asked() == (user == "reference")
