"""`spikehtr study`: one of the paper's tables, from data to page; and how well unseen hands are read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.groups import RunByDefault
from spikehtr.cli.options import Overrides, given_options
from spikehtr.cli.progress import counting, spoken
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.studies.runner import Carried
    from spikehtr.studies.study_plan import StudyPlan, Task


app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Train and compare: one of the paper's tables, or hands left out. `study NAME` is `study run NAME`.",
)


@app.command()
def run(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="t-sweep, scale, inkcoder, reduction, encoder, mixer, ann-control, main, fine-tuning, ann-reduction; "
            "or an overlay's .yaml file.",
        ),
    ],
    output: Annotated[
        Optional[Path],
        typer.Option(
            "--output", "-o", help="Folder of the study: runs, tables, plot, report; by default studies/NAME."
        ),
    ] = None,
    data: Annotated[
        Optional[list[str]], typer.Option("--data", "-d", help="Lines of any format. Repeatable: one table each.")
    ] = None,
    budget: Annotated[
        Optional[float], typer.Option("--budget", min=0.01, help="Minutes of training, each run.")
    ] = None,
    epochs: Annotated[Optional[int], typer.Option("--epochs", min=1, help="Epochs of training, each run.")] = None,
    seeds: Annotated[
        Optional[int],
        typer.Option("--seeds", min=1, help="Runs of each variant, with seeds of their own; 1, or the protocol's."),
    ] = None,
    protocol: Annotated[
        Optional[Path],
        typer.Option(
            "--protocol",
            metavar="FILE",
            help="A .yaml file of epochs, seeds and settings of the variants, in place of the study's own protocol.",
        ),
    ] = None,
    preset: Annotated[
        Optional[str],
        typer.Option(
            "--preset", "-p", help="Tier of the variants that name none: tiny, small, medium, base, swift, fine."
        ),
    ] = None,
    overrides: Overrides = None,
    start: Annotated[
        Optional[Path],
        typer.Option("--from", metavar="MODEL", help="The model that fine-tuning begins with, for a study of that."),
    ] = None,
    only: Annotated[
        Optional[str], typer.Option("--only", metavar="VARIANT[,..]", help="Run these variants and no others.")
    ] = None,
    jobs: Annotated[
        Optional[int],
        typer.Option("--jobs", "-j", min=1, help="Runs at a time, as processes; one for each device unless told."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda (all there are), cuda:N, or auto.")] = "auto",
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Validate on lines with characters that training never shows.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and the minutes it takes.")] = False,
    reuse: Annotated[
        Optional[list[Path]],
        typer.Option(
            "--reuse",
            metavar="FOLDER",
            help="Take from another study what it finished with the same settings, lines, seed, epochs. Repeatable.",
        ),
    ] = None,
    only_render: Annotated[
        bool, typer.Option("--render", help="Make tables and page again from the runs in the folder; no training.")
    ] = False,
    kept: Annotated[
        Optional[Path],
        typer.Option(
            "--keep",
            metavar="FOLDER",
            help="Also put the finished runs there, without any line's text and beside those kept before: tables, "
            "paired tests too, are made of that alone (--render -o FOLDER).",
        ),
    ] = None,
) -> None:
    """Train and read every variant of one of the paper's tables, and write it with the paper's numbers beside ours.

    The same command again goes on where it was stopped (Ctrl-C, SIGTERM, a kill); finished runs are kept, and --seeds
    may grow. Each run's folder is what `train` writes, with validation/ and test/ as `evaluate` writes them.
    """
    from spikehtr.studies.archive import check_target, holds_kept
    from spikehtr.studies.study_overlay import load_study, with_protocol
    from spikehtr.studies.study_page import render
    from spikehtr.studies.study_plan import StudyPlan, name_data

    chosen = load_study(name)
    if protocol is not None:
        chosen = with_protocol(chosen, protocol)
    output = output or Path("studies") / chosen.name
    if only_render:
        useful = ("name", "--output", "--render", "--keep")
        if unused := [option for option in given_options(ctx) if option not in useful]:
            raise SpikeHTRError(f"--render takes the runs as they are: leave out {', '.join(unused)}")
        plan = StudyPlan.read(output)
        if plan.study.name != chosen.name:
            raise SpikeHTRError(f"{output} holds the study {plan.study.name}, not {chosen.name}")
        _tell_files(render(plan))
        _keep(plan, kept)
        return
    if holds_kept(output):
        raise SpikeHTRError(
            f"{output} holds results without their runs: train into another folder, and --keep them here"
        )
    if not data:
        raise SpikeHTRError("say what to train on: --data")
    if budget and epochs:
        raise SpikeHTRError("--budget and --epochs both end a run: give one of them")
    if chosen.protocol:
        epochs = epochs or (None if budget else chosen.protocol.epochs)
        seeds = seeds or chosen.protocol.seeds
    names = tuple(part.strip() for part in (only or "").split(",") if part.strip())
    command = tuple(sys.argv[1:])
    given = (tuple(overrides or ()), budget, epochs, seeds or 1, names, allow_unknown, command, start)
    plan = StudyPlan(chosen, output, name_data(data), preset, *given)
    tasks = plan.tasks()
    if not tasks:
        reasons = "; ".join(f"{variant.name}: {why}" for variant, why in plan.variants())
        raise SpikeHTRError(f"no variant of {chosen.name} can run here ({reasons})")
    from spikehtr.studies.reuse import made_elsewhere, take_over

    if kept is not None:
        check_target(plan, kept)
    made = made_elsewhere(tasks, reuse or ())
    devices = _devices(device)
    at_once = min(jobs or len(devices), len(tasks))
    if dry_run:
        _tell_plan(plan, tasks, made, devices, at_once)
        return
    from spikehtr.studies.runner import carry_out_tasks, check_lines

    check_lines(tasks, typer.echo)
    plan.write()
    for task in tasks:
        if other := made.get(task.folder):
            take_over(task, other)
            typer.echo(f"{task.title}: taken from {other.folder}")
    with counting("runs", len(tasks)) as progress:
        carried = carry_out_tasks(tasks, devices, at_once, typer.echo, progress)
    plan = StudyPlan.read(output)
    _tell_files(render(plan))
    whole = _tell_end(carried, len(tasks))
    if carried.finished:
        _keep(plan, kept)
    if not whole:
        raise typer.Exit(1)


@app.command()
def unseen(
    sets: Annotated[
        list[Path], typer.Argument(metavar="SETS...", help="Folders with a folder or a store of lines for each set.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the study.")] = Path("studies/unseen"),
    without: Annotated[
        Optional[list[str]],
        typer.Option(
            "--without",
            metavar="SET[,..]",
            help="Sets to leave out together. Repeatable. (default: bronod,cds-salm; transcriboquest,htrogene-it; "
            "fondue-de18,memorials-stanford)",
        ),
    ] = None,
    preset: Annotated[str, typer.Option("--preset", "-p", help="The network and how it trains.")] = "swift",
    overrides: Overrides = None,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Epochs of training on real lines.")] = 20,
    drawn: Annotated[
        int, typer.Option("--drawn", min=1, help="Drawn lines to learn from before, once each.")
    ] = 300_000,
    fonts: Annotated[
        Optional[Path], typer.Option("--fonts", help="Folder of .ttf and .otf files; without it, the two we ship.")
    ] = None,
    text: Annotated[
        Optional[list[Path]], typer.Option("--text", help="Texts to draw, UTF-8, also packed (.gz). Repeatable.")
    ] = None,
    recipes: Annotated[
        str,
        typer.Option(
            "--recipes",
            metavar="RECIPE[,..]",
            help="real: real lines alone; drawn: drawn lines before; plain: drawn, but taught plain "
            "transcripts, and without --lm.",
        ),
    ] = "real,drawn",
    few: Annotated[
        Optional[str],
        typer.Option("--few", metavar="N[,..]", help="Go on with so many lines of a set that was left out, too."),
    ] = None,
    lm: Annotated[bool, typer.Option("--lm", help="Read with a language model of the other sets, too.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of drawing and training.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Trainings at a time.")] = 1,
    only_render: Annotated[bool, typer.Option("--render", help="Print what there is so far; train nothing.")] = False,
) -> None:
    """How well are hands read that training never saw? Whole sets are left out, and read afterwards, all their lines.

    Every recipe trains on the other sets, shown by the square root of their size, and the weights are those that read
    these sets' validation lines best. Drawn lines have texts and paper of the sets that are never left out. All
    trainings are on one device. The same command again goes on where it was stopped; --render wants the same
    options, too.
    """
    from spikehtr.studies.command_chains import carry_out
    from spikehtr.studies.unseen import FOLDS, PLAN, UnseenPlan, sets_in

    folds = tuple(tuple(_words(names)) for names in without) if without else FOLDS
    texts, counts = tuple(text or ()), tuple(_counts(few))
    recipe = tuple(_words(recipes))
    more = (tuple(overrides or ()), epochs, drawn, fonts, texts, counts, lm, seed, recipe)
    plan = UnseenPlan(sets_in(sets), output, folds, preset, *more)
    if only_render and not (output / PLAN).exists():
        raise SpikeHTRError(f"{output}: no study of unseen hands here")
    plan.check()
    whole = only_render or carry_out(plan.chains(), jobs, output, typer.echo)
    for line in plan.table():
        typer.echo(line)
    if not whole:
        raise typer.Exit(1)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _counts(text: str | None) -> list[int]:
    words = _words(text or "")
    if wrong := [word for word in words if not word.isdecimal()]:
        raise SpikeHTRError(f"--few {', '.join(wrong)}: give numbers of lines, as 0,50,200")
    return [int(word) for word in words]


def _keep(plan: StudyPlan, folder: Path | None) -> None:
    """The results without text, where the user asked for them, and what is made of all that are there."""
    if folder is None:
        return
    from spikehtr.studies.archive import keep
    from spikehtr.studies.study_page import render
    from spikehtr.studies.study_plan import StudyPlan

    number = keep(plan, folder)
    typer.echo(f"{number} {'runs' if number > 1 else 'run'} kept in {folder}, without any line's text")
    _tell_files(render(StudyPlan.read(folder)))


def _devices(wanted: str) -> list[str]:
    from spikehtr.cli.options import pick_device

    chosen = pick_device(wanted)
    if chosen != "cuda":
        return [chosen]
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def _tell_plan(
    plan: StudyPlan, tasks: Sequence[Task], made: Mapping[Path, Task], devices: Sequence[str], jobs: int
) -> None:
    from spikehtr.evaluation.rate_tables import columns
    from spikehtr.studies.time_estimate import minutes_of

    minutes = dict(zip((task.folder for task in tasks), minutes_of(tasks, devices[0]), strict=True))
    rows: list[Sequence[object]] = []
    for task in tasks:
        state = "done" if task.finished else "begun" if task.folder.exists() else ""
        if other := made.get(task.folder):
            state = f"taken from {other.folder}"
        rows.append((task.variant, task.data, task.seed, f"{minutes[task.folder]:.1f}", state))
    for variant, why in plan.variants():
        if why and (not plan.only or variant.name in plan.only):
            rows.append((variant.name, "", "", "", why))
    for line in columns(["variant", "data", "seed", "minutes", "state"], rows):
        typer.echo(line)
    left = sum(minutes[task.folder] for task in tasks if not task.finished and task.folder not in made)
    typer.echo("")
    by = "by the budget" if plan.budget else f"from one timed step of each kind on {devices[0]}, alone there"
    typer.echo(f"  {left:.1f} minutes of training ({by}); {jobs} at a time on {', '.join(devices)}: ", nl=False)
    typer.echo(f"about {spoken(60 * left / jobs)} if they do not slow each other down, and reading and reports.")


def _tell_files(files: Sequence[Path]) -> None:
    typer.echo(f"report: {files[0]}; table: {files[1]}")


def _tell_end(carried: Carried, total: int) -> bool:
    """Whether nothing is left to do."""
    if carried.stopped:
        typer.echo(f"stopped: {len(carried.finished)} of {total} runs are finished; the same command goes on")
    for title, reason in carried.failed.items():
        typer.echo(f"failed: {title}: {reason}")
    return not (carried.stopped or carried.failed)
