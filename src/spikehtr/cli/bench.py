"""`spikehtr bench`: how fast a step is here, and how fast it could be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import Overrides, writable
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from rich.console import Console

    from spikehtr.profiling.steps import Report


def bench(
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    presets: Annotated[Optional[list[str]], typer.Option("--preset", "-p", help="Tier. Repeatable; tiny.")] = None,
    timesteps: Annotated[
        Optional[list[int]], typer.Option("--timesteps", "-T", help="Number of timesteps. Repeatable; 1 and 2.")
    ] = None,
    overrides: Overrides = None,
    batch_size: Annotated[
        Optional[int],
        typer.Option("--batch-size", "-b", min=1, help="Lines a step; on a GPU 64 to train, 256 to read; else 2."),
    ] = None,
    width: Annotated[int, typer.Option("--width", min=16, help="Width of the lines, pixels.")] = 512,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Time training steps.")] = True,
    inference: Annotated[bool, typer.Option("--inference/--no-inference", help="Time forward passes.")] = True,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Times each path takes its turn.")] = 5,
    profile: Annotated[bool, typer.Option("--profile", help="List the ten most expensive kernels of a step.")] = False,
    output: Annotated[Optional[Path], typer.Option("--json", help="Also write every figure to this file.")] = None,
) -> None:
    """Time whole steps: reference and fast path in turns, and the share of the device's roofline they reach.

    A training step is augmentation, forward pass, losses, backward pass, clipping, optimiser and averaged weights; on
    a GPU under bf16 autocast. The roofline is the least time that step needs, from the bytes it must move and the
    arithmetic it must do, at the copy bandwidth and the matrix rate measured in the same process.
    """
    if not (train or inference):
        raise SpikeHTRError("nothing to time: leave out --no-train or --no-inference")
    if output:
        writable(output, ".json")
    from spikehtr.cli.train import pick_device
    from spikehtr.config import Config

    # Made before torch is loaded, so that a mistyped name is answered at once.
    configs = [
        (f"{preset} T={steps}", Config.preset(preset).with_overrides(overrides or []).with_overrides({_T: steps}))
        for preset in presets or ["tiny"]
        for steps in timesteps or [1, 2]
    ]
    where = pick_device(device)
    import torch

    from spikehtr.profiling.steps import Case, benchmark

    sizes = {True: 64, False: 256} if where.startswith("cuda") else {True: 2, False: 2}
    kinds = [kind for kind, wanted in ((True, train), (False, inference)) if wanted]
    cases = [Case(name, c, kind, batch_size or sizes[kind], width) for name, c in configs for kind in kinds]
    with counting("timing", len(cases)) as done:

        def tell(report: Report) -> None:
            done(len(report.rows))
            save(report, output)

        report = benchmark(cases, torch.device(where), rounds, profile, tell)
    show(report)
    if output:
        typer.echo(f"wrote {output}")


_T = "model.timesteps"


def save(report: Report, output: Path | None) -> None:
    """Write the report as JSON, if a file was named."""
    from spikehtr.files import whole_file

    if output:
        with whole_file(output) as temporary:
            temporary.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")


def show(report: Report) -> None:
    """Print the report as tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 120)
    rounds = max((len(t.rounds) for row in report.rows for t in row.paths.values()), default=0)
    table = Table(title=f"{report.device}, torch {report.torch_version}, median of {rounds} rounds")
    heads = ("step", "lines", "path", "ms", "lines/s", "speed-up", "peak GiB", "roofline", "share", "overlapped")
    for name in heads:
        table.add_column(name, justify="left" if name in ("step", "path") else "right")
    for row in report.rows:
        slow = row.lines_per_second("reference")
        for path, timing in row.paths.items():
            rate, share = row.lines_per_second(path), row.share(path)
            case = row.case
            what = f"{case.name} {'train' if case.train else 'read'}", f"{case.batch_size} x {row.input_width}", path
            peak = "-" if timing.peak_bytes is None else f"{timing.peak_bytes / 2**30:.1f}"
            floor, looser = f"{row.roofline_seconds * 1e3:.2f}", f"{row.overlapped_seconds * 1e3:.2f}"
            if timing.seconds is None or rate is None or share is None:
                table.add_row(*what, "out of memory", "-", "-", "-", floor, "-", looser)
                continue
            times = f"{rate / slow:.2f}" if slow else "-"
            figures = f"{timing.seconds * 1e3:.2f}", f"{rate:.4g}", times, peak
            table.add_row(*what, *figures, floor, f"{share:.1%}", looser)
        table.add_section()
    console.print(table)
    _show_kernels(report, console)
    bounds = report.ceilings
    typer.echo("roofline: least ms a step needs, one operation after another; overlapped: as if all ran side by side")
    typer.echo(f"ceilings here: copy {bounds.bandwidth / 1e9:.0f} GB/s, product {bounds.rate / 1e12:.1f} TFLOP/s")
    typer.echo(f"first step {report.first_step_seconds:.1f} s after the process began")
    if not report.has_fast_path:
        typer.echo("no fast kernels on this device: the network runs on the reference")


def _show_kernels(report: Report, console: Console) -> None:
    from rich.table import Table

    for row in report.rows:
        if not row.kernels:
            continue
        kind = "train" if row.case.train else "read"
        table = Table(title=f"most expensive, {row.case.name} {kind}, {row.kernels[0]['path']} path")
        for name in ("kernel", "calls", "ms", "share"):
            table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
        for entry in row.kernels:
            table.add_row(entry["kernel"][:80], str(entry["calls"]), f"{entry['ms']:.2f}", f"{entry['share']:.1%}")
        console.print(table)
