"""The spike diagnostics of a trained model on real lines: all numbers of Section 4.3 and Appendix D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spikehtr.data.batching import Lines
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rates import character_edits, finite, total
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.profiling.energy import PJ_BYTE, EnergyRow, EnergyTotal, hybrid, ideal, totals
from spikehtr.profiling.firing import by_stage, distribution, global_rate, shares
from spikehtr.profiling.record_activity import Measured, measure, with_changes

_FEW = 64  # lines that each other T is tried on
_BYPASS = {"model.encoder.bypass": False}


@dataclass(frozen=True)
class StepCost:
    """The same weights run with another number of timesteps than they were trained for."""

    timesteps: int
    lines: int
    dense_macs: float
    macs: float
    additions: float
    ratio: float  # to dense arithmetic at the same T
    ratio_one_pass: float  # to an ordinary network that runs once
    firing_rate: float
    cer: float | None


@dataclass(frozen=True)
class Diagnosis:
    about: dict[str, Any]
    measured: Measured
    rows: list[EnergyRow]
    totals: list[EnergyTotal]
    steps: list[StepCost]

    def to_dict(self) -> dict[str, Any]:
        """Every number, ready for JSON."""
        firing = self.measured.firing
        return self.about | {
            "firing": {
                "distribution": distribution(firing),
                "active": distribution(firing, active=True),
                "stages": by_stage(firing),
                "global_rate": global_rate(firing),
                "modules": [
                    asdict(row) | {"rate": row.rate, "active_share": row.active_share, "share": share}
                    for row, share in zip(firing, shares(firing), strict=True)
                ],
            },
            "energy": {row.name: row.to_dict() for row in self.rows},
            "totals": [t.to_dict() for t in self.totals],
            "timesteps": [asdict(step) for step in self.steps],
            "layers": [
                asdict(row) | {"eligible": row.eligible(), "binary": row.eligible(binary=True)}
                for row in self.measured.ledger.layers
            ],
        }


def diagnose(
    net: SpikeHTR,
    lines: Lines,
    about: dict[str, Any] | None = None,
    batch_size: int = 8,
    workers: int = 0,
    pj_byte: float = PJ_BYTE,
    progress: Callable[[int], None] | None = None,
) -> Diagnosis:
    """Read `lines` as the network is, with the shortcut off, and some of them with other T. `progress`: lines read."""
    done = 0

    def ahead(read: int) -> None:
        if progress:
            progress(done + read)

    measured = measure(net, lines, batch_size, workers, ahead)
    rows = [hybrid("Default", measured.ledger, f"as trained, CER {_cer_text(measured.predictions)}")]
    strict = hybrid("Default, binary only", measured.ledger, "sums and bursts of spikes are dense", binary=True)
    if strict.eligible_share != rows[0].eligible_share:
        rows.append(strict)
    done += len(lines)
    if net.config.encoder.shortcuts:
        pure = measure(with_changes(net, _BYPASS), lines, batch_size, workers, ahead)
        done += len(lines)
        told = f"shortcut off, not trained so: CER {_cer_text(pure.predictions)}"
        rows.append(hybrid("Pure-spike", pure.ledger, f"{told}; sums of spikes count, unit by unit"))
        rows.append(hybrid("Pure-spike, binary only", pure.ledger, f"{told}; sums of spikes are dense", binary=True))
    rows.append(ideal("Ideal", measured.ledger, measured.firing, "an upper bound, not an implementation"))
    few = some(lines, _FEW)
    steps = []
    for timesteps in sorted({1, 2, 4, net.config.timesteps}):
        if timesteps <= net.config.max_timesteps:
            steps.append(_at(net, few, timesteps, batch_size, workers, ahead))
            done += len(few)
    known = {
        "lines": len(lines),
        "trained_timesteps": net.config.timesteps,
        "cer": _cer(measured.predictions),
        "keep_ratio": sum(p.keep_ratio for p in measured.predictions) / len(lines),
        "parameters": sum(p.numel() for p in net.parameters()),
        "pj_byte": pj_byte,
    }
    whole = totals(measured.ledger, measured.firing, pj_byte)
    return Diagnosis((about or {}) | known, measured, rows, whole, steps)


def lines_to_read(net: SpikeHTR, lines: Lines) -> int:
    """How many lines `diagnose` reads in all, for a progress bar."""
    tried = {t for t in (1, 2, 4, net.config.timesteps) if t <= net.config.max_timesteps}
    return len(lines) * (2 if net.config.encoder.shortcuts else 1) + len(tried) * min(_FEW, len(lines))


def some(lines: Lines, count: int) -> Lines:
    """`count` of the lines at most, evenly spread over them."""
    if len(lines) <= count:
        return lines
    places = np.linspace(0, len(lines) - 1, count).round().astype(np.int64)
    return Lines(lines.store, lines.rows[places], lines.charset, lines.max_width, labelled=lines.labelled)


def _at(
    net: SpikeHTR, lines: Lines, timesteps: int, batch_size: int, workers: int, progress: Callable[[int], None]
) -> StepCost:
    changed = with_changes(net, {"model.timesteps": timesteps})
    found = measure(changed, lines, batch_size, workers, progress)
    row = hybrid("", found.ledger, "")
    return StepCost(
        timesteps,
        len(lines),
        row.dense_macs,
        row.macs,
        row.additions,
        row.ratio(),
        row.ratio() * found.ledger.dense / found.ledger.one_pass,
        global_rate(found.firing),
        _cer(found.predictions),
    )


def _cer(predictions: Sequence[Prediction]) -> float | None:
    return finite(total(character_edits(p.reference, p.text) for p in predictions).rate)


def _cer_text(predictions: Sequence[Prediction]) -> str:
    cer = _cer(predictions)
    return "unknown" if cer is None else f"{cer:.1%}"
