import json
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from training_help import SETTINGS

from conftest import draw_line
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.text import Charset
from spikehtr.training.devices import make_fabric
from spikehtr.training.job import Job, run_job, stop_on_interrupt
from spikehtr.weights import load_model, save_model


def write_lines(folder):
    folder.mkdir()
    for number in range(20):
        Image.fromarray(draw_line("ink", seed=number)).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text("ink")
    return folder


def test_where_the_start_stays_the_best_it_stays_calibrated(tmp_path, monkeypatch):
    """Four validation lines are too little to calibrate by, and the weights are those that were calibrated."""
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    config = Config().with_overrides(SETTINGS | {"training.epochs": 2, "training.learning_rate": 1e-12})
    charset, start = Charset.from_texts(["ink"]), tmp_path / "start.safetensors"
    calibrated = {
        "temperature": 1.75,
        "calibration": {
            "data": ["old"],
            "split": "validation",
            "lines": 99,
            "ece": {"characters": {"before": 0.2, "after": 0.1}},
        },
        "expected_error": {"slope": 0.9, "bias": -0.5},
    }
    save_model(start, SpikeHTR(config.model, len(charset)), config, charset, calibrated)
    job = Job(config, [write_lines(tmp_path / "source")], tmp_path / "run", start, max_steps=1)
    job.claim_folder()
    said: list[str] = []
    run_job(job, make_fabric(), said.append)
    assert said[-1].startswith("no epoch was better than the start, so best.safetensors is the start. Likely why: ")
    assert "16 lines to learn from are few; 1 step is little; 4 lines to validate on decide little" in said[-1]
    assert ". What to do: add or correct more, up to 50 or so; train longer" in said[-1]
    notes = load_model(tmp_path / "run" / "best.safetensors").notes
    assert {name: notes[name] for name in calibrated} == calibrated


@pytest.mark.parametrize("resumed", [False, True])
def test_with_few_lines_all_are_learned_from_and_no_score_is_given(tmp_path, monkeypatch, resumed):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    config = Config().with_overrides(SETTINGS | {"training.epochs": 2})
    charset, start = Charset.from_texts(["ink"]), tmp_path / "start.safetensors"
    save_model(start, SpikeHTR(config.model, len(charset)), config, charset)
    source = write_lines(tmp_path / "source")
    for number in range(10, 20):
        (source / f"{number}.png").unlink()
        (source / f"{number}.txt").unlink()
    job = Job(config, [source], tmp_path / "run", start)
    job.claim_folder()
    said: list[str] = []
    outcome = run_job(job, make_fabric(), said.append)
    if resumed:  # a finished run says the same again
        said.clear()
        outcome = run_job(replace(job, resume=True), make_fabric(), said.append)
    assert outcome.cer is None
    assert any("all 10 are trained on, too few to hold any out to validate: no score will be given" in s for s in said)
    assert re.match(
        r"all 10 lines were trained on, so there is no score \(correct 20 or more for a score\); "
        r"on these very lines the CER went from \d+\.\d\d% to \d+\.\d\d%: they were ",
        said[-1],
    )


def test_lines_that_reading_left_out_are_remarked_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    source = write_lines(tmp_path / "source")
    (source / "3.png").write_bytes(b"no image")
    job = Job(Config().with_overrides(SETTINGS | {"training.epochs": 2}), [source], tmp_path / "run", max_steps=1)
    job.claim_folder()
    said: list[str] = []
    run_job(job, make_fabric(), said.append)
    remark = f"1 line or file of {source} left out; `spikehtr data check {source}` lists them"
    assert said[0] == remark
    assert json.loads((tmp_path / "run" / "data.json").read_text())["remarks"][0] == remark
    assert capsys.readouterr().err == ""


def test_a_run_that_goes_on_is_the_one_that_was_begun(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    config = Config().with_overrides(SETTINGS | {"training.epochs": 2})
    charset, start = Charset.from_texts(["ink"]), tmp_path / "start.safetensors"
    save_model(start, SpikeHTR(config.model, len(charset)), config, charset)
    sources = [write_lines(tmp_path / "source")]
    job = Job(config, sources, tmp_path / "run", start, "keep", 1, None, False, True, True, 7, 3, None)
    job.claim_folder()
    run_job(job, make_fabric(), lambda _: None)
    decided = config.with_overrides({"training.freeze": "encoder"})  # by the run, which goes on so
    assert Job.begun(job.folder) == replace(job, config=decided, data=[str(sources[0])], resume=True)
    for name in ("last.safetensors", "previous.safetensors"):
        (job.folder / name).unlink(missing_ok=True)
    assert not Job.begun(job.folder).resume  # stopped before its first checkpoint: from the beginning


def test_a_run_goes_on_from_any_folder(tmp_path, monkeypatch):
    write_lines(tmp_path / "source")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    job = Job(Config(), ["source", "folder:source"], Path("run"), Path("bundled"))
    notes = job.notes()
    assert notes["data"] == [str(tmp_path / "source"), f"folder:{tmp_path / 'source'}"]
    assert notes["start"] == "bundled"
    assert json.loads(json.dumps(notes)) == notes


@pytest.mark.parametrize("held", ["{}", "[]", '{"data": [], "colour": "red"}'])
def test_notes_of_another_kind_are_told(held, tmp_path):
    Config().save(tmp_path / "config.yaml")
    (tmp_path / "job.json").write_text(held)
    with pytest.raises(SpikeHTRError, match="repeat the command that began it, with --resume"):
        Job.begun(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_after_its_step_and_says_so(number, capsys):
    run, before = SimpleNamespace(stopping=False, is_main=True), signal.getsignal(number)
    with stop_on_interrupt(run):
        signal.raise_signal(number)
        assert run.stopping
        assert signal.getsignal(number) is before  # a second one ends it at once
    assert "once more stops at once" in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_a_signal_is_heard_where_nobody_listens(monkeypatch):
    class Gone:
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    run = SimpleNamespace(stopping=False, is_main=True)
    with stop_on_interrupt(run):
        signal.raise_signal(signal.SIGINT)
    assert run.stopping
