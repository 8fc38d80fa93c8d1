"""What a network holds and what one line costs: parameters, multiply-accumulates, neurons, and the eligible share.

Nothing is typed in: the network is built and run on one line, and hooks read each layer's shapes and inputs.

A layer is *eligible* for event-driven execution when its input is made of spikes: every value a whole number from 0
to 16 (a spike, or a count of spikes that met in a residual sum), at least half of them 0. Each unit of input then
costs additions only, and zeros cost nothing. One rule, applied to the measured input of every layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spikehtr.assets import SAMPLE_LINE
from spikehtr.config import Config, ModelConfig
from spikehtr.data.geometry import fit_line, paper_level
from spikehtr.data.images import load_line
from spikehtr.model.encoder import DepthwiseConv2d
from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.mixer import MatchedMean, TokenConv
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.model.watching import watch
from spikehtr.profiling.names import group, spiking_modules

PAPER_RATIO = 0.68  # r, the reduction the paper counts its arithmetic at
LARGEST_COUNT = 16


def is_spikes(x: Tensor) -> bool:
    """The eligibility rule above."""
    whole = bool((x == x.round()).all())
    return whole and bool(x.min() >= 0) and bool(x.max() <= LARGEST_COUNT) and bool((x == 0).float().mean() >= 0.5)


def layer_macs(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Dense multiply-accumulates of one call, zero padding included."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return y.numel() * (module.in_channels // module.groups) * int(np.prod(module.kernel_size))
    if isinstance(module, nn.Linear):
        return y.numel() * module.in_features
    if isinstance(module, MatchedMean):  # three products: k v^T, q (k v^T), q . sum k
        return x.numel() * (2 * x.shape[-1] + 1)
    return 0


@dataclass
class LayerCount:
    """One layer's work on one line, summed over its calls."""

    name: str
    macs: int = 0
    eligible: bool = True


def layer_call(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> tuple[tuple[Tensor, ...], Tensor]:
    """What a layer multiplies, and its result, as torch's own layers have them: maps [N, C, H, W], tokens [N, d, L];
    of attention q, k and v [T, B, L, h, d/h]."""
    if isinstance(module, DepthwiseConv2d):
        return (inputs[0].flatten(0, 1),), output[0].flatten(0, 1)
    if isinstance(module, TokenConv):
        x, mask = inputs
        own = (x * mask[:, :, None]).flatten(0, 1).transpose(1, 2)
        return (own,), output.flatten(0, 1).transpose(1, 2)
    if isinstance(module, MatchedMean):
        qkv, mask = inputs
        q, k, v = qkv.unflatten(-1, (3, module.heads, -1)).unbind(3)
        return (q, k * mask[:, :, None, None], v), output.unflatten(-1, (module.heads, -1))
    return inputs, output


LayerHook = Callable[[str, nn.Module, tuple[Any, ...], Any], None]


@contextmanager
def watched_layers(net: nn.Module, hook: LayerHook) -> Iterator[None]:
    """While open, `hook(name, module, inputs, output)` hears of every call of a layer that does arithmetic."""

    def named(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda module, inputs, output: hook(name, module, *layer_call(module, inputs, output))

    kinds = (nn.Conv1d, nn.Conv2d, nn.Linear, MatchedMean)
    handles = [m.register_forward_hook(named(name)) for name, m in net.named_modules() if isinstance(m, kinds)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def counted_layers(net: nn.Module) -> Iterator[dict[str, LayerCount]]:
    """While open, every forward pass of `net` adds to the yielded table; closing removes all hooks."""
    table: dict[str, LayerCount] = {}

    def hook(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        row = table.setdefault(name, LayerCount(name))
        row.macs += layer_macs(module, inputs[0], output)
        row.eligible = row.eligible and all(map(is_spikes, inputs))

    with watched_layers(net, hook):
        yield table


@contextmanager
def counted_neurons(net: SpikeHTR) -> Iterator[Counter[str]]:
    """While open, a forward pass of one line adds the neurons it meets to the yielded table, by group."""
    names: dict[nn.Module, str] = {module: name for name, module in spiking_modules(net).items()}
    table = Counter[str]()

    def hear(_: str, module: nn.Module, __: Tensor, fired: Tensor) -> None:
        table[group(names[module])] += fired[0].numel()

    with watch(net, hear, MultiStepLIF):
        yield table


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def count(config: Config, vocab_size: int = 80, width: int = 512, ratio: float | None = None) -> Counts:
    """Build `config.model` and count a line of `width` pixels, the mixer at `ratio` (or the paper's) of the tokens."""
    if ratio is None:
        ratio = 1.0 if config.model.reducer.mode == "none" else PAPER_RATIO
    net = build(config.model, vocab_size)
    with counted_neurons(net) as neurons:
        layers, tokens_in, tokens_mixed = run(net, width, ratio)
    pure_model = config.model.model_copy(update={"encoder": config.model.encoder.model_copy(update={"bypass": False})})
    pure = layers if pure_model == config.model else run(build(pure_model, vocab_size), width, ratio)[0]
    macs: Counter[str] = Counter()
    for row in layers:
        macs[component(row.name)] += row.macs
    parameters = sum(p.numel() for p in net.parameters())
    return Counts(
        parameters=parameters,
        mixer_share=sum(p.numel() for p in net.mixer.parameters()) / parameters,
        dense_macs=sum(macs.values()),
        macs=dict(macs),
        stem_macs=macs["stem"],
        lif_modules=dict(Counter(group(name) for name in spiking_modules(net))),
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


def build(config: ModelConfig, vocab_size: int) -> SpikeHTR:
    """A freshly initialised network, the same each time, leaving the global random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SpikeHTR(config, vocab_size).eval()


@torch.no_grad()
def run(net: SpikeHTR, width: int, ratio: float) -> tuple[list[LayerCount], int, int]:
    """One forward pass over the sample line on a canvas of `width`; the layers, L0, and the tokens that were mixed.

    The reduction itself is set aside: a ratio of the tokens is passed on, so that counts do not hang on training.
    """
    line = fit_line(load_line(SAMPLE_LINE), net.config.height, width)
    canvas = np.full((net.config.height, width), paper_level(line), np.uint8)
    canvas[:, : line.shape[1]] = line
    images = torch.from_numpy(canvas.astype(np.float32) / 255)[None, None]
    with counted_layers(net) as table:
        z, lengths = net.encode(images)
        net.reduce(z, lengths)
        mixed = max(1, round(ratio * z.shape[2]))
        net.decode(z[:, :, :mixed], torch.tensor([mixed]))
    return list(table.values()), z.shape[2], mixed


def component(name: str) -> str:
    """encoder.stage1.blocks.0.pw1.conv -> stage1; mixer.blocks.0... -> mixer."""
    parts = name.split(".")
    return parts[1] if parts[0] == "encoder" else parts[0]


def eligible_share(layers: list[LayerCount]) -> float:
    return sum(row.macs for row in layers if row.eligible) / sum(row.macs for row in layers)
