"""Does a fast way of reading read the same? Text, error rate and speed of every reader on lines of a data set.

python benchmarks/reading.py MODEL --data LINES --split test --lines 1000

A spiking network is not continuous, so the reference is also read in double precision, and with noise of 1e-7 added to
its pixels: what they change is no fault of a reader (`spikehtr.evaluation.agreement`). In double precision a GPU is to
read what a CPU reads, so on a GPU both do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from copy import deepcopy

from rich.console import Console
from rich.table import Table

from spikehtr import Recognizer
from spikehtr.cli.options import pick_device
from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.evaluation.agreement import Noisy, agree, fitted_lines
from spikehtr.model.network import Network
from spikehtr.profiling.benchmark_steps import FAST, REFERENCE, chosen
from spikehtr.profiling.roofline import synchronize
from spikehtr.readers import FittedLine, Reader, make_reader
from spikehtr.readers.cpu.engine import unsupported_reason
from spikehtr.readers.torch import DoubleReader, TorchReader
from spikehtr.text import normalise
from spikehtr.weights import load_model

PLAIN, EXACT, EXACT_ON_CPU = "reference, fp32", "reference, fp64", "reference, fp64, on the CPU"
BF16 = "bf16"
WAYS: dict[str, Callable[[Network], Reader]] = {
    PLAIN: lambda net: TorchReader(net),
    EXACT: lambda net: DoubleReader(net),
    EXACT_ON_CPU: lambda net: DoubleReader(deepcopy(net).cpu()),
    "reference, pixels + 1e-7": lambda net: Noisy(TorchReader(net)),
    "fp32": lambda net: make_reader(net, "fp32"),
    BF16: lambda net: make_reader(net, "bf16"),
}


def read(recognizer: Recognizer, lines: list[FittedLine], batch_size: int, rounds: int) -> tuple[list[str], float]:
    """Texts, and lines a second of the last round: the first ones compile and record."""
    device = next(recognizer.net.parameters()).device
    for _ in range(rounds):
        synchronize(device)
        start = time.perf_counter()
        texts = [normalise(line.text) for line in recognizer.read_lines(lines, batch_size)]
        seconds = time.perf_counter() - start
    return texts, len(lines) / seconds


def left_out(name: str, net: Network) -> bool:
    """What there is on a GPU alone; and bf16 where the engine has none, which PyTorch would take minutes for."""
    if name == EXACT_ON_CPU:
        return True
    reason = unsupported_reason(net, half=True) if name == BF16 else None
    if reason:
        print(f"{name} left out: {reason}")
    return reason is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    options.device = pick_device(options.device)
    loaded = load_model(options.model)
    net, config = loaded.net.to(options.device), loaded.config
    store = open_lines([options.data], config.model.height, config.data.max_width, straighten=config.data.straighten)
    rows = store.rows(options.split)[: options.lines]
    lines = Lines(store, rows, loaded.charset, config.data.max_width, labelled=False)
    fitted, truths = fitted_lines(lines)
    texts: dict[str, list[str]] = {}
    speeds: dict[str, float] = {}
    for name, make in WAYS.items():
        if options.device == "cpu" and left_out(name, net):
            continue
        with chosen(REFERENCE if name.startswith("reference") else FAST):
            recognizer = Recognizer(net, config, loaded.charset, reader=make(net))
            rounds = 1 if name.startswith("reference") else 3
            texts[name], speeds[name] = read(recognizer, fitted, options.batch_size, rounds)
    table = Table(title=f"{options.model}, {len(rows)} lines of {options.data} {options.split}, {options.device}")
    for head in ("reader", "lines/s", "CER", "same text", "characters changed", "same as fp64"):
        table.add_column(head, justify="left" if head == "reader" else "right")
    for name, read_by in texts.items():
        found, exact = agree(truths, texts[PLAIN], read_by), agree(truths, texts[EXACT], read_by)
        changed = f"{found.changed.errors / max(found.changed.length, 1):.2%}"
        same, as_exact = (f"{a.same / a.lines:.1%}" for a in (found, exact))
        table.add_row(name, f"{speeds[name]:.4g}", f"{found.wrong.rate:.2%}", same, changed, as_exact)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
