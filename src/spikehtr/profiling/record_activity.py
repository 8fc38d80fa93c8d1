"""One pass over lines that keeps everything the diagnostics need: spikes of every neuron, work of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from spikehtr import ops
from spikehtr.config import Config
from spikehtr.data.batching import Lines
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.predict import Prediction, predict
from spikehtr.model.network import Network
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.firing import Firing, recorded_firing
from spikehtr.profiling.ledger import LayerWork, Ledger, recorded_work
from spikehtr.profiling.watched_layers import Extent, watched_extent


@dataclass
class Record:
    """Fills while the network runs."""

    firing: dict[str, Firing]
    work: dict[str, LayerWork]
    extent: Extent


@contextmanager
def recording(net: SpikeHTR) -> Iterator[Record]:
    """Runs on the reference operators, where every neuron can be seen."""
    with (
        ops.reference(),
        watched_extent(net) as extent,
        recorded_firing(net, extent) as firing,
        recorded_work(net, extent) as work,
    ):
        yield Record(firing, work, extent)


@dataclass(frozen=True)
class Measured:
    """A network on some lines."""

    firing: list[Firing]
    ledger: Ledger
    predictions: list[Prediction]


def measure(
    net: SpikeHTR,
    lines: Lines,
    batch_size: int = 8,
    workers: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Measured:
    """Read `lines` and keep the record of it."""
    if not len(lines):
        raise SpikeHTRError("there is no line to measure on")
    with recording(net) as record:
        predictions = predict(net, lines, batch_size, workers, progress)
    if not record.work:
        raise RuntimeError("the lines were read without the network's modules: nothing was recorded")
    ledger = Ledger(list(record.work.values()), len(lines), net.config.timesteps)
    return Measured(list(record.firing.values()), ledger, predictions)


def require_spiking(net: Network) -> SpikeHTR:
    """`net`, if it has spikes to count."""
    if not isinstance(net, SpikeHTR):
        raise SpikeHTRError(f"{net.config.arch} has no spiking neurons: nothing fires there; use --counts for its cost")
    if net.config.neuron != "lif":
        raise SpikeHTRError("the GELU control has no spiking neurons: nothing fires there; use --counts for its cost")
    return net


def with_changes(net: SpikeHTR, changes: Mapping[str, object]) -> SpikeHTR:
    """The same weights in a changed network: shortcut off, or another T. Scalars that it does not have are left out."""
    config = Config().model_copy(update={"model": net.config}).with_overrides(changes).model
    with torch.random.fork_rng(devices=[]):
        other = SpikeHTR(config, net.vocab_size)
    state = {name: value for name, value in net.state_dict().items() if name in other.state_dict()}
    missing = net.state_dict().keys() - state.keys()
    if any(not name.endswith(".alpha") for name in missing):
        raise SpikeHTRError(f"{', '.join(changes)} would change more than the network's scalars")
    other.load_state_dict(state)
    return other.to(next(net.parameters()).device).eval()
