"""`spikehtr data`: check, stats, compile, preview, synth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli import options
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError
from spikehtr.files import write_json

if TYPE_CHECKING:
    from spikehtr.data.check import DataCheck
    from spikehtr.data.samples import ImportReport
    from spikehtr.data.synth import SynthReport

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="What to read: a folder or file of any known format, or format:path "
        "(iam, lam, read2016, page, alto, folder, parquet, ln, store).",
    ),
]

app = typer.Typer(help="Look at data, compile it, make it.", no_args_is_help=True)


@app.command()
def check(
    sources: Sources,
    preset: options.Preset = None,
    file: options.ConfigFile = None,
    overrides: options.Overrides = None,
    start: options.StartFrom = None,
    charset: options.CharsetMode = None,
    allow_unknown: options.AllowUnknown = False,
    every: Annotated[bool, typer.Option("--all", help="List every problem, not one example of each kind.")] = False,
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="Also write the report as JSON here.")
    ] = None,
    machine_lines: options.MachineLines = False,
    as_json: options.AsJson = False,
) -> None:
    """Look every line over before training: what cannot be read, learned or trusted, where it is, and what to do.

    Give it the settings of the training: -p, -c or --from, and -s. Lines are compiled into the cache as `train` takes
    them, which then need not be done again. Exit code 0: nothing to mend; 1: something must be mended, though `train`
    would run without it; 2: `train` would stop here, with the same message, or wrong use.
    """
    options.check_start(start, charset, preset, file)
    config = options.resolve(preset, file, None if start else overrides)
    if output:
        options.writable(output)
    from spikehtr.data.check import check_data
    from spikehtr.training.dry_run import reason_to_stop
    from spikehtr.training.job import Job
    from spikehtr.weights import load_model

    model = load_model(start) if start else None
    config = options.fine_tuned(model).with_overrides(overrides or []) if model else config
    more = {"allow_unknown": allow_unknown, "machine_lines": machine_lines}
    job = Job(config, sources, Path(), start, charset or "extend", **more)
    with counting("checking lines") as progress:
        found = check_data(sources, config, progress, machine_lines=machine_lines)
    with counting("compiling lines") as progress:
        found.stops = reason_to_stop(job, model, found.report, progress)
    if output:
        write_json(output, found.to_dict())
    if as_json:
        options.print_json(found.to_dict())
    else:
        _print_splits(found)
        _print_problems(found.report, every)
    if found.stops is not None:
        raise SpikeHTRError(found.stops)
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def stats(sources: Sources, machine_lines: options.MachineLines = False, as_json: options.AsJson = False) -> None:
    """Count lines, characters, widths and text lengths, split by split; and what cannot be read."""
    from spikehtr.config import Config
    from spikehtr.data.check import check_data

    with counting("reading lines") as progress:
        found = check_data(sources, Config(), progress, deep=False, machine_lines=machine_lines)
    if as_json:
        options.print_json(found.to_dict())
    else:
        _print_splits(found)
        if found.report.counts:
            _print_problems(found.report, every=False)


@app.command("compile")
def compile_(
    sources: Sources,
    output: Annotated[Path, typer.Option("--output", "-o", help="The store to write, e.g. lines.arrow.")],
    max_width: Annotated[
        Optional[int],
        typer.Option(
            "--max-width", min=16, help="Fit lines to this data.max_width now: quicker, but for that width only."
        ),
    ] = None,
    height: Annotated[
        int,
        typer.Option("--height", min=8, help="Pixels: the model.height it is for, or the greatest of several."),
    ] = 64,
    straighten: Annotated[
        bool, typer.Option("--straighten", help="Make lines level, for models with data.straighten=true.")
    ] = False,
    machine_lines: options.MachineLines = False,
    every: Annotated[bool, typer.Option("--all", help="List every problem, not one example of each kind.")] = False,
) -> None:
    """Read any sources into one fast store.

    A store serves networks of every height: for another one than its own its lines are scaled, once, and it is said.
    A run that was stopped goes on where it was when it is started again. Lines that cannot be used are counted,
    with an example of each kind; those without text aside, the exit code is then 1.
    """
    options.writable(output)
    from spikehtr.data.compiling import compile_store, scaled_again
    from spikehtr.data.samples import printable

    with counting("compiling lines") as progress:
        store, report = compile_store(sources, output, height, max_width, progress, straighten, machine_lines)
    for remark in scaled_again(sources, height):
        typer.echo(remark)
    lines = ", ".join(f"{number} {split}" for split, number in sorted(store.meta["lines"].items()))
    size = output.stat().st_size / 2**20
    typer.echo(
        f"wrote {printable(output)}: {len(store)} lines ({lines}), {size:.1f} MiB, {len(store.charset) - 1} characters"
    )
    _print_left_out(report)
    if report.counts:
        _print_problems(report, every, "compile")
    if report.count("error"):
        raise typer.Exit(1)


@app.command()
def preview(
    sources: Sources,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG to write.")] = Path("preview.png"),
    number: Annotated[int, typer.Option("--number", "-n", min=1, max=40, help="How many lines to draw.")] = 8,
    versions: Annotated[int, typer.Option("--versions", min=1, max=8, help="Augmented versions of each.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="Which lines, and which augmentations.")] = 0,
    preset: options.Preset = None,
    file: options.ConfigFile = None,
    overrides: options.Overrides = None,
) -> None:
    """Draw some lines with their transcripts, and what augmentation (data.augment) makes of them."""
    config = options.resolve(preset, file, overrides)
    options.writable(output, ".png")
    import numpy as np

    from spikehtr.data.compiling import open_lines
    from spikehtr.data.geometry import shrink_line
    from spikehtr.data.sheet import draw_sheet

    with counting("reading lines") as progress:
        store = open_lines(sources, config.model.height, progress=progress, straighten=config.data.straighten)
    rows = np.random.default_rng(seed).permutation(len(store))[:number]
    lines = [(shrink_line(store.line(int(row)), config.data.max_width), store.text(int(row))) for row in rows]
    draw_sheet(lines, config.data.augment, output, versions, seed)
    typer.echo(f"wrote {output}: {len(lines)} of {len(store)} lines")


@app.command()
def synth(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="A store to write (NAME.arrow), or a folder for NNNNNN.png and .gt.txt."),
    ],
    text: Annotated[
        Optional[list[Path]],
        typer.Option("--text", help="Plain text or a word list, UTF-8, also packed (.gz). Repeatable for a store."),
    ] = None,
    like: Annotated[
        Optional[list[str]],
        typer.Option("--like", help="Lines whose training part lends texts, paper and ink to a store. Repeatable."),
    ] = None,
    fonts: Annotated[
        Optional[Path], typer.Option("--fonts", help="Folder of .ttf and .otf files; without it, the two we ship.")
    ] = None,
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="How many lines.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed draws the same lines.")] = 0,
    validation: Annotated[
        int, typer.Option("--validation", min=0, help="So many lines more in a store, to validate on.")
    ] = 0,
    height: Annotated[int, typer.Option("--height", min=8, help="Height of the lines, pixels.")] = 64,
    max_width: Annotated[
        Optional[int], typer.Option("--max-width", min=8, help="Fit a store's lines to this width once and for all.")
    ] = None,
    workers: Annotated[
        Optional[int], typer.Option("--workers", min=1, help="Processes that draw a store; without it, all cores.")
    ] = None,
) -> None:
    """Draw lines of text in handwriting fonts: for tests and demos into a folder, for pre-training into a store."""
    from spikehtr.assets import FONTS

    if output.suffix == ".arrow":
        from spikehtr.data.synthesis.drawn_store import draw_store, gather

        options.writable(output)
        sources, report = gather(text or [], like or [], fonts or FONTS, height, seed)
        with counting("drawing lines", number + validation) as progress:
            store = draw_store(sources, report, output, number, seed, validation, max_width, workers, progress)
        size = output.stat().st_size / 2**20
        typer.echo(
            f"wrote {output}: {len(store)} lines, {size:.1f} MiB, of {report.texts} texts, {report.fonts.fonts} fonts, "
            f"{report.papers} pieces of paper; {len(store.charset) - 1} characters"
        )
        for why, count in report.skipped.most_common():
            typer.echo(f"passed over: {why}: {count}")
        _print_fonts_left_out(report.fonts)
        return
    from spikehtr.data.synth import split_corpus, synthesise
    from spikehtr.files import read_text

    if not text or len(text) > 1 or like or validation or max_width or workers:
        raise SpikeHTRError(
            f"{output}: a folder takes one --text and no --like, --validation, --max-width or --workers; "
            "a store (-o NAME.arrow) takes them all"
        )
    corpus = read_text(text[0])
    with counting("drawing lines", number) as progress:
        made = synthesise(split_corpus(corpus, seed), fonts or FONTS, number, output, seed, height, progress)
    typer.echo(
        f"{output}: {made.written} lines drawn, {made.kept} already there, from {made.texts} texts, {made.fonts} fonts"
    )
    _print_fonts_left_out(made)
    if made.skipped:
        from spikehtr.text import show

        rare = show(character for character, _ in made.missing.most_common(10))
        typer.echo(f"left out {made.skipped} texts with characters that no font has: {rare}")


def _print_fonts_left_out(made: SynthReport) -> None:
    for path, why in made.unreadable:
        typer.echo(f"left out the font {path}: {why}")


def _print_splits(found: DataCheck) -> None:
    from spikehtr.data.check import histogram_bars

    typer.echo(f"{', '.join(found.sources)}: {found.report.used} lines")
    for name, s in sorted(found.splits.items()):
        typer.echo(f"  {name:10s} {s.lines:7d} lines, {s.characters} characters, {len(s.charset)} of them different")
        for what, values in (("width, px", sorted(s.widths)), ("length", sorted(s.lengths))):
            middle = values[len(values) // 2]
            typer.echo(f"    {what:9s} {values[0]:5d} |{histogram_bars(values)}| {values[-1]:<5d} median {middle}")
    characters = sorted(set().union(*(s.charset for s in found.splits.values())))
    typer.echo(f"  charset    {''.join(characters)}")
    _print_left_out(found.report)


def _print_left_out(report: ImportReport) -> None:
    from spikehtr.data.samples import machine_lines_remark

    if report.machine_read and report.used:  # where none is left, that is an error
        typer.echo(machine_lines_remark(report.machine_read, report.used))


def _print_problems(report: ImportReport, every: bool, verb: str = "check") -> None:
    """Errors first, then warnings, the commonest first: an example of each kind, or all."""
    if not report.counts:
        typer.echo("nothing to mend")
        return
    for (severity, kind), number in sorted(report.counts.items(), key=lambda item: (item[0][0], -item[1])):
        typer.echo(f"{severity}: {kind}: {number} {'line' if number == 1 else 'lines'}")
        listed = [p for p in report.problems if (p.severity, p.kind) == (severity, kind)]
        for problem in listed if every else listed[:1]:
            typer.echo(f"    {problem.where}: {problem.message}\n        -> {problem.remedy}")
    rest = "" if every else f"; one example of each kind is shown, `spikehtr data {verb} --all` lists them"
    typer.echo(f"{report.count('error')} to mend, {report.count('warning')} to look at{rest}")
