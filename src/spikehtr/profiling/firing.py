"""Firing rates and spike shares of every spiking neuron layer, while the network reads on the reference operators.

    r_m = S_m / (T N_m)        s_m = S_m / sum_j S_j

S_m counts the spikes of layer m over all timesteps and lines, N_m its neurons: valid columns and tokens, no padding. A
burst is so many spikes; `active` counts it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from spikehtr.model.lif import MultiStepLIF
from spikehtr.model.masking import valid_mask
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.model.watching import watch
from spikehtr.profiling.paper_names import ENCODER, MIXER, group, spiking_modules
from spikehtr.profiling.watched_layers import Extent


@dataclass
class Firing:
    """One spiking layer, summed over the lines that were read."""

    name: str  # the paper's
    neurons: int = 0  # N_m, summed over lines
    spikes: list[int] = field(default_factory=list)  # of each timestep
    active: list[int] = field(default_factory=list)  # neurons that fired, once or more often, at each timestep

    @property
    def group(self) -> str:
        return group(self.name)

    @property
    def rate(self) -> float:
        return sum(self.spikes) / max(1, self.neurons * len(self.spikes))

    @property
    def active_share(self) -> float:
        """The rate, with bursts counted once."""
        return sum(self.active) / max(1, self.neurons * len(self.active))


@contextmanager
def recorded_firing(net: SpikeHTR, extent: Extent) -> Iterator[dict[str, Firing]]:
    """While open, every forward pass of `net` adds to the yielded table."""
    names: dict[nn.Module, str] = {module: name for name, module in spiking_modules(net).items()}
    table = {name: Firing(name) for name in names.values()}

    def hear(_: str, module: nn.Module, __: Tensor, fired: Tensor) -> None:
        _add(table[names[module]], fired, extent)

    with watch(net, hear, MultiStepLIF):
        yield table


def _add(row: Firing, fired: Tensor, extent: Extent) -> None:
    """fired [T, B, C, H, W] of the encoder, or [T, B, L, d] of the mixer."""
    encoder = fired.dim() == 5
    own = extent.columns(fired.shape[-1]) if encoder else extent.tokens
    inside = valid_mask(own, fired.shape[-1 if encoder else 2])  # [B, places]

    def added(before: list[int], values: Tensor) -> list[int]:
        by_place = values.sum((2, 3) if encoder else 3)  # [T, B, places]; fewer than 2^24 terms, so exact
        counts = [int(n) for n in (by_place.double() * inside).sum((1, 2)).tolist()]
        return [old + now for old, now in zip(before or [0] * len(counts), counts, strict=True)]

    row.spikes = added(row.spikes, fired)
    row.active = added(row.active, fired > 0)
    row.neurons += int(own.sum()) * (fired.shape[2] * fired.shape[3] if encoder else fired.shape[3])


def shares(rows: Sequence[Firing]) -> list[float]:
    """s_m of each; all 0 where nothing fires."""
    whole = sum(sum(row.spikes) for row in rows)
    return [sum(row.spikes) / max(1, whole) for row in rows]


def global_rate(rows: Sequence[Firing]) -> float:
    """The element-weighted mean firing rate: all spikes over all neurons and timesteps."""
    return sum(sum(row.spikes) for row in rows) / max(1, sum(row.neurons * len(row.spikes) for row in rows))


def distribution(rows: Sequence[Firing], active: bool = False) -> dict[str, float]:
    """How the layers' rates are spread (tab:snn_sparsity_stats); each layer counts once, whatever its size.

    `active`: the shares of neurons that fire, instead.
    """
    rates = np.array([row.active_share if active else row.rate for row in rows])
    return {
        "modules": len(rates),
        "mean": float(rates.mean()),
        "median": float(np.median(rates)),
        "p90": float(np.quantile(rates, 0.9)),
        "p99": float(np.quantile(rates, 0.99)),
        "min": float(rates.min()),
        "max": float(rates.max()),
    }


def by_stage(rows: Sequence[Firing]) -> list[dict[str, Any]]:
    """The paper's two groups (tab:snn_stage_summary), and the encoder's stages one by one."""
    share = dict(zip((row.name for row in rows), shares(rows), strict=True))
    stages = sorted({row.name.split("-")[1] for row in rows if row.group == ENCODER})
    parts = {ENCODER: [row for row in rows if row.group == ENCODER]}
    parts |= {f"stage {stage[1:]}": [row for row in rows if row.name.startswith(f"Enc-{stage}-")] for stage in stages}
    parts[MIXER] = [row for row in rows if row.group == MIXER]
    return [
        {
            "group": name,
            "modules": len(part),
            "mean": float(np.mean([row.rate for row in part])),
            "median": float(np.median([row.rate for row in part])),
            "share": sum(share[row.name] for row in part),
        }
        for name, part in parts.items()
        if part
    ]
