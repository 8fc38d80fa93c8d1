"""What a network holds and what one line costs: parameters, multiply-accumulates, neurons, and the eligible share.

Nothing is typed in: the network is built and run on one line, and hooks read each layer's shapes and inputs.

A layer is *eligible* for event-driven execution when its input is made of spikes, by the rule of `ledger`. Each unit
of input then costs additions only, and zeros cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spikehtr import registry
from spikehtr.assets import SAMPLE_LINE
from spikehtr.baselines.common import Baseline, Columns
from spikehtr.config import Config, ModelConfig
from spikehtr.data.geometry import fit_line, paper_level
from spikehtr.data.images import load_line
from spikehtr.model.network import Network
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.record_activity import Record, recording
from spikehtr.profiling.watched_layers import Extent, component, layer_macs, watched_layers

PAPER_RATIO = 0.68  # r, the reduction the paper counts its arithmetic at


@dataclass(frozen=True)
class LayerCount:
    """One layer's work on one line, summed over its calls."""

    name: str
    macs: int
    eligible: bool


@dataclass(frozen=True)
class Counts:
    """The figures of the paper's Tables 8 and 18 for one configuration and one line."""

    parameters: int
    mixer_share: float
    dense_macs: int
    macs: dict[str, int]  # by component
    stem_macs: int
    lif_modules: dict[str, int]  # by group
    neurons: dict[str, int]  # by group; each is run at every timestep
    eligible_share: float
    eligible_share_no_bypass: float
    timesteps: int
    width: int
    tokens_in: int  # L0
    tokens_mixed: int
    vocab_size: int
    layers: list[LayerCount] = field(repr=False)


@dataclass(frozen=True)
class BaselineCounts:
    """The same of a network without spikes."""

    arch: str
    parameters: int
    dense_macs: int
    macs: dict[str, int]  # of the features, the sequence part and the heads
    height: int
    width: int
    tokens_in: int  # L0
    tokens_read: int  # by the sequence part
    vocab_size: int


def count(config: Config, vocab_size: int = 80, width: int = 512, ratio: float | None = None) -> Counts:
    """Build `config.model` and count a line of `width` pixels, the mixer at `ratio` (or the paper's) of the tokens."""
    net = build(config.model, vocab_size)
    assert isinstance(net, SpikeHTR)
    if ratio is None:
        ratio = 1.0 if config.model.reducer.mode == "none" else PAPER_RATIO
    record, tokens_in, tokens_mixed = record_sample(net, width, ratio)
    layers = _layers(record)
    pure_model = config.model.model_copy(update={"encoder": config.model.encoder.model_copy(update={"bypass": False})})
    pure = layers
    if pure_model != config.model:
        other = build(pure_model, vocab_size)
        assert isinstance(other, SpikeHTR)
        pure = _layers(record_sample(other, width, ratio)[0])
    macs, neurons = Counter[str](), Counter[str]()
    for layer in layers:
        macs[component(layer.name)] += layer.macs
    for row in record.firing.values():
        neurons[row.group] += row.neurons
    parameters = sum(p.numel() for p in net.parameters())
    return Counts(
        parameters=parameters,
        mixer_share=sum(p.numel() for p in net.mixer.parameters()) / parameters,
        dense_macs=macs.total(),
        macs=dict(macs),
        stem_macs=macs["stem"],
        lif_modules=dict(Counter(row.group for row in record.firing.values())),
        neurons=dict(neurons),
        eligible_share=eligible_share(layers),
        eligible_share_no_bypass=eligible_share(pure),
        timesteps=config.model.timesteps,
        width=width,
        tokens_in=tokens_in,
        tokens_mixed=tokens_mixed,
        vocab_size=vocab_size,
        layers=layers,
    )


def count_baseline(config: Config, vocab_size: int, width: int, ratio: float | None = None) -> BaselineCounts:
    """Count a line of `width` pixels; with the reducer on, `ratio` (or the paper's) of its tokens are read."""
    net = build(config.model, vocab_size)
    assert isinstance(net, Baseline)
    if ratio is None:
        ratio = PAPER_RATIO if net.reduces else 1.0
    macs = Counter[str]()
    with counted_macs(net) as features:
        tokens, left = _features(net, width, ratio)
    with counted_macs(net) as sequence, torch.no_grad():
        net.read(tokens[:, :left], torch.tensor([left]))
    for part, table in (("features", features), ("sequence part", sequence)):
        for name, number in table.items():
            macs["heads" if name.startswith(("head", "shortcut")) else part] += number
    return BaselineCounts(
        arch=config.model.arch,
        parameters=sum(p.numel() for p in net.parameters()),
        dense_macs=macs.total(),
        macs=dict(macs),
        height=config.model.height,
        width=width,
        tokens_in=tokens.shape[1],
        tokens_read=left,
        vocab_size=vocab_size,
    )


def dense_macs(config: Config, vocab_size: int, width: int, ratio: float) -> int:
    """All multiply-accumulates of a line, of any network."""
    if config.model.arch != "spike-htr":
        return count_baseline(config, vocab_size, width, ratio).dense_macs
    net = build(config.model, vocab_size)
    assert isinstance(net, SpikeHTR)
    with counted_macs(net) as macs:
        _read_sample(net, width, ratio)
    return macs.total()


def build(config: ModelConfig, vocab_size: int) -> Network:
    """A freshly initialised network, the same each time, leaving the global random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return registry.build(config, vocab_size).eval()


@contextmanager
def counted_macs(net: nn.Module) -> Iterator[Counter[str]]:
    """While open, every forward pass of `net` adds to the yielded table, by layer."""
    macs = Counter[str]()

    def hook(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        macs[name] += layer_macs(module, inputs[0], output)

    with watched_layers(net, hook):
        yield macs


def record_sample(net: SpikeHTR, width: int, ratio: float) -> tuple[Record, int, int]:
    """What happens on the sample line, L0, and the tokens that were mixed."""
    with recording(net) as record:
        return record, *_read_sample(net, width, ratio, record.extent)


@torch.no_grad()
def _read_sample(net: SpikeHTR, width: int, ratio: float, extent: Extent | None = None) -> tuple[int, int]:
    """One forward pass over the sample line on a canvas of `width`.

    The reduction itself is set aside: a ratio of the tokens is passed on, so that counts do not hang on training.
    """
    line = fit_line(load_line(SAMPLE_LINE), net.config.height, width)
    canvas = np.full((net.config.height, width), paper_level(line), np.uint8)
    canvas[:, : line.shape[1]] = line
    device = next(net.parameters()).device
    images = torch.from_numpy(canvas.astype(np.float32) / 255)[None, None].to(device)
    z, lengths = net.encode(images)
    net.reduce(z, lengths)
    mixed = torch.tensor([max(1, round(ratio * z.shape[2]))], device=device)
    if extent is not None:
        extent.tokens = mixed
    net.decode(z[:, :, : int(mixed)], mixed)
    return z.shape[2], int(mixed)


@torch.no_grad()
def _features(net: Baseline, width: int, ratio: float) -> tuple[Tensor, int]:
    """What the first part of a baseline makes of a blank line, [1, L0, d], and how much of it the second part reads:
    which tokens are merged shall not hang on training."""
    images, widths = net.prepare(torch.ones(1, 1, net.config.height, width))
    tokens = net.features(1 - images, Columns(widths, images.shape[-1]))
    if net.reduces and net.shortcut is not None:
        net.shortcut.preview(tokens)
    return tokens, max(1, round(ratio * tokens.shape[1]))


def _layers(record: Record) -> list[LayerCount]:
    return [LayerCount(row.name, row.macs, row.eligible()) for row in record.work.values()]


def eligible_share(layers: list[LayerCount]) -> float:
    return sum(row.macs for row in layers if row.eligible) / sum(row.macs for row in layers)
