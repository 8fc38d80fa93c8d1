"""What operators take beside tensors: plain numbers, and who listens to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

Tap = Callable[[Tensor, Tensor], None]  # hears of what a norm or neuron read and gave; on the reference side only

NONE, LIF, GELU, SILU = range(4)


class Neuron(NamedTuple):
    """A nonlinearity by its kind, and the constants of LIF (Eq. 1)."""

    kind: int = NONE
    decay: float = 0.0
    threshold: float = 1.0
    surrogate: str = "atan"  # or sigmoid
    sharpness: float = 1.0  # of the surrogate
    burst: int = 1  # most spikes in a step
    burst_step: float = 0.5
    tap: Tap | None = None

    @property
    def atan(self) -> bool:
        return self.surrogate == "atan"


class Norm(NamedTuple):
    """Of channels in groups, over a line's own columns; or, of tokens, over all channels (`groups` is not used)."""

    groups: int = 1
    eps: float = 1e-5
    tap: Tap | None = None


class Ink(NamedTuple):
    """The constants of InkCoder's evidence (Appendix A)."""

    blur: int
    density: int
    edge_scale: int
    q_low: float
    q_high: float
    q_edge: float
    kappa_int: float
    tau_int: float
    kappa_edge: float
    tau_edge: float
    kappa_density: float
    tau_density: float
    gamma_density: float
