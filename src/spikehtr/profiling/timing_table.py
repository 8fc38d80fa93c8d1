"""A report of timed steps as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spikehtr.files import whole_file
from spikehtr.profiling.step_timing import Report

_SHOWN = 10  # kernels of a step; the file has all


def save(report: Report, output: Path | None) -> None:
    """Write the report as JSON, if a file was named."""
    if output:
        with whole_file(output) as temporary:
            temporary.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")


def show(report: Report) -> None:
    """Print the report as tables."""
    console = Console(width=None if Console().is_terminal else 140)
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
    console.print(
        "roofline: least ms a step needs, one operation after another; overlapped: as if all ran side by side"
    )
    console.print(f"ceilings here: copy {bounds.bandwidth / 1e9:.0f} GB/s, product {bounds.rate / 1e12:.1f} TFLOP/s")
    console.print(f"first step {report.first_step_seconds:.1f} s after the process began")
    if not report.has_fast_path:
        console.print("no fast kernels on this device: the network runs on the reference")


def _show_kernels(report: Report, console: Console) -> None:
    for row in report.rows:
        if not row.kernels:
            continue
        kind = "train" if row.case.train else "read"
        table = Table(title=f"most expensive, {row.case.name} {kind}, {row.kernels[0]['path']} path")
        for name in ("kernel", "calls", "ms", "share"):
            table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
        for entry in row.kernels[:_SHOWN]:
            table.add_row(
                escape(entry["kernel"][:80]), str(entry["calls"]), f"{entry['ms']:.2f}", f"{entry['share']:.1%}"
            )
        console.print(table)
