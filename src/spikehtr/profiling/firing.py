"""Firing rates and spike shares of every spiking neuron layer, by hooks that leave the network untouched.

    r_m = S_m / (T N_m)        s_m = S_m / sum_j S_j

S_m counts the spikes of layer m over all timesteps and lines, N_m its neurons: valid columns and tokens, no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from spikehtr.model.masking import valid_mask
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.profiling.extent import Extent
from spikehtr.profiling.names import ENCODER, MIXER, group, spiking_modules


@dataclass
class Firing:
    """One spiking layer, summed over the lines that were read."""

    name: str  # the paper's
    neurons: int = 0  # N_m, summed over lines
    spikes: list[int] = field(default_factory=list)  # of each timestep

    @property
    def group(self) -> str:
        return group(self.name)

    @property
    def rate(self) -> float:
        return sum(self.spikes) / max(1, self.neurons * len(self.spikes))


@contextmanager
def recorded_firing(net: SpikeHTR, extent: Extent) -> Iterator[dict[str, Firing]]:
    """While open, every forward pass of `net` adds to the yielded table; closing removes all hooks."""
    table = {name: Firing(name) for name in spiking_modules(net)}

    def watch(row: Firing) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_: nn.Module, __: Any, fired: Tensor) -> None:
            _add(row, fired, extent)

        return hook

    handles = [m.register_forward_hook(watch(table[name])) for name, m in spiking_modules(net).items()]
    try:
        yield table
    finally:
        for handle in handles:
            handle.remove()


def _add(row: Firing, fired: Tensor, extent: Extent) -> None:
    """fired [T, B, C, H, W] of the encoder, or [T, B, L, d] of the mixer."""
    if fired.dim() == 5:
        own = extent.columns(fired.shape[-1])
        by_place = fired.sum((2, 3))  # [T, B, W]; fewer than 2^24 terms, so exact
        each = fired.shape[2] * fired.shape[3]
    else:
        own = extent.tokens
        by_place = fired.sum(3)  # [T, B, L]
        each = fired.shape[3]
    inside = valid_mask(own, by_place.shape[-1])  # [B, places]
    counts = [int(n) for n in (by_place.double() * inside).sum((1, 2)).tolist()]
    row.spikes = [before + now for before, now in zip(row.spikes or [0] * len(counts), counts, strict=True)]
    row.neurons += int(own.sum()) * each


def shares(rows: Sequence[Firing]) -> list[float]:
    """s_m of each; all 0 where nothing fires."""
    whole = sum(sum(row.spikes) for row in rows)
    return [sum(row.spikes) / max(1, whole) for row in rows]


def global_rate(rows: Sequence[Firing]) -> float:
    """The element-weighted mean firing rate: all spikes over all neurons and timesteps."""
    return sum(sum(row.spikes) for row in rows) / max(1, sum(row.neurons * len(row.spikes) for row in rows))


def distribution(rows: Sequence[Firing]) -> dict[str, float]:
    """How the layers' rates are spread (tab:snn_sparsity_stats); each layer counts once, whatever its size."""
    rates = np.array([row.rate for row in rows])
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
