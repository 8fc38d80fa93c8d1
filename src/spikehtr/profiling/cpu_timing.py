"""How fast lines are read on a CPU, whole calls in turns in one process, and what each layer of the engine costs.

A call is what a user makes: a decoded image in, text out (`Recognizer.transcribe`), one line at a time and in batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from spikehtr.assets import SAMPLE_LINE
from spikehtr.config import Config
from spikehtr.data.compiling import left_out, tell_once
from spikehtr.data.formats import read
from spikehtr.data.images import line_image, load_line
from spikehtr.data.samples import ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.readers import Reader
from spikehtr.readers.cpu.engine import Engine, unsupported_reason, usable_cores
from spikehtr.readers.cpu.library import DENSE, EVENTS, TILES
from spikehtr.readers.torch import TorchReader
from spikehtr.recognizer import Recognizer
from spikehtr.registry import build
from spikehtr.text import Charset

_CHARACTERS = "".join(map(chr, range(33, 112)))  # with the blank, 80 labels
BATCH_SIZES = (1, 16)
_MODES = {DENSE: "dense", TILES: "tiles", EVENTS: "events"}


@dataclass
class Way:
    """One network read in one way, and how long it took: seconds a line, by batch size, one number a round."""

    network: str
    way: str
    recognizer: Recognizer = field(repr=False)
    seconds: dict[int, list[float]] = field(default_factory=dict)
    agree: float | None = None  # share of lines whose text is that of the network's first way

    def rates(self) -> dict[int, float]:
        """Lines a second, by batch size."""
        return {size: 1.0 / median(seconds) for size, seconds in self.seconds.items()}

    def to_dict(self) -> dict[str, Any]:
        told = {"network": self.network, "way": self.way, "lines_per_second": self.rates()}
        return told | {"seconds": self.seconds, "agree": self.agree}


@dataclass
class LayerCost:
    """Milliseconds of one layer on one line, the making of its input included."""

    layer: str
    inputs: int
    outputs: int
    density: float | None  # spikes an input; None: it reads more than spikes
    dense: float
    tiles: float | None
    events: float | None
    choice: str

    @property
    def chosen(self) -> float:
        return self.events if self.choice == "events" and self.events is not None else self.dense


@dataclass
class CPUReport:
    threads: int
    lines: int
    ways: list[Way]
    layers: dict[str, list[LayerCost]]  # by network

    def to_dict(self) -> dict[str, Any]:
        layers = {name: [asdict(cost) for cost in costs] for name, costs in self.layers.items()}
        ways = [way.to_dict() for way in self.ways]
        return {"threads": self.threads, "lines": self.lines, "ways": ways, "layers": layers}


def real_lines(data: Sequence[str], count: int) -> list[Image.Image]:
    """The first `count` line images of data in any format, spread over the sets that are named."""
    found: list[Image.Image] = []
    report = ImportReport()
    for index, spec in enumerate(data):
        wanted = count * (index + 1) // len(data)
        for sample in read(spec, report):
            if len(found) >= wanted:
                break
            found.append(line_image(sample))
    if not found:
        raise SpikeHTRError(f"no lines in {', '.join(data)}")
    if number := report.count("error"):
        tell_once(left_out(number, data))
    return found


def drawn_lines(count: int) -> list[Image.Image]:
    """The sample line that comes with the package, cut to `count` widths from the half of it to the whole."""
    line = load_line(SAMPLE_LINE)
    widths = [line.width * (count + index) // (2 * count) for index in range(1, count + 1)]
    return [line.crop((0, 0, width, line.height)) for width in widths]


def untrained(config: Config) -> tuple[Network, Charset]:
    """A network of a preset, weights as drawn: for speed alone."""
    charset = Charset(tuple(_CHARACTERS))
    torch.manual_seed(0)
    return build(config.model, len(charset)).eval(), charset


def ways_of(name: str, net: Network, config: Config, charset: Charset, reference: bool, half: bool) -> list[Way]:
    """Every way there is here to read with a network; the reference, if not asked for, only where there is no other."""
    readers: list[tuple[str, Reader]] = []
    if unsupported_reason(net) is None:
        readers = [("engine, dense", Engine(net, events="never")), ("engine", Engine(net))]
        if half and unsupported_reason(net, half=True) is None:
            readers += [("engine, bf16", Engine(net, "bf16"))]
    if reference or not readers:
        readers.insert(0, ("PyTorch", TorchReader(net)))
    return [Way(name, way, Recognizer(net, config, charset, reader=reader)) for way, reader in readers]


def measure(
    ways: list[Way],
    images: list[Image.Image],
    batch_sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = 5,
    tell: Callable[[int], None] = lambda done: None,
    estimated: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Fill in the ways' times: every way in turn, every round, on the same lines.

    `estimated` is called with the seconds that everything will take, once every way has read one line.
    """
    estimated(estimate(ways, images, batch_sizes, rounds))
    texts: dict[str, list[str]] = {}
    done = 0
    for way in ways:  # warm, and compared
        found = [line.text for line in way.recognizer.transcribe(images, batch_size=max(batch_sizes))]
        first = texts.setdefault(way.network, found)
        way.agree = sum(a == b for a, b in zip(found, first, strict=True)) / len(images)
        done += 1
        tell(done)
    for _ in range(rounds):
        for size in batch_sizes:
            for way in ways:
                start = time.perf_counter()
                for at in range(0, len(images), size):
                    way.recognizer.transcribe(images[at : at + size], batch_size=size)
                way.seconds.setdefault(size, []).append((time.perf_counter() - start) / len(images))
                done += 1
                tell(done)


def estimate(ways: list[Way], images: list[Image.Image], batch_sizes: Sequence[int], rounds: int) -> float:
    """The seconds that measuring takes, from one line of median width that every way reads twice."""
    line = sorted(images, key=lambda image: image.width / image.height)[len(images) // 2]
    seconds = 0.0
    for way in ways:
        way.recognizer.transcribe(line)  # the first call is slower
        start = time.perf_counter()
        way.recognizer.transcribe(line)
        seconds += time.perf_counter() - start
    return seconds * len(images) * (1 + rounds * len(batch_sizes))


def layer_costs(net: Network, images: list[Image.Image], config: Config, charset: Charset) -> list[LayerCost]:
    """What each layer costs in each way, median over the lines; modes take turns line by line."""
    engines = {DENSE: Engine(net, events="never"), EVENTS: Engine(net, events="always")}
    if unsupported_reason(net, half=True) is None:
        engines[TILES] = Engine(net, "bf16", events="never")
    chosen = {layer.name: _MODES[layer.mode] for layer in Engine(net).layers()}
    times: dict[int, dict[str, list[float]]] = {mode: {} for mode in engines}
    fired: dict[str, list[float]] = {}
    fit = Recognizer(net, config, charset).fit
    for image in images:
        gray = fit(image).pixels.astype(np.float32) / np.float32(255)
        for mode, engine in engines.items():
            seconds, density = engine.watch(gray)
            for name, value in seconds.items():
                times[mode].setdefault(name, []).append(value * 1e3)
            if mode == EVENTS:
                for name, value in density.items():
                    fired.setdefault(name, []).append(value)

    def cost(mode: int, name: str) -> float | None:
        values = times.get(mode, {}).get(name)
        return None if values is None else median(values)

    return [
        LayerCost(
            layer.name,
            layer.weight.shape[0],
            layer.outputs,
            median(fired[layer.name]) if layer.name in fired else None,
            cost(DENSE, layer.name) or 0.0,
            cost(TILES, layer.name),
            cost(EVENTS, layer.name) if layer.spikes else None,
            chosen[layer.name],
        )
        for layer in engines[DENSE].layers()
    ]


Networks = list[tuple[str, Network, Config, Charset]]


def all_ways(networks: Networks, reference: bool = False, half: bool = True) -> list[Way]:
    return [way for network in networks for way in ways_of(*network, reference, half)]


def turns(ways: list[Way], rounds: int) -> int:
    """Readings of all lines: one of each way to warm up, and the timed ones."""
    return (1 + rounds * len(BATCH_SIZES)) * len(ways)


def benchmark(
    networks: Networks,
    ways: list[Way],
    images: list[Image.Image],
    rounds: int,
    tell: Callable[[int], None] = lambda done: None,
    estimated: Callable[[float], None] = lambda seconds: None,
) -> CPUReport:
    measure(ways, images, rounds=rounds, tell=tell, estimated=estimated)
    layers = {
        name: layer_costs(net, images[:8], config, charset)
        for name, net, config, charset in networks
        if unsupported_reason(net) is None
    }
    threads = min(usable_cores(), torch.get_num_threads())  # as the engine takes them
    return CPUReport(threads, len(images), ways, layers)


def show(report: CPUReport) -> None:
    """Print the report as tables."""
    console = Console(width=None if Console().is_terminal else 140)
    sizes = list(report.ways[0].seconds)
    rounds = len(report.ways[0].seconds[sizes[0]])
    table = Table(title=f"CPU, {report.threads} threads, {report.lines} lines, median of {rounds} rounds: lines/s")
    for name in ("network", "way", *(f"batch {size}" for size in sizes), "same text"):
        table.add_column(name, justify="left" if name in ("network", "way") else "right")
    for way in report.ways:
        agree = "-" if way.agree is None else f"{way.agree:.1%}"
        table.add_row(way.network, way.way, *(f"{rate:.1f}" for rate in way.rates().values()), agree)
    console.print(table)
    console.print("same text: as by the network's first way; with weights as drawn it says nothing of a trained one")
    for network, costs in report.layers.items():
        table = Table(title=f"{network}: layers, ms a line, the making of their input included")
        for name in ("layer", "inputs x outputs", "spikes/input", "dense", "tiles", "events", "choice"):
            table.add_column(name, justify="left" if name in ("layer", "choice") else "right")
        for c in costs:
            figures = ("-" if value is None else f"{value:.3f}" for value in (c.density, c.dense, c.tiles, c.events))
            table.add_row(c.layer, f"{c.inputs} x {c.outputs}", *figures, c.choice)
        table.add_section()
        chosen = f"as chosen: {sum(c.chosen for c in costs):.3f}"
        table.add_row("sum", "", "", f"{sum(c.dense for c in costs):.3f}", "", "", chosen)
        console.print(table)
