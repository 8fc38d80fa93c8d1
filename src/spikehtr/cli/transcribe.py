"""`spikehtr transcribe`: read lines, pages and documents."""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Optional

import typer

from spikehtr.cli.options import (
    Beam,
    LanguageModelFile,
    LMWeight,
    Rotate,
    SegmenterName,
    Spread,
    layout_options,
    pick_device,
)
from spikehtr.cli.progress import page_progress
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.pages.protected_results import FileState
    from spikehtr.pages.transcribe_run import TranscribeRun


_POOR = 0.1  # share of wrong characters from which a way out is named


class Form(str, Enum):  # noqa: UP042 (typer shows its values)
    text = "text"
    json = "json"
    page = "page"
    alto = "alto"
    hocr = "hocr"
    iiif = "iiif"


class As(str, Enum):  # noqa: UP042
    auto = "auto"
    line = "line"
    page = "page"


def transcribe(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Images of lines or pages, PDF, PAGE or ALTO files (their images beside them), folders, globs; "
            "IIIF manifests and collections by their address.",
        ),
    ],
    model: Annotated[
        Optional[Path],
        typer.Option("--model", "-m", help="Model file (.safetensors). (default: bundled, the one that comes along)"),
    ] = None,
    lm: LanguageModelFile = None,
    beam: Beam = None,
    lm_weight: LMWeight = None,
    form: Annotated[
        Optional[Form], typer.Option("--format", "-f", help="What to write. (default: text; page with --lines-only)")
    ] = None,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="Folder for the results, one file a page.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Leave pages alone whose result is there.")] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace also what was changed or is not ours; it is kept as NAME.bak."),
    ] = False,
    kind: Annotated[As, typer.Option("--as", help="What images are; auto: low or very wide ones are lines.")] = As.auto,
    segmenter: SegmenterName = "builtin",
    rotate: Rotate = "auto",
    spread: Spread = None,
    straighten: Annotated[
        Optional[bool],
        typer.Option(
            "--straighten/--no-straighten",
            help="Make sloping lines level before they are read. (default: as the model has it)",
        ),
    ] = None,
    lines_only: Annotated[
        bool,
        typer.Option("--lines-only", help="Find the lines (--segmenter) and write them down; --model is not needed."),
    ] = False,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", min=0, max=1, help="Mark words that are less sure than this.")
    ] = 0.0,
    confidences: Annotated[
        bool, typer.Option("--confidences", help="Text: begin each line with how sure it is, from 0 to 1, and a tab.")
    ] = False,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Draw lines, order and text into NAME.overlay.png as well.")
    ] = False,
    images: Annotated[
        bool,
        typer.Option("--images", help="Write the pages of PDF and TIFF files, and what was fetched, as PNG, too."),
    ] = False,
    glyphs: Annotated[
        bool, typer.Option("--glyphs", help="PAGE, ALTO: an element for each character, too (json has them anyway).")
    ] = False,
    dpi: Annotated[int, typer.Option("--dpi", min=50, max=1200, help="At what resolution PDF pages are read.")] = 300,
    batch_size: Annotated[
        Optional[int], typer.Option("--batch-size", min=1, help="Lines read at a time; 16 on a CPU, 128 on a GPU.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    precision: Annotated[
        Literal["auto", "fp32", "bf16", "fp64"],
        typer.Option(
            "--precision",
            help="auto: bf16 where that is faster; fp32 rounds less; fp64 is slow, but no text hangs on rounding.",
        ),
    ] = "auto",
    workers: Annotated[
        Optional[int],
        typer.Option("--workers", min=0, help="Processes that open pages and find lines; as many as cores by default."),
    ] = None,
    shard: Annotated[
        Optional[str], typer.Option("--shard", metavar="I/N", help="Only the I-th of N parts of the pages: job arrays.")
    ] = None,
    requests_per_second: Annotated[
        float, typer.Option("--requests-per-second", min=0.01, max=100, help="Asked of one server at most.")
    ] = 2.0,
    cache: Annotated[
        Optional[Path], typer.Option("--cache", help="Folder for what is fetched. (default: ~/.cache/spikehtr)")
    ] = None,
) -> None:
    """Read handwriting: find the lines of each page, read them, write what they say.

    PAGE and ALTO files keep their lines and ids and get the text. Without --output, results go to the terminal. A page
    (or a given line) that cannot be read is listed at the end, and the exit code is then 1; the others are done all the
    same. A result that somebody changed, or a file that spikehtr did not write, is never replaced unless --overwrite is
    given: it is listed too.
    """
    form = form or (Form.page if lines_only else Form.text)
    if lines_only:
        unused = {
            "--model": model,
            "--min-confidence": min_confidence,
            "--straighten": straighten is not None,
            "--precision": precision != "auto",
            "--batch-size": batch_size,
            "--lm": lm,
            "--beam": beam,
            "--lm-weight": lm_weight is not None,
        }
        _check_unread(form, unused)
    if confidences and form is not Form.text:
        raise SpikeHTRError(f"--confidences is for -f text; {form.value} holds them anyway: leave it out")
    if glyphs and form not in (Form.page, Form.alto):
        why = "json holds them anyway" if form is Form.json else f"{form.value} has no element for a character"
        raise SpikeHTRError(f"--glyphs is for -f page and alto; {why}: leave it out")
    _check(form, output, resume=resume, overlay=overlay, overwrite=overwrite, images=images)
    warnings.filterwarnings("ignore", module="PIL")  # odd metadata: what cannot be read is told in the list
    chosen = pick_device(device)
    from spikehtr.pages.iiif import ClientOptions
    from spikehtr.pages.inputs import find_sources
    from spikehtr.pages.page_lines import ReadOptions
    from spikehtr.pages.segmenters import segmenter as segmenter_named
    from spikehtr.pages.shard import Shard
    from spikehtr.pages.transcribe_run import TranscribeRun, transcribe
    from spikehtr.pages.worker_pool import available_cores
    from spikehtr.recognizer import Recognizer
    from spikehtr.weights import BUNDLED

    part = None if shard is None else Shard.parse(shard)
    client = ClientOptions(cache, requests_per_second)
    sources, missing, remarks = find_sources(inputs, output, client)
    if not sources:
        raise SpikeHTRError("nothing to read: " + "; ".join(f"{one.title}: {one.reason}" for one in missing))
    find = segmenter_named(segmenter, chosen, layout_options(rotate, spread))
    recognizer = (
        None if lines_only else Recognizer.load(model or BUNDLED, chosen, precision, straighten, lm, beam, lm_weight)
    )
    batch_size = batch_size or (recognizer.reader.batch_size if recognizer else 1)
    if recognizer is not None and precision == "auto" and recognizer.precision == "bf16":
        typer.echo("reading in bf16, which is faster here; --precision fp32 rounds less", err=True)
    workers = available_cores() if workers is None else workers
    how = ReadOptions(find, kind.value, batch_size, dpi, workers, keep_image=overlay, images=images)
    run = TranscribeRun(
        form.value,
        output,
        resume,
        overlay,
        min_confidence,
        overwrite,
        confidences,
        glyphs,
        images,
        dpi,
        part,
        failures=missing,
        remarks=remarks,
    )
    with page_progress(len(sources), lambda: len(run.failures)) as (found, told, done):
        for job, result in transcribe(recognizer, sources, how, run, found, told):
            if result is not None:
                _show(job.name, result, form, len(sources))
            done()
    if run.origins.trouble:
        run.remarks.append(run.origins.trouble)
    if run.results is not None:
        run.remarks += [f"{path}: replaced; what stood there is kept as {kept}" for path, kept in run.results.backups]
    _report(run, str(model or BUNDLED))


def _check_unread(form: Form, options: Mapping[str, object]) -> None:
    """What makes no sense where nothing is read."""
    if form in (Form.text, Form.iiif):
        raise SpikeHTRError("--lines-only reads nothing, so there is no text: add -f page, alto, hocr or json")
    for name, given in options.items():
        if given:
            raise SpikeHTRError(f"--lines-only reads nothing, so {name} has no use: leave one of them out")


def _check(form: Form, output: Path | None, **flags: bool) -> None:
    """Wrong use is found out before anything is loaded."""
    if output is None:
        for name, wanted in flags.items():
            if wanted:
                raise SpikeHTRError(f"--{name} needs a folder for the results: add --output DIR")
        if form in (Form.page, Form.alto, Form.hocr, Form.iiif):
            raise SpikeHTRError(f"--format {form.value} writes one file a page: add --output DIR")
        return
    if output.exists() and not output.is_dir():
        raise SpikeHTRError(f"{output}: is a file; name a folder")
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=output, prefix=".spikehtr."):
            pass
    except OSError as error:
        raise SpikeHTRError(f"{output}: cannot be written ({error.strerror}); name another folder") from None


def _show(name: str, result: str, form: Form, sources: int) -> None:
    from spikehtr.results.xml_text import clean

    if form is Form.text and sources > 1:
        typer.echo(f"==> {clean(name)} <==")
    typer.echo(result, nl=False)
    sys.stdout.flush()


def _several(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)


def _left(state: FileState, number: int) -> str:
    """What is said of files that stand where results would go."""
    from spikehtr.pages.origins import FILE
    from spikehtr.pages.protected_results import FileState

    files, replaces = _several(number, "file"), "--overwrite replaces such files and keeps a backup"
    if state is FileState.CHANGED:
        return f"{_several(number, 'result')} left alone, changed since written ({replaces})"
    if state is FileState.READ_ONLY:
        which = "it" if number == 1 else "them"
        return f"{files} left alone, read-only (make {which} writable, or give another folder)"
    reason = f"by another program or an earlier version, or {FILE} was deleted"
    return f"{files} left alone, not known as ours: {reason} (give another folder; {replaces})"


def _expectation(error: float, model: str) -> str:
    """How good the text is likely to be, and what helps where it is not."""
    from spikehtr.results.expected_error import in_words

    said = f"expected: {in_words(error)}, by how sure the model was"
    if error < _POOR:
        return said
    return (
        f"{said}. To read this hand better, correct some 50 lines and fine-tune: "
        f"spikehtr train -d CORRECTED --from {model} -o runs/my-hand"
    )


def _report(run: TranscribeRun, model: str) -> None:
    """A word on what was done, and every failure, on stderr; exit code 1 if there was any."""
    from spikehtr.pages.transcribe_run import NAMED

    parts = [f"{_several(run.read, 'page')}, {_several(run.lines, 'line')}"]
    if run.skipped:
        changed = f", {run.skipped_changed} of them changed since written" if run.skipped_changed else ""
        parts.append(f"{_several(run.skipped, 'page')} there already{changed}")
    if run.folder is not None:
        typer.echo("; ".join(parts), err=True)
        if run.written:
            named = ", ".join(map(str, run.written)) if len(run.written) <= NAMED else f"results into {run.folder}"
            typer.echo(f"wrote {named}", err=True)
    if run.expected_error is not None and (run.folder is not None or run.expected_error >= _POOR):
        typer.echo(_expectation(run.expected_error, model), err=True)
    failed = [f"{failure.title}: {failure.reason}" for failure in run.failures]
    left = [(_left(state, len(paths)), list(map(str, paths))) for state, paths in run.left.items()]
    lists = (
        (_several(len(run.remarks), "remark"), run.remarks),
        (f"{_several(len(run.left_out), 'line')} left out", run.left_out),
        *left,
        (f"{len(failed)} could not be done", failed),
    )
    for title, entries in lists:
        if entries:
            typer.echo("\n  ".join([f"{title}:", *entries]), err=True)
    if run.left_out or left or failed:
        raise typer.Exit(1)
