"""The command line as a person meets it: what it prints, its exit code."""

import json
import subprocess
import sys

import pytest
import yaml
from cli_help import run
from PIL import Image

from spikehtr import Config, __version__
from spikehtr.assets import SAMPLE_LINE


def test_the_command_is_a_program(tmp_path):
    """Once as a process of its own, right and wrong; the other tests call it as a function."""
    program = [sys.executable, "-c", "from spikehtr.cli import main; main()"]
    done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"spikehtr {__version__}")
    done = subprocess.run([*program, "config", "-p", "huge"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("spikehtr: no preset called 'huge'")
    assert len(done.stderr.splitlines()) == 1


def test_version_and_help():
    assert run("--version").stdout.strip() == f"spikehtr {__version__}"
    text = run("--help").stdout
    assert all(verb in text for verb in ("train", "evaluate", "data", "config", "inspect", "profile"))
    for verb in ("train", "evaluate", "config", "inspect", "profile"):
        assert run(verb, "--help").returncode == 0


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from spikehtr.cli import app; assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_config_prints_and_writes(tmp_path):
    shown = run("config", "--preset", "tiny", "-s", "model.timesteps=1")
    expected = Config.preset("tiny").with_overrides({"model.timesteps": 1})
    assert yaml.safe_load(shown.stdout) == expected.to_dict()
    path = tmp_path / "c.yaml"
    assert run("config", "-p", "tiny", "-s", "model.timesteps=1", "-o", path).returncode == 0
    assert Config.load(path) == expected
    assert yaml.safe_load(run("config", "-c", path).stdout) == expected.to_dict()


def test_profile_counts_as_json_and_table():
    args = ("profile", "--counts", "--preset", "tiny", "--width", 64)
    found = json.loads(run(*args, "--json").stdout)
    assert found["parameters"] == pytest.approx(8.5e6, rel=0.01)
    assert found["lif_modules"] == {"2D encoder": 15, "1D mixer": 16}
    assert (found["tokens_in"], found["tokens_mixed"]) == (16, 11)
    table = run(*args).stdout
    assert "8.49 M" in table
    assert "eligible share, no bypass" in table
    assert "no bypass" not in run("profile", "--counts", "--preset", "swift", "--width", 64).stdout


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_inspect_draws(steps, tmp_path):
    path = tmp_path / "out.png"
    done = run("inspect", SAMPLE_LINE, "-o", path, "-T", steps)
    assert done.returncode == 0, done.stderr
    means = [float(m) for m in done.stdout.split(": ")[-1].rstrip(")\n").split(", ")]
    assert len(means) == steps
    assert means == sorted(means, reverse=True)
    with Image.open(path) as image:
        assert image.width > 1000
    assert [p.name for p in tmp_path.iterdir()] == ["out.png"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["profile"], "--counts"),
        (["profile", "--counts", "--preset", "tinny"], "did you mean 'tiny'"),
        (["profile", "--counts", "-s", "model.timestep=1"], "did you mean 'model.timesteps'"),
        (["profile", "--counts", "--ratio", "2"], "--ratio"),
        (["config", "-p", "tiny", "-c", "x.yaml"], "give one of them"),
        (["config", "-c", "nowhere.yaml"], "nowhere.yaml"),
        (["config", "-o", "nowhere/c.yaml"], "make it first"),
        (["inspect", "nowhere.png"], "no such file"),
        (["inspect", str(SAMPLE_LINE), "-T", "9"], "max_timesteps"),
        (["inspect", str(SAMPLE_LINE), "-o", "."], "is a folder"),
        (["inspect", __file__], "not an image"),
        (["inspekt"], "inspekt"),
        (["inspect"], "IMAGE"),
    ],
)
def test_wrong_use_is_explained_and_exits_with_2(args, says, tmp_path):
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_no_text_can_be_printed():
    code = r"from spikehtr import cli; cli.app = lambda: print('caf\udce9.png'); cli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "caf\\udce9.png\n")
