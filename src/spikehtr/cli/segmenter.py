"""`spikehtr segmenter`: line networks, which find the lines of pages: train, evaluate, pack, export."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from spikehtr.cli.options import AsJson, Device, Rotate, Spread, layout_options, pick_device, print_json
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spikehtr.pages.segment.packed_pages import PackedPage
    from spikehtr.pages.segment.score_pages import Row
    from spikehtr.pages.segment.train_network import Trainer

app = typer.Typer(help="Line networks, which find the lines of pages (--segmenter).", no_args_is_help=True)

Pages = Annotated[
    list[Path],
    typer.Argument(
        metavar="PAGES...",
        help="Folders with a folder of PAGE or ALTO files and their images for each collection, or packed ones.",
    ),
]
Fold = Annotated[Optional[int], typer.Option("--fold", min=0, max=4, help="One of five parts by collection; 0 to 4.")]


@app.command()
def train(
    pages: Pages,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run.")],
    minutes: Annotated[Optional[float], typer.Option("--minutes", min=0, help="How long to train.")] = None,
    steps: Annotated[Optional[int], typer.Option("--steps", min=1, help="How long to train, in steps.")] = None,
    fold: Fold = None,
    leave_out: Annotated[
        Optional[list[str]],
        typer.Option("--leave-out", metavar="COLLECTION", help="Do not train on it; score it at the end. Repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    small: Annotated[
        bool, typer.Option("--small", help="A network of a fortieth of the size, for trying out.")
    ] = False,
    burst: Annotated[
        int,
        typer.Option("--burst", min=0, help="Neurons that fire up to so many times in place of ReLU; 0: none."),
    ] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Parts of pages in a step.")] = 16,
    size: Annotated[int, typer.Option("--size", min=64, help="Pixels of a part's side, a multiple of 32.")] = 640,
    learning_rate: Annotated[float, typer.Option("--learning-rate", min=0)] = 3e-3,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Processes that cut parts out of pages.")] = 3,
    seed: Annotated[int, typer.Option("--seed")] = 1,
    worst: Annotated[int, typer.Option("--worst", min=0, max=200, help="Worst pages to show in the report.")] = 12,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Train a line network on pages whose lines are known, and score it on the collections that are left out.

    The folder then holds segmenter.safetensors, for --segmenter, whose header says what it learned from and how well it
    does; report.html with the worst pages as pictures; and pages.jsonl, the figures of each page. Choose on collections
    that were left out: pages of a collection are like each other.
    """
    from spikehtr.pages.segment.line_network import SMALL, NetworkShape
    from spikehtr.pages.segment.train_network import LAST, LOG, Trainer, TrainOptions
    from spikehtr.pages.segment.training_run import divided, finish, gathered

    if (minutes is None) == (steps is None):
        raise SpikeHTRError("give either --minutes or --steps, how long to train")
    if size % 32:
        raise SpikeHTRError(f"--size {size}: must be a multiple of 32")
    chosen = pick_device(device)
    make_folder(output)
    if not resume:
        if (output / LAST).exists():
            raise SpikeHTRError(f"{output}: holds a run already; go on with --resume, or name another folder")
        (output / LOG).unlink(missing_ok=True)  # of a run that ended before its first checkpoint
    options = TrainOptions(
        minutes=minutes, steps=steps, batch=batch, size=size, learning_rate=learning_rate, workers=workers, seed=seed
    )
    every, digest, problems = gathered(pages, output, resume)
    _list("left out", problems)
    kept, others = divided(every, fold, leave_out or [])
    about = {"collections": sorted({page.collection for page in kept}), "pages": len(kept), "data": digest}
    shape = replace(SMALL if small else NetworkShape(), burst=burst)
    trainer = Trainer(output, options, shape, chosen, about)
    began = trainer.step if resume and trainer.resume() else 0
    going_on = f", goes on from step {began}" if began else ""
    typer.echo(f"{len(kept)} pages to train on, {len(others)} left out{going_on}", err=True)
    _train(trainer, kept)
    with counting("scoring", len(others)) as tell:
        rows = finish(output, trainer, others, shlex.join(["spikehtr", *sys.argv[1:]]), worst, tell)
    _show(rows, as_json, [output / name for name in ("segmenter.safetensors", "report.html")])


def _train(trainer: Trainer, kept: list[PackedPage]) -> None:
    with counting("training", 1000) as tell:
        trainer.train(kept, progress=lambda done: tell(round(1000 * done)))


@app.command()
def evaluate(
    segmenters: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME|FILE...", help="network, rules, kraken, or weight files of line networks; one or more."
        ),
    ],
    pages: Annotated[
        list[Path], typer.Option("--data", "-d", metavar="PAGES", help="Folders of pages, as to train on. Repeatable.")
    ],
    fold: Fold = None,
    only: Annotated[
        Optional[list[str]], typer.Option("--only", metavar="COLLECTION", help="Score only this one. Repeatable.")
    ] = None,
    view: Annotated[
        Literal["plain", "photo", "turned", "cropped"],
        typer.Option(
            "--view",
            help="How pages are shown: as they are; as if photographed (border, shade, perspective, noise); turned by "
            "90, 180 and 270 degrees; cut to landscape.",
        ),
    ] = "plain",
    rotate: Rotate = "auto",
    spread: Spread = None,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="Folder for report.html and pages.jsonl, of each.")
    ] = None,
    worst: Annotated[int, typer.Option("--worst", min=0, max=200, help="Worst pages to show in the report.")] = 12,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the lines of pages whose lines are known, and compare: how much is found, split, merged, out of order.

    Figures are means over pages. Exit code 1 if a page could not be used.
    """
    from spikehtr.pages.segment.evaluation_run import run_evaluation
    from spikehtr.pages.segmenters import segmenter

    chosen = pick_device(device)
    layout = layout_options(rotate, spread)
    found = {name: segmenter(name, chosen, layout) for name in segmenters}
    if output:
        make_folder(output)
    command = shlex.join(["spikehtr", *sys.argv[1:]])
    problems: list[str] = []
    results: dict[str, list[Row]] = {}
    files = []
    for name, find in found.items():
        folder = output if output is None or len(found) == 1 else output / Path(name).stem
        with counting(name) as tell:
            problems.clear()
            results[name] = run_evaluation(
                find, pages, fold, only, view, problems, folder, worst, command, chosen, tell
            )
        files += [folder / "report.html"] if folder else []
        if not as_json:
            typer.echo(f"{name}:") if len(found) > 1 else None
            _show(results[name], False, [])
    if as_json:
        print_json({name: _summary(rows) for name, rows in results.items()})
    for file in files:
        typer.echo(f"wrote {file}", err=True)
    _list("could not be used", problems)
    if problems:
        raise typer.Exit(1)


@app.command()
def pack(
    pages: Pages,
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed folder to write.")],
) -> None:
    """Keep pages and their lines in one compact folder, grey and at most 1,600 pixels long, to train from elsewhere."""
    from spikehtr.pages.segment.packed_pages import pack as write

    make_folder(output)
    problems = write(pages, output)
    _list("left out", problems)
    if problems:
        raise typer.Exit(1)


@app.command()
def compose(
    output: Annotated[Path, typer.Option("--output", "-o", help="The packed folder to write.")],
    text: Annotated[
        list[Path], typer.Option("--text", help="Plain text or a word list, UTF-8, also packed (.gz). Repeatable.")
    ],
    like: Annotated[
        Optional[list[Path]],
        typer.Option("--like", metavar="PACKED", help="Packed pages whose paper is written on. Repeatable."),
    ] = None,
    fonts: Annotated[
        Optional[Path], typer.Option("--fonts", help="Folder of .ttf and .otf files; without it, the two we ship.")
    ] = None,
    fold: Annotated[
        Optional[int],
        typer.Option(
            "--fold", min=0, max=4, help="Without the paper of this fold of --like: the pages that are trained on."
        ),
    ] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many pages.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="The same seed draws the same pages.")] = 0,
) -> None:
    """Draw pages to train on beside real ones, whose lines are known exactly: text with notes in the margin, columns,
    tables, registers, letters, spreads, on the paper of real pages."""
    from spikehtr.assets import FONTS
    from spikehtr.data.synthesis.drawn_store import gather
    from spikehtr.data.synthesis.paper import lift_papers
    from spikehtr.pages.segment.compose_pages import compose_many
    from spikehtr.pages.segment.packed_pages import INDEX, pack_composed, unpack
    from spikehtr.pages.segment.training_run import divided

    if fold is not None and not like:
        raise SpikeHTRError("--fold is of the pages of --like: name them")
    make_folder(output)
    if (output / INDEX).exists():
        raise SpikeHTRError(f"{output}: holds packed pages already: name another folder")
    sources, report = gather(text, [], fonts or FONTS, seed=seed)
    pages: Iterable[PackedPage] = (page for folder in like or [] for page in unpack(folder))
    if fold is not None:
        pages, _ = divided(list(pages), fold, [])
    sources.papers.extend(lift_papers((page.image for page in pages), seed))
    with counting("drawing pages", number) as tell:
        count = pack_composed(compose_many(sources, seed, number), output, tell)
    made_of = f"{report.texts} texts, {report.fonts.fonts} fonts, {len(sources.papers)} papers"
    typer.echo(f"wrote {output}: {count} pages of {made_of}")


@app.command()
def export(
    weights: Annotated[Path, typer.Argument(metavar="FILE", help="The weight file of a line network.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A file that ends in .onnx, or in .safetensors for 16-bit kernels.")
    ],
) -> None:
    """Write a line network as ONNX, or with its kernels in 16 bits."""
    from spikehtr.pages.segment import network_onnx as onnx
    from spikehtr.pages.segment import network_weights

    network, about = network_weights.load(weights), network_weights.line_network_header(weights)
    if output.suffix == ".onnx":
        onnx.save(network, output, about)
    elif output.suffix == ".safetensors":
        network_weights.save(output, network.state_dict(), network.shape, about, half=True)
    else:
        raise SpikeHTRError(f"{output}: what it is to be is told by its ending; give .onnx or .safetensors")


def _summary(rows: list[Row]) -> dict[str, object]:
    from spikehtr.pages.segment.score_pages import by_collection

    collections = [{"collection": name, "pages": count, **mean} for name, count, mean in by_collection(rows)]
    return {"collections": collections[:-1], "all": collections[-1] | {"collection": None}, "rows": rows}


def _show(rows: list[Row], as_json: bool, files: list[Path]) -> None:
    from spikehtr.pages.segment.score_pages import table

    if as_json:
        print_json(_summary(rows))
    elif rows:
        typer.echo("\n".join(table(rows)))
    for file in files:
        typer.echo(f"wrote {file}", err=True)


def _list(title: str, problems: list[str]) -> None:
    if problems:
        typer.echo("\n  ".join([f"{len(problems)} {title}:", *problems]), err=True)
