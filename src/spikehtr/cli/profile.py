"""`spikehtr profile`: what a network costs, and what a trained one fires."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from spikehtr.cli.options import ConfigFile, Preset, given_options, pick_device, print_json, resolve, which_split
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder

if TYPE_CHECKING:
    from spikehtr.profiling.counts import BaselineCounts, Counts
    from spikehtr.profiling.diagnosis import Diagnosis


_LABELS = 80  # of the network that is counted, blank included, as in the paper


def profile(
    ctx: typer.Context,
    model: Annotated[
        Optional[Path],
        typer.Argument(metavar="[MODEL]", help="A model file (.safetensors), or bundled: measure what it fires."),
    ] = None,
    data: Annotated[
        Optional[list[str]], typer.Option("--data", "-d", help="With MODEL: lines to read, any format. Repeatable.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="With MODEL: lines to read, evenly spread over the split.")
    ] = 512,
    split: Annotated[
        str, typer.Option("--split", callback=which_split, help="With MODEL: train, validation, test, or all.")
    ] = "test",
    output: Annotated[
        Optional[Path],
        typer.Option("--output", "-o", help="With MODEL: folder for report.html, profile.json, figures and tables."),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="With MODEL: lines read at a time.")] = 8,
    device: Annotated[str, typer.Option("--device", help="With MODEL: cpu, cuda, or auto.")] = "auto",
    pj_byte: Annotated[
        Optional[float],
        typer.Option("--pj-byte", min=0.0, help="With MODEL: energy of a byte of memory traffic, pJ; 12.5."),
    ] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Count parameters, multiply-accumulates and neurons of a configuration.")
    ] = False,
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Annotated[
        Optional[list[str]],
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="Change one setting, e.g. -s model.timesteps=1; with MODEL how lines are read, by data.* and "
            "model.reducer.*. Repeatable.",
        ),
    ] = None,
    width: Annotated[
        Optional[int],
        typer.Option("--width", min=4, help="Width of the line that is counted, pixels; 512, a baseline's own."),
    ] = None,
    ratio: Annotated[
        Optional[float],
        typer.Option(
            "--ratio", min=0.01, max=1.0, help="Share of the tokens that reaches the mixer (r); the paper's 0.68."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every layer, for programs.")] = False,
) -> None:
    """Measure a trained model on real lines, or count what a configuration costs.

    With MODEL and --data: firing rate and spike share of every neuron layer, operations counted from the recorded
    spikes, the paper's energy proxy and what it leaves out, all beside the paper's figures.

    With --counts: parameters and multiply-accumulates of the built network. Eligible share: the part of all
    multiply-accumulates whose input is made of spikes (whole numbers 0 to 16, at least half of them 0), so that
    event-driven hardware could skip the zeros; as configured, and with the membrane shortcut off. A baseline
    (-p cnn-blstm, htr-vt and others) has parameters and multiply-accumulates only.
    """
    if model is not None:
        if given_options(ctx, "counts", "preset", "file", "width", "ratio"):
            raise SpikeHTRError("MODEL brings its own settings: give --data with it (and -s), or --counts without it")
        if not data:
            raise SpikeHTRError(f"say what {model} shall read: --data")
        _measure(model, data, overrides or [], lines, split, output, batch_size, device, pj_byte, as_json)
        return
    if not counts:
        raise SpikeHTRError("say what to profile: a MODEL with --data, or --counts for a configuration")
    if given := given_options(ctx, "data", "lines", "split", "output", "batch_size", "device", "pj_byte"):
        raise SpikeHTRError(f"--counts reads no line: leave out {', '.join(given)}, or name a MODEL instead")
    resolved = resolve(preset, file, overrides)
    if resolved.model.arch != "spike-htr":
        from spikehtr.profiling.counts import count_baseline

        baseline = count_baseline(resolved, _LABELS, width or resolved.data.max_width, ratio)
        if as_json:
            print_json(asdict(baseline))
        else:
            _print_baseline(baseline)
        return
    from spikehtr.profiling.counts import count

    found = count(resolved, _LABELS, width or 512, ratio)
    if as_json:
        print_json(asdict(found))
    else:
        _print_counts(found, f"{preset or file or 'base'}, d = {resolved.model.dim}")


def _measure(
    model: Path,
    data: list[str],
    overrides: list[str],
    count: int,
    split: str,
    output: Path | None,
    batch_size: int,
    device: str,
    pj_byte: float | None,
    as_json: bool,
) -> None:
    chosen = pick_device(device)
    if output:
        make_folder(output)
    from spikehtr.data.batching import open_split
    from spikehtr.profiling.diagnosis import diagnose, lines_to_read, some
    from spikehtr.profiling.energy import PJ_BYTE
    from spikehtr.profiling.record_activity import require_spiking
    from spikehtr.weights import load_model, read_with

    loaded = read_with(load_model(model), overrides)
    net = require_spiking(loaded.net).to(chosen)
    config = loaded.config
    with counting("reading lines") as reading:
        chosen_lines = some(open_split(data, split, config, loaded.charset, reading), count)
    about: dict[str, Any] = {
        "model": model.name,
        "data": ", ".join(Path(source).name for source in data),
        "split": split,
    }
    if overrides:
        about["set"] = overrides
    cost = PJ_BYTE if pj_byte is None else pj_byte
    with counting("measuring", lines_to_read(net, chosen_lines)) as progress:
        found = diagnose(net, chosen_lines, about, batch_size, config.data.workers, cost, progress)
    files: list[Path] = []
    if output:
        from spikehtr.profiling.diagnosis_page import write_diagnosis

        files = write_diagnosis(output, found, chosen, shlex.join(["spikehtr", *sys.argv[1:]]))
    if as_json:
        print_json(found.to_dict())
        return
    for line in _told(found):
        typer.echo(line)
    if files:
        typer.echo(f"report: {files[0]}")


def _told(found: Diagnosis) -> Iterator[str]:
    """What a terminal shows."""
    from spikehtr.evaluation.rate_tables import columns
    from spikehtr.profiling import diagnosis_page as tables

    for name, value in tables.about_rows(found.about):
        yield f"  {name}: {value}"
    yield from columns(*tables.distribution_table(found.measured.firing))
    yield from columns(*tables.stage_table(found.measured.firing))
    for title, rows in tables.top_tables(found.measured.firing).items():
        yield from columns([title, "share", "rate", "paper's", "share", "rate"], rows)
    head, cells = tables.energy_table(found)
    yield from columns(head[:-1], [row[:-1] for row in cells])
    yield from columns(*tables.rho_table(found))
    head, cells = tables.totals_table(found)
    yield from columns(["microjoules a line", *head[1:-1]], [row[:-1] for row in cells])
    yield from columns(*tables.steps_table(found))
    yield ""
    yield "  The page (-o) says of each figure what it leaves out."


def _print_baseline(c: BaselineCounts) -> None:
    title = f"{c.arch}, {c.height} x {c.width} px, {c.tokens_read} of {c.tokens_in} tokens read"
    macs = {f"MACs, {name}": f"{number:.3e}" for name, number in (c.macs | {"all": c.dense_macs}).items()}
    _print_table(title, {"parameters": f"{c.parameters / 1e6:.2f} M"}, macs)


def _print_counts(c: Counts, title: str) -> None:
    sizes = {"parameters": f"{c.parameters / 1e6:.2f} M", "mixer's share of them": f"{c.mixer_share:.1%}"}
    for name, number in c.lif_modules.items():
        sizes |= {f"LIF modules, {name}": str(number), f"neurons, {name}": f"{c.neurons[name]:.3e}"}
    macs = {f"MACs, {name}": f"{number:.3e}" for name, number in c.macs.items()}
    shares = {"eligible share": f"{c.eligible_share:.3f}"}
    if c.eligible_share_no_bypass != c.eligible_share:  # else there is none
        shares["eligible share, no bypass"] = f"{c.eligible_share_no_bypass:.3f}"
    title = f"{title}, T = {c.timesteps}, {c.width} px, {c.tokens_mixed} of {c.tokens_in} tokens mixed"
    _print_table(title, sizes, macs | {"MACs, all": f"{c.dense_macs:.4e}"}, shares)


def _print_table(title: str, *sections: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    table.add_column("what")
    table.add_column("value", justify="right")
    for section in sections:
        for row in section.items():
            table.add_row(*row)
        table.add_section()
    Console().print(table)
