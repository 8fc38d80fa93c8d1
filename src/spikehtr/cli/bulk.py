"""`spikehtr bulk`: millions of pages, on a Ray cluster or on this machine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from spikehtr.cli.groups import RunByDefault
from spikehtr.cli.options import Beam, LanguageModelFile, LMWeight, Rotate, SegmenterName, Spread, layout_options
from spikehtr.cli.transcribe import Form
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.recognizer import Recognizer


app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Read millions of pages, on a Ray cluster or on this machine. `bulk INPUT... -o DIR` is `bulk run`.",
)


@app.command()
def run(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run, which all machines can see.")],
    inputs: Annotated[
        Optional[list[str]],
        typer.Argument(
            metavar="INPUT...",
            help="CSV or Parquet files of ids and locations (s3://, gs://, https:// too), folders, images, PDF, PAGE "
            "and ALTO files, IIIF manifests and collections. None: go on with the run in the folder.",
        ),
    ] = None,
    model: Annotated[
        Optional[Path], typer.Option("--model", "-m", help="Model file (.safetensors). (default: bundled)")
    ] = None,
    lm: LanguageModelFile = None,
    beam: Beam = None,
    lm_weight: LMWeight = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="Of the documents that are kept.")] = Form.page,
    address: Annotated[
        Optional[str],
        typer.Option("--address", help="A Ray cluster, auto for the one at hand. (default: a Ray of its own)"),
    ] = None,
    workers: Annotated[
        Optional[int], typer.Option("--workers", min=1, help="Actors that open pages and find lines, a core each.")
    ] = None,
    readers: Annotated[
        Optional[int], typer.Option("--readers", min=1, help="Actors that read. (default: one a GPU, or one)")
    ] = None,
    segmenter: SegmenterName = "builtin",
    rotate: Rotate = "auto",
    spread: Spread = None,
    straighten: Annotated[
        Optional[bool], typer.Option("--straighten/--no-straighten", help="Make sloping lines level before.")
    ] = None,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", min=0, max=1, help="Mark words that are less sure than this.")
    ] = 0.0,
    dpi: Annotated[int, typer.Option("--dpi", min=50, max=1200, help="At what resolution PDF pages are read.")] = 300,
    batch_size: Annotated[Optional[int], typer.Option("--batch-size", min=1, help="Lines read at a time.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option("--device", help="That readers use.")] = "auto",
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp64"], typer.Option("--precision", help="As `transcribe` has it.")
    ] = "auto",
    requests_per_second: Annotated[
        float, typer.Option("--requests-per-second", min=0.01, max=100, help="Asked of one server at most.")
    ] = 2.0,
    cache: Annotated[
        Optional[Path], typer.Option("--cache", help="Folder for what is fetched, shared by all. (default: ~/.cache)")
    ] = None,
) -> None:
    """Read all pages into Parquet files; the same command goes on with a run that was stopped or killed.

    Every page ends as one row: with its text and its document, or with the kind of error and its reason. The report at
    the end counts them and names the pages that are likely to hold most errors. `bulk unpack` writes the documents as
    files. Exit code 1 if a page could not be done.
    """
    from spikehtr.bulk.run import BulkOptions, run_bulk
    from spikehtr.data.geometry import LineFitting
    from spikehtr.pages.iiif import ClientOptions
    from spikehtr.pages.page_format import PageFormat
    from spikehtr.pages.page_lines import ReadOptions
    from spikehtr.pages.segmenters import segmenter as segmenter_named
    from spikehtr.weights import BUNDLED, load_model

    chosen = str(model.absolute()) if model else BUNDLED
    config = load_model(chosen).config
    level = config.data.straighten if straighten is None else straighten
    described: dict[str, object] = {
        "model": Path(chosen).name,
        "format": form.value,
        "segmenter": segmenter,
        "dpi": dpi,
    }
    described |= {"rotate": rotate} if rotate != "auto" else {}
    described |= {"spread": spread} if spread is not None else {}
    described |= {"straighten": level, "precision": precision, "min_confidence": min_confidence}
    described |= {"lm": lm, "beam": beam, "lm_weight": lm_weight}
    lm = str(Path(lm).absolute()) if lm and Path(lm).exists() else lm  # wherever the reader runs
    report = run_bulk(
        inputs or [],
        output,
        partial(load_recognizer, chosen, device, precision, straighten, (lm, beam, lm_weight)),
        LineFitting(config.model.height, config.data.max_width, level),
        ReadOptions(segmenter_named(segmenter, layout=layout_options(rotate, spread)), dpi=dpi),
        PageFormat(form.value, min_confidence),
        ClientOptions(cache, requests_per_second),
        BulkOptions(address, workers, readers),
        lambda text: typer.echo(text, err=True),
        described,
        batch_size,
    )
    typer.echo(report.to_text(), err=True)
    typer.echo(f"results in {output / 'results'}, report in {output / 'report.json'}", err=True)
    if report.errors or report.missing:
        raise typer.Exit(1)


def load_recognizer(
    model: str,
    device: str,
    precision: Literal["auto", "fp32", "bf16", "fp64"],
    straighten: bool | None,
    language: tuple[str | None, int | None, float | None],
) -> Recognizer:
    """The reader of an actor, on the GPU that Ray gave it. `language`: its model, beam and weight."""
    import torch

    from spikehtr.recognizer import Recognizer

    where = "cuda" if device == "auto" and torch.cuda.is_available() else "cpu" if device == "auto" else device
    return Recognizer.load(model, where, precision, straighten, *language)


@app.command()
def unpack(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files, one a page.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace also what was changed or is not ours; kept as NAME.bak.")
    ] = False,
) -> None:
    """Write the documents of a bulk run as files, as `transcribe` would have."""
    from spikehtr.bulk.unpack import unpack as write_files
    from spikehtr.cli.progress import counting

    if output.exists() and not output.is_dir():
        raise SpikeHTRError(f"{output}: is a file; name a folder")
    with counting("unpacking") as tell:
        done = write_files(folder, output, overwrite, tell)
    typer.echo(f"{done.written} files into {output}", err=True)
    for title, entries in (("left alone", done.left), ("without a result", done.failed)):
        if entries:
            typer.echo("\n  ".join([f"{len(entries)} {title}:", *entries[:20]]), err=True)
    if done.left:
        raise typer.Exit(1)
