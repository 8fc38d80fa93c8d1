"""The study of left-out sets: what it leaves out, and that its commands run."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from conftest import draw_line
from spikehtr.cli import app

FILE = Path(__file__).parent.parent / "benchmarks" / "unseen.py"
NAMES = ("bronod", "cds-salm", "copiste", "timeus")


@pytest.fixture(scope="module")
def unseen():
    spec = importlib.util.spec_from_file_location("unseen", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sets(tmp_path):
    for name in NAMES:
        for split, count in (("train", 3), ("validation", 1), ("test", 1)):
            place = tmp_path / "sets" / name / split
            place.mkdir(parents=True)
            for number in range(count):
                Image.fromarray(draw_line("in", seed=number)).save(place / f"{number}.png")
                (place / f"{number}.gt.txt").write_text("in", encoding="utf-8")
    return tmp_path / "sets"


def asked(sets, output, **changes):
    plain = {"sets": sets, "output": output, "preset": "swift", "set": [], "fonts": None, "texts": None, "drawn": 9}
    plain |= {"drawn_minutes": 1, "minutes": 1, "few": [0, 2], "few_minutes": 1, "lm": True, "seed": 0, "height": 64}
    return Namespace(**plain | changes)


def test_a_left_out_set_lends_neither_lines_nor_texts_nor_paper_before_it_is_read(unseen, sets, tmp_path):
    fold = ("bronod", "cds-salm")
    for recipe in unseen.RECIPES:
        found = list(unseen.steps(asked(sets, tmp_path / "o"), fold, recipe))
        assert len({step.done for step in found}) == len(found)
        learned = False
        for step in found:
            named = {name for name in NAMES if str(sets / name) in step.command}
            if step.command[0] == "evaluate":
                assert len(named & set(fold)) == 1
                learned = True
            elif learned and step.command[0] == "train":  # a few lines of the new hand
                assert len(named) == 1
                assert "data.train_lines=2" in step.command
            else:
                assert not named & set(fold), step.command
        made = [step for step in found if step.command[:2] == ["data", "synth"]]
        assert len(made) == (recipe != "real")
        for step in made:
            assert {str(sets / "copiste"), str(sets / "timeus")} <= set(step.command)


def test_rates_are_of_all_lines_and_ratios_of_the_first_recipe(unseen, sets, tmp_path, capsys):
    for fold, rates in zip(unseen.FOLDS[:2], ((40, 20), (30, 30)), strict=True):
        for name, wrong in zip(fold, rates, strict=True):
            for recipe, part in (("real", 1.0), ("drawn", 0.5)):
                place = tmp_path / "o" / f"without-{'-'.join(fold)}" / f"{recipe}-{name}"
                place.mkdir(parents=True)
                lines = [{"errors": wrong * part, "length": 60}, {"errors": 0, "length": 40}]
                (place / "evaluation.json").write_text(json.dumps({"predictions": lines}))
    unseen.table(asked(sets, tmp_path / "o", recipes=["real", "drawn"], few=[], lm=False))
    told = capsys.readouterr().out
    assert "bronod" in told
    assert "40.00%" in told
    assert "drawn: 0.500 of real, geometric mean of 4 sets" in told


def in_this_process(command, check):
    """As `subprocess.run`: to start Python and torch anew takes longer than most of a fold's commands."""
    assert command[:3] == [sys.executable, "-m", "spikehtr"]
    done = CliRunner().invoke(app, command[3:])
    assert done.exit_code == 0 or not check, (done.output, done.exception)


@pytest.mark.slow
def test_a_fold_runs_from_drawing_to_reading(unseen, sets, tmp_path, monkeypatch, capsys, no_drawing):
    small = ["model.dim=32", "model.mixer.heads=2", "model.encoder.channels=[16,32]", "training.batch_size=2"]
    small += ["training.ema_decay=0.5", "data.max_width=128"]
    words = [sets, "-o", tmp_path / "o", "-p", "tiny", "--folds", 0, "--drawn", 8, "--recipes", "drawn"]
    words += [word for setting in small for word in ("-s", setting)]
    words += ["--drawn-minutes", "0.02", "--minutes", "0.02", "--few", "2", "--few-minutes", "0.02"]
    monkeypatch.setattr(sys, "argv", [str(FILE), *map(str, words)])
    monkeypatch.setattr(unseen.subprocess, "run", in_this_process)
    unseen.main()
    done = capsys.readouterr().out
    assert "spikehtr train" in done
    assert "drawn-2 lines" in done
    unseen.main()
    again = capsys.readouterr().out
    assert "spikehtr train" not in again
    assert again.splitlines()[-7:] == done.splitlines()[-7:]
