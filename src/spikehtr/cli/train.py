"""`spikehtr train`: train a recogniser."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import ConfigFile, Overrides, Preset, resolve
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.training.loop import Epoch, Run


def train(
    data: Annotated[list[str], typer.Option("--data", "-d", help="What to train on, any format. Repeatable.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the run: checkpoints, settings, best model.")
    ],
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
    max_steps: Annotated[
        Optional[int],
        typer.Option("--max-steps", min=1, help="Stop after this many steps; the schedule ends there too."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
) -> None:
    """Train a recogniser from scratch.

    Lines marked train are trained on and lines marked validation are read after each epoch; where no line is marked,
    every tenth is held out. The best model by character error rate is best.safetensors in the folder. A run that was
    stopped, at any moment, goes on with --resume and ends as if it never had been.
    """
    config = resolve(preset, file, overrides)
    has_run = (output / "last.safetensors").exists() or (output / "previous.safetensors").exists()
    if has_run and not resume:
        raise SpikeHTRError(f"{output} holds a run already: add --resume to go on with it, or name another folder")
    chosen = pick_device(device)
    output.mkdir(parents=True, exist_ok=True)

    from spikehtr.data.compiling import open_lines
    from spikehtr.training.loop import Run
    from spikehtr.training.sets import training_sets

    with counting("reading lines") as progress:
        store = open_lines(data, config.model.height, config.data.max_width, progress)
    sets = training_sets(store, config)
    for remark in sets.remarks:
        typer.echo(remark)
    run = Run(config, sets.train, sets.validation, output, chosen, max_steps)
    if resume and (warning := run.resume()):
        typer.echo(warning)
    config.save(output / "config.yaml")
    sizes = f"{len(sets.train)} lines to train on, {len(sets.validation)} to validate"
    typer.echo(f"{sizes}, {len(sets.train.charset) - 1} characters; step {run.step} of {run.steps} on {chosen}")
    with _interruptible(run):
        run.fit(tell=_tell)
    if run.step < run.steps:
        typer.echo(f"stopped at step {run.step} of {run.steps} and saved: the same command with --resume goes on")
        raise typer.Exit(1)
    score = (
        f"best validation CER {run.best:.2%}" if len(sets.validation) else "no line to validate on; the last weights"
    )
    typer.echo(f"{score}: {output / 'best.safetensors'}")


@contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    """Ctrl-C ends the run after the step under way, saved; a second one ends it at once."""

    def stop(*_: object) -> None:
        run.stopping = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _tell(epoch: Epoch) -> None:
    cer = "" if epoch.cer is None else f", validation CER {epoch.cer:.2%}{' (best)' if epoch.best else ''}"
    typer.echo(
        f"epoch {epoch.number}, step {epoch.step}: loss {epoch.loss:.4f}{cer}, {epoch.lines_per_second:.0f} lines/s"
    )


def pick_device(wanted: str) -> str:
    """The device to use; one that is not there is an error."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(wanted).type
    except RuntimeError:
        raise SpikeHTRError(f"no device called {wanted!r}: use cpu, cuda or auto") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise SpikeHTRError("a GPU was asked for and none is here: use --device cpu, or leave --device out")
    return wanted
