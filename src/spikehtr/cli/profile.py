"""`spikehtr profile`: what a network costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import ConfigFile, Overrides, Preset, resolve
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.profiling.baseline_counts import BaselineCounts
    from spikehtr.profiling.counts import Counts


def profile(
    counts: Annotated[
        bool, typer.Option("--counts", help="Count parameters, multiply-accumulates and neurons.")
    ] = False,
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
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
    vocab: Annotated[int, typer.Option("--vocab", min=2, help="Number of labels, blank included.")] = 80,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every layer, for programs.")] = False,
) -> None:
    """Count what a configuration holds and what one line costs, from the built network.

    Eligible share: the part of all multiply-accumulates whose input is made of spikes (whole numbers 0 to 16, at
    least half of them 0), so that event-driven hardware could skip the zeros; as configured, and with the membrane
    shortcut off. A baseline (-p cnn-blstm, retsinas, htr-vt, kraken) has parameters and multiply-accumulates only.
    """
    if not counts:
        raise SpikeHTRError("say what to profile: --counts")
    resolved = resolve(preset, file, overrides)
    if resolved.model.arch != "spike-htr":
        from spikehtr.profiling.baseline_counts import count_baseline

        found = count_baseline(resolved, vocab, width or resolved.data.max_width, ratio)
        if as_json:
            typer.echo(json.dumps(found.to_dict(), indent=2))
        else:
            _print_baseline(found)
        return
    from spikehtr.profiling.counts import count

    result = count(resolved, vocab, width or 512, ratio)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _print(result, f"{preset or file or 'base'}, d = {resolved.model.dim}")


def _print_baseline(c: BaselineCounts) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{c.arch}, {c.height} x {c.width} px, {c.tokens_read} of {c.tokens_in} tokens read")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("parameters", f"{c.parameters / 1e6:.2f} M")
    table.add_section()
    for name, macs in (c.macs | {"all": c.dense_macs}).items():
        table.add_row(f"MACs, {name}", f"{macs:.3e}")
    Console().print(table)


def _print(c: Counts, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{title}, T = {c.timesteps}, {c.width} px, {c.tokens_mixed} of {c.tokens_in} tokens mixed")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("parameters", f"{c.parameters / 1e6:.2f} M")
    table.add_row("mixer's share of them", f"{c.mixer_share:.1%}")
    for name, number in c.lif_modules.items():
        table.add_row(f"LIF modules, {name}", str(number))
    table.add_section()
    for name, macs in c.macs.items():
        table.add_row(f"MACs, {name}", f"{macs:.3e}")
    table.add_row("MACs, all", f"{c.dense_macs:.4e}")
    table.add_section()
    table.add_row("eligible share", f"{c.eligible_share:.3f}")
    table.add_row("eligible share, no bypass", f"{c.eligible_share_no_bypass:.3f}")
    Console().print(table)
