"""`spikehtr evaluate`: how well a model reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from spikehtr.cli.options import Overrides
from spikehtr.cli.progress import counting
from spikehtr.cli.train import pick_device
from spikehtr.errors import SpikeHTRError


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors).")],
    data: Annotated[list[str], typer.Option("--data", "-d", help="What to read, any format. Repeatable.")],
    split: Annotated[str, typer.Option("--split", help="train, validation, test, or all.")] = "test",
    overrides: Overrides = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Lines read at a time.")] = 16,
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every line, for programs.")] = False,
) -> None:
    """Read every line and compare: character and word error rates with 95 % intervals.

    Intervals are by bootstrap over documents where they are known, else over lines. Words are counted both ways, cut at
    white space and with punctuation split off.
    """
    chosen = pick_device(device)
    from spikehtr.data.batching import Lines
    from spikehtr.data.compiling import open_lines
    from spikehtr.evaluation.predict import predict
    from spikehtr.evaluation.summary import summarise
    from spikehtr.weights import load_model

    loaded = load_model(model)
    config = loaded.config.with_overrides(overrides or [])
    with counting("opening data") as progress:
        store = open_lines(data, config.model.height, config.data.max_width, progress)
    rows = store.rows() if split == "all" else store.rows(split)  # type: ignore[arg-type]
    if not len(rows):
        there = ", ".join(f"{name} ({count})" for name, count in sorted(store.meta["lines"].items()))
        raise SpikeHTRError(f"no line of split {split!r}; there are: {there}. Use --split all to read them all")
    lines = Lines(store, rows, loaded.charset, config.data.max_width, labelled=False)
    start = time.perf_counter()
    found = predict(loaded.net.to(chosen), lines, batch_size, config.data.workers)
    seconds = time.perf_counter() - start
    result = summarise(found, [store.record(p.row)["document"] for p in found])
    result |= {"model": str(model), "split": split, "lines_per_second": len(found) / seconds, "device": chosen}
    if as_json:
        result["predictions"] = [p._asdict() | {"id": store.record(p.row)["id"]} for p in found]
        typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _print(result)


def _print(result: dict[str, Any]) -> None:
    typer.echo(f"{result['model']} on {result['lines']} lines ({result['split']}):")
    for name, rate in result["rates"].items():
        low_high = f"95 % interval {rate['interval'][0]:.2%} to {rate['interval'][1]:.2%}" if rate["interval"] else ""
        typer.echo(f"  {name:42s} {rate['rate']:7.2%}  {low_high}")
    typer.echo(f"  intervals by resampling {result['resampled']}" + _few(result))
    typer.echo(
        f"  lines read without an error {result['whole_lines_right']:.1%}, tokens kept {result['keep_ratio']:.3f}"
    )
    typer.echo(f"  {result['lines_per_second']:.1f} lines/s on {result['device']}")


def _few(result: dict[str, Any]) -> str:
    few = result["resampled"] == "documents" and result["documents"] < 20
    return f" ({result['documents']}: with so few, an interval is too narrow)" if few else ""
