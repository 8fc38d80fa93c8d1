"""What tests of the command line share."""

import csv
import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout

from conftest import MICRO
from spikehtr.assets import FONTS
from spikehtr.cli import main
from spikehtr.data.synth import synthesise


def run(*args, cwd=None):
    """The command in this process: what it prints, its exit code. Starting Python and torch anew takes seconds."""
    out, errors = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["spikehtr", *map(str, args)]
    try:
        with chdir(cwd or "."), redirect_stdout(out), redirect_stderr(errors):
            main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    assert "Traceback" not in errors.getvalue()
    return subprocess.CompletedProcess(args, code, out.getvalue(), errors.getvalue())


def start(*args, **options):
    """Lightning starts the other processes by calling the same script again, so there must be one."""
    return subprocess.Popen([sys.executable, "-m", *map(str, args)], stderr=subprocess.PIPE, text=True, **options)


SETTINGS = MICRO | {
    "model.height": 24,
    "model.timesteps": 1,
    "data.workers": 0,
    "data.max_width": 96,
    "training.batch_size": 4,
    "training.epochs": 2,
    "training.warmup_epochs": 1,
}


# Random masks and augmentation are drawn by each process for itself, so they are off. In fp64, since in fp32 the last
# digit, which depends on the order of sums, decides spikes at the threshold.
REPEATABLE = {
    "training.precision": "fp64",
    "training.learning_rate": 5e-3,
    "model.height": 16,
    "data.augment.probability": 0.0,
    "model.mixer.dropout": 0.0,
    "model.mixer.drop_path": 0.0,
}
LOADER = ("-s", "data.workers=1")  # a process that loads lines, where one is to be there


def drawn_words(folder, height):
    """30 lines of short words."""
    synthesise(["ink", "pen", "nib", "pine", "kin", "bin", "epic", "nice"], FONTS, 30, folder, height=height)


def curve(run):
    """The rows of a run's log, by the names of the cells that are filled."""
    with (run / "log.csv").open() as file:
        return [{key: float(cell) for key, cell in row.items() if cell} for row in csv.DictReader(file)]
