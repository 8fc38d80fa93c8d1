"""How fragile are spikes? A network reads lines twice, the second time with noise added to their pixels: layer by
layer, how much of what drives a neuron has changed, and how many of its spikes.

python benchmarks/fragility.py MODEL --data LINES [--noise 1e-4]

Grey levels are 4e-3 apart, so noise of 1e-4 cannot be seen. Of a drive: the change's norm over that of the drive about
its mean. Of spikes: the part of both readings' spikes that the other reading has not. Tokens are not reduced: which
ones go would be another matter in each reading.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from spikehtr.data.batching import Lines, to_batch
from spikehtr.data.compiling import open_lines
from spikehtr.evaluation.ways import Noisy, fitted_lines
from spikehtr.inference import PlainReader, Reader
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.profiling.names import spiking_modules
from spikehtr.profiling.steps import REFERENCE, chosen
from spikehtr.weights import load_model

Seen = dict[str, tuple[Tensor, Tensor]]  # by layer: what drove its neurons, and what they fired


def watch(net: SpikeHTR, read: Reader, images: Tensor, widths: Tensor) -> Seen:
    seen: Seen = {}
    with ExitStack() as hooks:
        for name, neuron in spiking_modules(net).items():
            handle = neuron.register_forward_hook(
                lambda _, inputs, fired, name=name: seen.__setitem__(name, (inputs[0].double(), fired.double()))
            )
            hooks.callback(handle.remove)
        read(images, widths)
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--lines", type=int, default=24)
    parser.add_argument("--noise", type=float, default=1e-4)
    options = parser.parse_args()
    loaded = load_model(options.model)
    net, data = loaded.net, loaded.config.data
    if not isinstance(net, SpikeHTR) or not spiking_modules(net):
        parser.error(f"{options.model} has no spiking neurons")
    store = open_lines([options.data], net.config.height, data.max_width, straighten=data.straighten)
    rows = store.rows(options.split)[: options.lines]
    lines, _ = fitted_lines(Lines(store, rows, loaded.charset, data.max_width, labelled=False))
    net.reducer.config = net.reducer.config.model_copy(update={"mode": "none"})
    plain = PlainReader(net)
    sums = {name: torch.zeros(4, dtype=torch.float64) for name in spiking_modules(net)}
    with chosen(REFERENCE):
        for line in lines:
            batch = to_batch([line.pixels])
            before, after = watch(net, plain, *batch), watch(net, Noisy(plain, options.noise), *batch)
            for name, (drive, fired) in before.items():
                drive2, fired2 = after[name]
                moved, spread = (drive - drive2).square(), (drive - drive.mean()).square()
                parts = [moved, spread, (fired - fired2).abs(), fired + fired2]
                sums[name] += torch.stack([part.sum() for part in parts])
    which = f"{len(lines)} lines of {options.data} {options.split}"
    table = Table("layer", title=f"{options.model}, {which}, pixels + {options.noise:g}")
    for head in ("drive changed", "spikes changed"):
        table.add_column(head, justify="right")
    for name, (moved, spread, other, every) in sums.items():
        shares = float((moved / spread).sqrt()), float(other / every.clamp(min=1))
        table.add_row(name, *(f"{share:.1%}" for share in shares))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
