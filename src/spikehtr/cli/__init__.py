"""The command line: one short file a verb. Heavy imports stay inside the verbs, so that --help answers at once."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from spikehtr.cli import bulk, data, export, lm, segmenter, study
from spikehtr.cli.bench import bench
from spikehtr.cli.config import config
from spikehtr.cli.evaluate import evaluate
from spikehtr.cli.inspect import inspect
from spikehtr.cli.profile import profile
from spikehtr.cli.serve import serve
from spikehtr.cli.train import train
from spikehtr.cli.transcribe import transcribe
from spikehtr.errors import SpikeHTRError
from spikehtr.version import __version__

app = typer.Typer(
    name="spikehtr",
    help="Spike-HTR: a spiking transformer that reads handwriting.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (transcribe, train, evaluate, config, inspect, profile, bench, serve):
    app.command()(verb)
app.add_typer(study.app, name="study")
app.add_typer(data.app, name="data")
app.add_typer(lm.app, name="lm")
app.add_typer(segmenter.app, name="segmenter")
app.add_typer(export.app, name="export")
app.add_typer(bulk.app, name="bulk")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"spikehtr {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Spike-HTR: a spiking transformer that reads handwriting."""


def main() -> None:
    """Run, and turn a user's mistake into one readable message and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names may be no text in any encoding
    try:
        app()
    except SpikeHTRError as error:
        print(f"spikehtr: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder without permission: the user's to mend, not ours
        print(f"spikehtr: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
