"""The study of left-out sets: what it leaves out, and that its commands run."""

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from conftest import draw_line
from spikehtr.cli import app
from spikehtr.errors import SpikeHTRError
from spikehtr.studies import command_chains
from spikehtr.studies.unseen import RECIPES, UnseenPlan, sets_in

NAMES = ("bronod", "cds-salm", "copiste", "timeus")
FOLD = NAMES[:2]


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


def plan_of(sets, output, **changes):
    values = {"folds": (FOLD,), "drawn": 9, "few": (0, 2), "lm": True} | changes
    return UnseenPlan(sets_in([sets]), output, **values)


def test_a_left_out_set_lends_neither_lines_nor_texts_nor_paper_before_it_is_read(sets, tmp_path):
    chains = plan_of(sets, tmp_path / "o", recipes=RECIPES).chains()
    assert [chain.after for chain in chains] == [None, None, "drawn lines", "drawn lines"]
    assert chains[0].name == "drawn lines"
    assert all("training.batch_size=64" in chain.steps[-1 if chain is chains[0] else 0].command for chain in chains)
    every = [step.done for chain in chains for step in chain.steps]
    assert len(set(every)) == len(every)
    for chain in chains:
        learned = False
        for step in chain.steps:
            named = {name for name in NAMES if str(sets / name) in step.command}
            if step.command[0] == "evaluate":
                assert len(named & set(FOLD)) == 1
                learned = True
            elif learned and step.command[0] == "train":  # a few lines of the new hand
                assert len(named) == 1
                assert "data.train_lines=2" in step.command
            else:
                assert not named & set(FOLD), step.command
    (draw, *_), *_ = (chain.steps for chain in chains)
    assert draw.command[:2] == ["data", "synth"]
    assert {str(sets / "copiste"), str(sets / "timeus")} <= set(draw.command)


def test_what_two_folds_share_is_drawn_without_the_sets_of_either(sets, tmp_path):
    plan = plan_of(sets, tmp_path / "o", folds=(("bronod",), ("cds-salm", "timeus")))
    draw = plan.chains()[0].steps[0].command
    assert [name for name in NAMES if str(sets / name) in draw] == ["copiste"]


def test_rates_are_of_all_lines_and_ratios_of_the_first_recipe(sets, tmp_path):
    for name, wrong in zip(FOLD, (40, 30), strict=True):
        for recipe, part in (("real", 1.0), ("drawn", 0.5)):
            place = tmp_path / "o" / f"without-{'-'.join(FOLD)}" / f"{recipe}-{name}"
            place.mkdir(parents=True)
            lines = [{"errors": wrong * part, "length": 60}, {"errors": 0, "length": 40}]
            (place / "evaluation.json").write_text(json.dumps({"predictions": lines}))
    told = plan_of(sets, tmp_path / "o").table()
    assert [line.split() for line in told[2:4]] == [["bronod", "40.00%", "20.00%"], ["cds-salm", "30.00%", "15.00%"]]
    assert told[4:] == ["drawn: 0.500 of real, geometric mean of 2 sets"]


def test_the_only_one_of_its_script_is_not_in_the_mean(tmp_path):
    folder = tmp_path / "sets"
    for name in ("fondue-de18", "memorials-stanford", "timeus"):
        (folder / name).mkdir(parents=True)
    plan = UnseenPlan(sets_in([folder]), tmp_path / "o", (("fondue-de18", "memorials-stanford"),))
    rates = {"fondue-de18": {"real": 0.5, "drawn": 0.5}, "memorials-stanford": {"real": 0.5, "drawn": 0.1}}
    assert plan.ratios(rates) == {"drawn": (pytest.approx(0.2), 1)}
    assert plan.table() == ["", "nothing has been read yet"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"folds": (("bronod", "read2016"),)}, "no set read2016 to leave out; --without names others: bronod"),
        ({"folds": (NAMES,)}, "every set is left out"),
        ({"folds": ((),)}, "name at least one set"),
        ({"folds": (FOLD, ("cds-salm",))}, "cds-salm is left out twice"),
        ({"recipes": ("real", "magic")}, "no recipe magic: real, drawn, plain"),
        ({"recipes": ("real", "real")}, "each once"),
        ({"recipes": ()}, "each once"),
        ({"preset": "swfit"}, "swfit"),
        ({"overrides": ("training.epochs=3",)}, "training.epochs is set by --epochs"),
        ({"overrides": ("nonsense=1",)}, "nonsense"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(sets, tmp_path, changes, said):
    with pytest.raises(SpikeHTRError, match=said):
        plan_of(sets, tmp_path / "o", **changes)


def test_a_folder_is_of_one_plan(sets, tmp_path):
    plan_of(sets, tmp_path / "o").check()
    plan_of(sets, tmp_path / "o", lm=False, recipes=("drawn",)).check()  # the same trainings, or fewer of them
    with pytest.raises(SpikeHTRError, match="has another drawn \\(9\\): name another folder"):
        plan_of(sets, tmp_path / "o", drawn=10).check()


def test_a_set_is_found_once(sets, tmp_path):
    (tmp_path / "more" / "timeus").mkdir(parents=True)
    with pytest.raises(SpikeHTRError, match="another set of that name"):
        sets_in([sets, tmp_path / "more"])
    with pytest.raises(SpikeHTRError, match="no such folder"):
        sets_in([tmp_path / "nowhere"])


class InThisProcess:
    """As `subprocess.Popen`: to start Python and torch anew takes longer than most of a fold's commands."""

    def __init__(self, command, stdout, **_):
        short = ["-s", "training.epochs=2"] if "data.train_lines=2" in command else []
        done = CliRunner().invoke(app, [*command[3:], *short])
        stdout.write(done.output.encode())
        self.returncode, self.pid = done.exit_code, 0

    def poll(self):
        return self.returncode


@pytest.mark.slow
def test_a_fold_runs_from_drawing_to_reading(sets, tmp_path, monkeypatch, no_drawing):
    small = ["model.dim=32", "model.mixer.heads=2", "model.encoder.channels=[16,32]", "training.batch_size=2"]
    small += ["training.ema_decay=0.5", "data.max_width=128"]
    words = ["study", "unseen", sets, "-o", tmp_path / "o", "-p", "tiny", "--without", "bronod,cds-salm", "--drawn", 8]
    words += [word for setting in small for word in ("-s", setting)]
    words += ["--epochs", 1, "--few", "2", "--recipes", "drawn"]
    monkeypatch.setattr(command_chains.subprocess, "Popen", InThisProcess)
    done = CliRunner().invoke(app, [str(word) for word in words])
    logs = "\n".join(file.read_text() for file in (tmp_path / "o").glob("*.txt"))
    assert done.exit_code == 0, (done.output, done.exception, logs)
    assert "spikehtr train" in done.output
    assert "drawn after lines: 2" in done.output
    again = CliRunner().invoke(app, [str(word) for word in [*words, "--render"]])
    assert "spikehtr" not in again.output
    assert again.output.splitlines()[-3:] == done.output.splitlines()[-3:]


def test_render_wants_a_study(sets, tmp_path):
    done = CliRunner().invoke(
        app, ["study", "unseen", str(sets), "-o", str(tmp_path), "--without", "timeus", "--render"]
    )
    assert isinstance(done.exception, SpikeHTRError)
    assert "no study of unseen hands here" in str(done.exception)
    assert list(tmp_path.glob("*.json")) == []
