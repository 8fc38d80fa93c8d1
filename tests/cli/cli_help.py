"""What tests of the command line share."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout

from conftest import MICRO
from spikehtr.cli import main


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


LOADER = ("-s", "data.workers=1")  # a process that loads lines, where one is to be there
