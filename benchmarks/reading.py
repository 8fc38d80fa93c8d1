"""Does a fast way of reading read the same? Text, error rate and speed of every reader on lines of a data set.

python benchmarks/reading.py MODEL --data LINES --split test --lines 1000

A spiking network is not continuous: a membrane within rounding of the threshold fires or does not, one spike changes
others, and where the network is unsure the text changes. So the reference is also read with noise of 1e-7 added to
its pixels, less than half a unit in the last place of most of them: what that changes is no fault of a reader.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.evaluation.rates import character_edits, total
from spikehtr.inference import PlainReader, Reader, as_floats, make_reader
from spikehtr.model.network import Network, Output
from spikehtr.profiling.roofline import synchronize
from spikehtr.profiling.steps import FAST, REFERENCE, chosen
from spikehtr.recognizer import Fitted, Recognizer
from spikehtr.text import normalise
from spikehtr.weights import load_model

_NOISE = 1e-7


class Noisy:
    """A reader that sees pixels a hair off."""

    def __init__(self, reader: PlainReader) -> None:
        self.reader, self.batch_size = reader, reader.batch_size

    def __call__(self, images: Tensor, widths: Tensor) -> Output:
        pixels = as_floats(images)
        generator = torch.Generator().manual_seed(0)
        return self.reader(pixels + _NOISE * torch.randn(pixels.shape, generator=generator), widths)


WAYS: dict[str, Callable[[Network], Reader]] = {
    "reference, fp32": lambda net: PlainReader(net),
    "reference, pixels + 1e-7": lambda net: Noisy(PlainReader(net)),
    "fp32": lambda net: make_reader(net, "fp32"),
    "bf16": lambda net: make_reader(net, "bf16"),
    "bf16, two graphs": lambda net: make_reader(net, "bf16", "two"),
}


def read(recognizer: Recognizer, lines: list[Fitted], batch_size: int, rounds: int) -> tuple[list[str], float]:
    """Texts, and lines a second of the last round: the first ones compile and record."""
    device = next(recognizer.net.parameters()).device
    for _ in range(rounds):
        synchronize(device)
        start = time.perf_counter()
        texts = [normalise(line.text) for line in recognizer.read_many(lines, batch_size)]
        seconds = time.perf_counter() - start
    return texts, len(lines) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    loaded = load_model(options.model)
    net, config = loaded.net.to(options.device), loaded.config
    store = open_lines([options.data], config.model.height, config.data.max_width)
    rows = store.rows(options.split)[: options.lines]
    lines = Lines(store, rows, loaded.charset, config.data.max_width, labelled=False)
    fitted = [Fitted(item.pixels, item.pixels.shape[1]) for item in (lines[index] for index in range(len(lines)))]
    truths = [normalise(store.text(int(row))) for row in rows]
    table = Table(title=f"{options.model}, {len(rows)} lines of {options.data} {options.split}, {options.device}")
    for head in ("reader", "lines/s", "CER", "same text", "characters changed"):
        table.add_column(head, justify="left" if head == "reader" else "right")
    first: list[str] = []
    for name, make in WAYS.items():
        with chosen(REFERENCE if name.startswith("reference") else FAST):
            recognizer = Recognizer(net, config, loaded.charset, reader=make(net))
            texts, speed = read(recognizer, fitted, options.batch_size, 1 if name.startswith("reference") else 3)
        first = first or texts
        wrong = total(character_edits(a, b) for a, b in zip(truths, texts, strict=True))
        changed = total(character_edits(a, b) for a, b in zip(first, texts, strict=True))
        same = sum(a == b for a, b in zip(first, texts, strict=True)) / len(texts)
        figures = f"{wrong.errors / wrong.length:.2%}", f"{same:.1%}", f"{changed.errors / max(changed.length, 1):.2%}"
        table.add_row(name, f"{speed:.4g}", *figures)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
