"""A report of reading on a CPU, as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from spikehtr.files import whole_file
from spikehtr.profiling.cpu_timing import CPUReport, LayerCost


def save(report: CPUReport, output: Path | None) -> None:
    if output:
        with whole_file(output) as temporary:
            temporary.write_text(json.dumps(report.to_dict(), indent=2) + "\n", encoding="utf-8")


def show(report: CPUReport, layers: bool = True) -> None:
    console = Console(width=None if Console().is_terminal else 140)
    sizes = list(report.ways[0].seconds)
    rounds = len(report.ways[0].seconds[sizes[0]])
    table = Table(title=f"CPU, {report.threads} threads, {report.lines} lines, median of {rounds} rounds: lines/s")
    table.add_column("network")
    table.add_column("way")
    for size in sizes:
        table.add_column(f"batch {size}", justify="right")
    table.add_column("same text", justify="right")
    for way in report.ways:
        agree = "-" if way.agree is None else f"{way.agree:.1%}"
        table.add_row(way.network, way.way, *(f"{way.rate(size):.1f}" for size in sizes), agree)
    console.print(table)
    console.print("same text: as by the network's first way; with weights as drawn it says nothing of a trained one")
    for name, costs in report.layers.items() if layers else ():
        _show_layers(console, name, costs)


def _show_layers(console: Console, name: str, costs: list[LayerCost]) -> None:
    table = Table(title=f"{name}: layers, ms a line, the making of their input included")
    for head in ("layer", "inputs x outputs", "spikes/input", "dense", "tiles", "events", "choice"):
        table.add_column(head, justify="left" if head in ("layer", "choice") else "right")

    def shown(value: float | None, form: str = ".3f") -> str:
        return "-" if value is None else format(value, form)

    for cost in costs:
        size = f"{cost.inputs} x {cost.outputs}"
        figures = shown(cost.density, ".3f"), shown(cost.dense), shown(cost.tiles), shown(cost.events)
        table.add_row(cost.layer, size, *figures, cost.choice)
    dense, chosen = sum(c.dense for c in costs), sum(_chosen(c) for c in costs)
    table.add_section()
    table.add_row("sum", "", "", f"{dense:.3f}", "", "", f"as chosen: {chosen:.3f}")
    console.print(table)


def _chosen(cost: LayerCost) -> float:
    return cost.events if cost.choice == "events" and cost.events is not None else cost.dense
