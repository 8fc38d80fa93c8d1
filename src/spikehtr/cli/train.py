"""`spikehtr train`: train a recogniser."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.architectures import Arch
from spikehtr.cli import options
from spikehtr.cli.progress import training_progress
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from spikehtr.config import Config


_ANEW = {"--output", "--resume", "--device", "--devices", "--nodes"}  # what may be said of a run that goes on as begun


def train(
    ctx: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the run: model, checkpoints, logs, report.")
    ],
    data: Annotated[
        Optional[list[str]], typer.Option("--data", "-d", help="What to train on, any format. Repeatable.")
    ] = None,
    preset: options.Preset = None,
    file: options.ConfigFile = None,
    overrides: options.Overrides = None,
    arch: Annotated[
        Optional[Arch],
        typer.Option("--arch", help="The network: Spike-HTR (the default), or a baseline with its own settings."),
    ] = None,
    reducer: Annotated[
        bool, typer.Option("--reducer", help="Switch keep-and-merge on, for a baseline too (model.reducer).")
    ] = False,
    start: options.StartFrom = None,
    charset: options.CharsetMode = None,
    max_steps: Annotated[
        Optional[int],
        typer.Option("--max-steps", min=1, help="Stop after this many steps; the schedule ends there too."),
    ] = None,
    max_minutes: Annotated[
        Optional[float],
        typer.Option("--max-minutes", min=0.01, help="Stop after this much time; the schedule ends there too."),
    ] = None,
    save_every: Annotated[int, typer.Option("--save-every", min=1, help="Steps between two checkpoints.")] = 500,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in this folder; no other option is needed.")
    ] = False,
    allow_unknown: options.AllowUnknown = False,
    machine_lines: options.MachineLines = False,
    worst: Annotated[int, typer.Option("--worst", min=0, help="Worst lines shown in the report, as pictures.")] = 20,
    lm: Annotated[
        bool,
        typer.Option(
            "--lm",
            help="Make a language model of the training lines, too; if it helps on the validation lines, the model's "
            "file carries it.",
        ),
    ] = False,
    half: Annotated[bool, typer.Option("--half", help="Store the model in half precision: half the size.")] = False,
    device: options.Device = "auto",
    devices: Annotated[int, typer.Option("--devices", min=1, help="How many GPUs, or CPU processes, to use.")] = 1,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, help="How many machines run this command; torchrun and Slurm say so.")
    ] = 1,
) -> None:
    """Train a recogniser from scratch, or fine-tune one.

    Lines marked train are trained on and lines marked validation are read after each epoch; where no line is marked,
    some are held out, unless there are few. Lines as a model read them, which nobody changed or confirmed, are left
    out. The best model by character error rate is best.safetensors in the folder, report.html tells how it went. A run
    that was stopped, at any moment, goes on with `-o FOLDER --resume` and ends as if it never had been.
    """
    if not data and not resume:
        raise typer.BadParameter("name the lines to train on: -d FOLDER", ctx, param_hint="--data")
    if not data and (said := [option for option in options.given_options(ctx) if option not in _ANEW]):
        raise SpikeHTRError(
            f"--resume without --data goes on as the run was begun: leave out {', '.join(said)}, "
            "or repeat the whole command that began it"
        )
    if max_steps and max_minutes:
        raise SpikeHTRError("--max-steps and --max-minutes both end the run: give one of them")
    options.check_start(start, charset, preset, file)
    if start and arch:
        raise SpikeHTRError("--from takes its network from the model file: leave --arch out")
    # Before torch is loaded: a mistake is answered at once.
    config = None if start or not data else settings(arch, preset, file, reducer, overrides)
    chosen = options.pick_device(device)
    if config and not file and (size := _suited_batch(config, chosen, output if resume else None)):
        preset_size, config = config.training.batch_size, settings(arch, preset, file, reducer, overrides, size)
        if not resume and config.training.batch_size != preset_size:
            typer.echo(
                f"batches of {size} lines, as suits a CPU, not {preset_size} as the settings have it for a GPU; "
                f"-s training.batch_size={preset_size} for those"
            )

    from spikehtr.config import Config
    from spikehtr.training.devices import close_process_group, make_fabric
    from spikehtr.training.job import SETTINGS, Job, run_job
    from spikehtr.weights import load_model

    begun = None if data else Job.begun(output)
    start = begun.start if begun else start
    model = load_model(start) if start else None
    if begun:
        job = begun
    else:
        if model:
            # A run keeps what it was begun with, on any device.
            suited = options.fine_tuned(model, chosen)
            if resume and (output / SETTINGS).is_file():
                then = Config.load(output / SETTINGS).training
                kept = {f"training.{key}": getattr(then, key) for key in ("batch_size", "warmup_epochs")}
                suited = suited.with_overrides(kept)
            config = changed(suited, reducer, overrides)
        assert config is not None
        assert data is not None
        mode, limits = charset or "extend", (max_steps, max_minutes)
        how = (resume, allow_unknown, half)
        job = Job(config, data, output, start, mode, *limits, *how, save_every, worst, machine_lines, lm)
    job.claim_folder()
    fabric = make_fabric(chosen, devices, job.config.training.precision, nodes)
    fabric.launch()
    with ExitStack() as last, _only_first_prints(fabric), training_progress(typer.echo) as shown:
        last.callback(close_process_group)
        if model:
            typer.echo(_fine_tuning(job.config, by_epochs=not (job.max_steps or job.max_minutes)))
        with _told_when_lost(fabric):
            outcome = run_job(job, fabric, typer.echo, shown.tell, shown.reading, model, shown.beat)
        if not outcome.finished:
            again = ["spikehtr", "train", "-o", str(output), "--resume"]
            again += [] if device == "auto" else ["--device", device]
            again += [] if devices == 1 else ["--devices", str(devices)]
            again += [] if nodes == 1 else ["--nodes", str(nodes)]
            typer.echo(f"stopped at step {outcome.step} and saved: `{shlex.join(again)}` goes on")
            raise typer.Exit(1)
        score = "no line to validate on; the last weights" if outcome.cer is None else f"best CER {outcome.cer:.2%}"
        if outcome.cer is not None and outcome.before is not None:
            score += f" (before the first step {outcome.before:.2%})"
        typer.echo(f"{score}: {output / 'best.safetensors'}; how it went: {outcome.report}")


def settings(
    arch: str | None,
    preset: str | None,
    file: Path | None,
    reducer: bool,
    overrides: list[str] | None,
    batch_size: int | None = None,
) -> Config:
    """What --arch, --preset, --config, --reducer and --set ask for together.

    `batch_size` takes the place of the preset's; --set still counts more.
    """
    baseline = None if arch == "spike-htr" else arch
    if baseline and (preset or file):
        raise SpikeHTRError(f"--arch {arch} has its own settings: change them by --set, without -p or -c")
    config = options.resolve(baseline or preset, file, None)
    if arch and config.model.arch != arch:
        raise SpikeHTRError(f"{preset or file} is for {config.model.arch}, not {arch}: leave --arch out")
    if batch_size:
        config = config.with_overrides({"training.batch_size": batch_size})
    return changed(config, reducer, overrides)


def _suited_batch(config: Config, device: str, resumed: Path | None) -> int | None:
    """The size of batches to take instead of a preset's, if any: a run keeps what it was begun with, on any device."""
    from spikehtr.config import Config as Settings
    from spikehtr.config.presets import CPU_BATCH
    from spikehtr.training.job import SETTINGS

    if resumed and (resumed / SETTINGS).is_file():
        return Settings.load(resumed / SETTINGS).training.batch_size
    return CPU_BATCH if device == "cpu" and config.training.batch_size > CPU_BATCH else None


def changed(config: Config, reducer: bool, overrides: list[str] | None) -> Config:
    return (config.with_reducer() if reducer else config).with_overrides(overrides or [])


def _fine_tuning(config: Config, by_epochs: bool) -> str:
    t = config.training
    length = f"{t.epochs} epochs, " if by_epochs else ""
    rate = f"batches of {t.batch_size}, a learning rate of {t.learning_rate:g}"
    if t.validate_every > 1:
        rate += f", validated after every {t.validate_every} epochs"
    return f"fine-tuning: {length}{rate}; -s training.learning_rate=1e-4 and the like change them"


@contextmanager
def _told_when_lost(fabric: Fabric) -> Iterator[None]:
    """A message where another process of the run is gone: it was killed, or its machine cannot be reached."""
    from spikehtr.training.devices import lost_process

    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = lost_process(error) if fabric.world_size > 1 else None
        if reason is None:
            raise
        raise SpikeHTRError(
            f"another process of this run is gone ({reason}); repeat the command on all machines with --resume: "
            "the run goes on from its last checkpoint"
        ) from None


@contextmanager
def _only_first_prints(fabric: Fabric) -> Iterator[None]:
    """With several processes, the first one prints and takes the others down with it when it fails."""
    if not fabric.is_global_zero:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            try:
                yield
            except SpikeHTRError:  # the first process meets the same and says so
                sys.exit(2)
        return
    try:
        yield
    except BaseException:
        watched = getattr(fabric.strategy.launcher, "procs", [])
        processes = list(watched)
        watched.clear()  # Lightning watches this list, and would kill us for one that was killed
        for process in processes:
            process.kill()  # it may wait for us for ever
        raise
