"""The energy proxy of Appendix D, and beside it what it leaves out.

    E_hyb / E_dense = (N_MAC_hyb + N_AC_hyb / rho) / N_MAC_dense,   rho = E_MAC / E_AC

Arithmetic only, at fixed costs an operation. The costs are Horowitz's for 45 nm (ISSCC 2014), the paper's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spikehtr.profiling.firing import Firing, global_rate
from spikehtr.profiling.ledger import ONCE, Ledger

PJ_MULTIPLY, PJ_ADD = 3.7, 0.9  # fp32
E_MAC, E_AC = PJ_MULTIPLY + PJ_ADD, PJ_ADD
RHO = E_MAC / E_AC
PJ_MAC_INT8, PJ_ADD_INT32 = 0.3, 0.1  # 8-bit multiply 0.2 and a 32-bit addition 0.1
PJ_BYTE = 12.5  # 64 bits from 1 MB of on-chip memory: 100 pJ
RHOS = (5.0, 10.0, 20.0, 30.0)


@dataclass(frozen=True)
class EnergyRow:
    """One accounting of the same lines; counts are means over lines."""

    name: str
    dense_macs: float
    macs: float
    additions: float
    eligible_share: float
    note: str

    def ratio(self, rho: float = RHO) -> float:
        return (self.macs + self.additions / rho) / self.dense_macs

    def to_dict(self) -> dict[str, Any]:
        sweep = {f"{rho:g}": self.ratio(rho) for rho in RHOS}
        return asdict(self) | {"ratio": self.ratio(), "ratio_at_rho": sweep}


def hybrid(name: str, ledger: Ledger, note: str, binary: bool = False) -> EnergyRow:
    """Layers that read spikes as additions, all others dense."""
    n = ledger.lines
    macs = (ledger.dense - ledger.event_driven(binary)) / n
    return EnergyRow(
        name, ledger.dense / n, macs, ledger.additions(binary) / n, ledger.eligible_share(binary), _leaves_out(note)
    )


def ideal(name: str, ledger: Ledger, firing: Sequence[Firing], note: str) -> EnergyRow:
    """Everything but the stem as additions at the mean firing rate (the paper's Eq. for the ideal counts)."""
    n = ledger.lines
    rest = (ledger.dense - ledger.stem) / n
    return EnergyRow(name, ledger.dense / n, ledger.stem / n, global_rate(firing) * rest, 1.0, _leaves_out(note))


def _leaves_out(note: str) -> str:
    return f"{note}; leaves out norms, neurons' updates, gates, residual sums and all memory"


@dataclass(frozen=True)
class EnergyTotal:
    """Energy of a line in microjoules, part by part."""

    name: str
    arithmetic: float
    neurons: float  # decay and integration
    memory: float
    note: str

    @property
    def whole(self) -> float:
        return self.arithmetic + self.neurons + self.memory

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"whole": self.whole}


def totals(ledger: Ledger, firing: Sequence[Firing], pj_byte: float = PJ_BYTE) -> list[EnergyTotal]:
    """What critics of the proxy ask for: an ordinary network that runs once, in fp32 and INT8, as the reference;
    the neurons' own arithmetic; the traffic of weights, maps and membranes."""
    n, steps = ledger.lines, ledger.timesteps
    updates = sum(row.neurons for row in firing) * (steps - 1) / n  # the first step finds an empty membrane
    macs, additions = (ledger.dense - ledger.event_driven()) / n, ledger.additions() / n
    traffic = Traffic.of(ledger, firing)
    every = f"memory: weights, inputs and outputs of every layer cross it once, at {pj_byte:g} pJ a byte"
    kept = "leaves out norms, gates and residual sums, and partial sums that stay in a register"
    form = "a spike takes one bit, a sum or a burst of them as many as it needs"
    spiking = f"membranes are read and written {steps - 1} times a line; {form}; {every}; {kept}"
    return [
        _total("ANN, fp32, one pass", ledger.one_pass / n * E_MAC, 0, traffic.ann(4) * pj_byte, f"{every}; {kept}"),
        _total(
            "ANN, INT8, one pass", ledger.one_pass / n * PJ_MAC_INT8, 0, traffic.ann(1) * pj_byte, f"{every}; {kept}"
        ),
        _total(
            f"spiking, fp32, T = {steps}",
            macs * E_MAC + additions * E_AC,
            updates * (PJ_MULTIPLY + PJ_ADD),
            traffic.spiking(4) * pj_byte,
            spiking,
        ),
        _total(
            f"spiking, INT8, T = {steps}",
            macs * PJ_MAC_INT8 + additions * PJ_ADD_INT32,
            updates * PJ_MAC_INT8,
            traffic.spiking(1) * pj_byte,
            f"as if INT8 weights and membranes cost no accuracy; {spiking}",
        ),
    ]


def _total(name: str, arithmetic: float, neurons: float, memory: float, note: str) -> EnergyTotal:
    return EnergyTotal(name, arithmetic / 1e6, neurons / 1e6, memory / 1e6, note)


@dataclass(frozen=True)
class Traffic:
    """Values that cross the memory for a line: means over lines."""

    weights: float
    analog: float  # inputs that are no spikes
    spikes: float  # inputs that are
    bits: float  # that these take
    outputs: float
    membranes: float
    once: float  # inputs and outputs of what runs once a line anyway
    timesteps: int

    @classmethod
    def of(cls, ledger: Ledger, firing: Sequence[Firing]) -> Traffic:
        n, steps = ledger.lines, ledger.timesteps
        return cls(
            weights=sum(row.weights for row in ledger.layers),
            analog=sum(row.inputs for row in ledger.layers if not row.eligible()) / n,
            spikes=sum(row.inputs for row in ledger.layers if row.eligible()) / n,
            bits=sum(row.inputs * row.bits for row in ledger.layers if row.eligible()) / n,
            outputs=sum(row.outputs for row in ledger.layers) / n,
            membranes=2 * sum(row.neurons for row in firing) * (steps - 1) / n,
            once=sum(row.inputs + row.outputs for row in ledger.layers if row.component in ONCE) / n,
            timesteps=steps,
        )

    def ann(self, size: int) -> float:
        """Bytes of the same layers run once, values of `size` bytes."""
        maps = self.analog + self.spikes + self.outputs - self.once
        return size * (self.weights + self.once + maps / self.timesteps)

    def spiking(self, size: int) -> float:
        """Bytes over all timesteps; weights are read once for all of them."""
        return size * (self.weights + self.analog + self.outputs + self.membranes) + self.bits / 8
