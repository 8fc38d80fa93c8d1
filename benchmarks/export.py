"""Does an exported file read what the model reads? Size, latency, text and error rate of each on real lines.

python benchmarks/export.py MODEL --data LINES --lines 40
python benchmarks/export.py MODEL --data LINES --gelu   # the same weights around GELU: no spikes, the same text

Lines are read one at a time, by every way in turn, each time in another order; the time is that from pixels to text,
the median over the lines. Differences are counted against the reference, `model/` in fp32; `fp64` is the reference
again in double precision, and `pixels + 1e-7` with noise of that size on its pixels: what these change in a spiking
network is no fault of a file (`spikehtr.evaluation.agreement`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from spikehtr import Recognizer
from spikehtr.data.batching import open_split
from spikehtr.evaluation.agreement import Noisy, agree, fitted_lines
from spikehtr.export import onnx
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.readers import FittedLine, make_reader
from spikehtr.readers.torch import DoubleReader, TorchReader
from spikehtr.text import normalise
from spikehtr.weights import Loaded, load_model, save_model

PLAIN, EXACT = "reference", "reference, fp64"


def with_gelu(loaded: Loaded) -> Loaded:
    """The model's weights around GELU. It has learnt nothing that way, but it writes something."""
    config = loaded.config.with_overrides({"model.neuron": "gelu"})
    net = SpikeHTR(config.model, len(loaded.charset))
    net.load_state_dict(loaded.net.state_dict())
    return Loaded(net.eval(), config, loaded.charset, loaded.notes)


def export(loaded: Loaded, folder: Path) -> dict[str, tuple[Path, float]]:
    """The files, and the seconds it took to make each; what is already in the folder stays as it is."""
    model, single, double = (folder / f for f in ("model.safetensors", "fp32.onnx", "fp64.onnx"))
    save_model(model, loaded.net, loaded.config, loaded.charset, loaded.notes)
    made = {PLAIN: (model, 0.0)}
    kinds = [
        ("onnx fp32", single, lambda: onnx.save(loaded, single)),
        ("onnx fp64", double, lambda: onnx.save(loaded, double, kind="fp64")),
    ]
    for name, path, make in kinds[:1] if loaded.config.model.neuron == "gelu" else kinds:
        start = time.perf_counter()
        if not path.exists():
            make()
        made[name] = path, time.perf_counter() - start
    return made


def ways(loaded: Loaded, files: dict[str, tuple[Path, float]]) -> dict[str, Recognizer]:
    """The reference first."""
    net, rest = loaded.net, (loaded.config, loaded.charset)
    plain, fast = TorchReader(net), make_reader(net, "fp32")
    found = {PLAIN: Recognizer(net, *rest, reader=plain), EXACT: Recognizer(net, *rest, reader=DoubleReader(net))}
    found["reference, pixels + 1e-7"] = Recognizer(net, *rest, reader=Noisy(plain))
    if type(fast) is not TorchReader:
        found["engine, fp32"] = Recognizer(net, *rest, reader=fast)
    return found | {name: onnx.read(path) for name, (path, _) in files.items() if name != PLAIN}


def read(
    readers: dict[str, Recognizer], lines: list[FittedLine], limit: float
) -> tuple[dict[str, list[str]], dict[str, list[float]]]:
    """Texts and seconds of every line, by every reader; no line is begun after `limit` seconds."""
    texts: dict[str, list[str]] = {name: [] for name in readers}
    times: dict[str, list[float]] = {name: [] for name in readers}
    names = list(readers)
    for name in names:  # what is made at the first call is not a line's time
        readers[name].read(lines[:1])
    begun = time.perf_counter()
    for number, line in enumerate(lines):
        if time.perf_counter() - begun > limit:
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            (found,) = readers[name].read_lines([line])
            times[name].append(time.perf_counter() - start)
            texts[name].append(normalise(found.text))
    return texts, times


def rows(
    texts: dict[str, list[str]], times: dict[str, list[float]], truths: list[str], files: dict[str, tuple[Path, float]]
) -> list[dict[str, Any]]:
    out = []
    for name, found in texts.items():
        a, exact = (agree(truths[: len(found)], texts[against], found) for against in (PLAIN, EXACT))
        path, seconds = files.get(name, (None, 0.0))
        out.append(
            {
                "way": name,
                "bytes": path.stat().st_size if path else None,
                "export_seconds": seconds,
                "milliseconds": 1000 * statistics.median(times[name]),
                "lines": a.lines,
                "same_text": a.same,
                "changed": a.changed.errors,
                "characters": a.changed.length,
                "same_as_fp64": exact.same,
                "cer": a.wrong.rate,
            }
        )
    return out


def show(title: str, found: list[dict[str, Any]]) -> None:
    table = Table(title=title)
    for head in ("way", "MB", "made in", "ms a line", "same text", "characters changed", "same as fp64", "CER"):
        table.add_column(head, justify="left" if head == "way" else "right")
    for r in found:
        table.add_row(
            r["way"],
            f"{r['bytes'] / 1e6:.1f}" if r["bytes"] else "",
            f"{r['export_seconds']:.0f} s" if r["export_seconds"] > 0.5 else "",
            f"{r['milliseconds']:.0f}",
            f"{r['same_text']} of {r['lines']}",
            f"{r['changed']} of {r['characters']}",
            f"{r['same_as_fp64']} of {r['lines']}",
            f"{r['cer']:.2%}",
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which no line is begun")
    parser.add_argument("--threads", type=int, help="torch's own number by default")
    parser.add_argument("--gelu", action="store_true", help="the same weights around GELU")
    parser.add_argument("--folder", type=Path, help="keep the files here; those already here are not made again")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    loaded = load_model(options.model)
    loaded = with_gelu(loaded) if options.gelu else loaded
    model = Recognizer(loaded.net, loaded.config, loaded.charset, reader=TorchReader(loaded.net))
    lines, truths = fitted_lines(
        open_split([options.data], options.split, model.config, model.charset, count=options.lines)
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        files = export(loaded, folder)
        texts, times = read(ways(loaded, files), lines, options.limit)
        found = rows(texts, times, truths, files)
    name = f"{options.model.name}{' around GELU' if options.gelu else ''}"
    show(f"{name}, {options.data} {options.split}, threads: {torch.get_num_threads()}", found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
