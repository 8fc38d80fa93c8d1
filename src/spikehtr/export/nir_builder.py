"""A network as NIR parts and host steps, added one by one: what `nir_walk` builds and `nir` writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from spikehtr.config import LIFConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.export.tracing import need

DT = 1.0  # length of a step, in the unit that tau is given in

Shape = tuple[int, ...]
Array = NDArray[np.float32]


class NirBuilder:
    """Parts and steps as they are added; `shapes` are those of one step's value, without T and L."""

    def __init__(self, timesteps: int) -> None:
        (self.nir,) = need("nir")
        self.timesteps = timesteps
        self.parts: dict[str, Any] = {}
        self.steps: list[dict[str, Any]] = []
        self.shapes: dict[str, Shape] = {}

    def host(self, name: str, operation: str, reads: Sequence[str], shape: Shape, **parameters: Any) -> str:
        """A step that a host computes; its result goes by `name`."""
        told = {key: _plain(value) for key, value in parameters.items()}
        self.steps.append({"name": name, "on": "host", "operation": operation, "reads": list(reads), **told})
        self.shapes[name] = shape
        return name

    def part(self, reads: str, *nodes: tuple[str, Any]) -> str:
        """A step that is NIR: nodes in a row, a list of them side by side. It goes by the name of the last."""
        name, last = nodes[-1]
        placed = [_side_by_side(*node) for node in nodes]
        shape = tuple(int(side) for side in self.shapes[reads])
        if _grouped(last):
            assert len(nodes) == 1
            # nir 1.0.8 takes a grouped convolution for one of C / groups channels: it can only stand alone.
            self.parts[name] = last
        else:
            ends = self.nir.Input(np.array(shape)), self.nir.Output(None)
            row = [{"input": ends[0]}, *placed, {"output": ends[1]}]
            edges = [(a, b) for before, after in pairwise(row) for a in before for b in after]
            self.parts[name] = self.nir.NIRGraph({key: node for here in row for key, node in here.items()}, edges)
        made = self.parts[name].output_type
        self.shapes[name] = tuple(int(side) for side in next(iter(made.values())))
        kinds = {key: type(node).__name__ for here in placed for key, node in here.items()}
        fires = {"fires": nodes[0][0]} if {"LIF", "IF"} & set(kinds.values()) else {}
        self.steps.append({"name": name, "on": "nir", "nodes": kinds, **fires, "reads": [reads]})
        return name

    def conv2d(self, module: nn.Conv2d, shape: Shape) -> Any:
        """A Conv2d for maps of `shape` [C, H, W]; a kernel that is not square gets zeros around it, since nir works out
        sizes by its first side."""
        weight, (down, right) = _numbers(module.weight), module.stride
        side = max(weight.shape[2:])
        spare = [(side - given) // 2 for given in weight.shape[2:]]
        weight = np.pad(weight, [(0, 0), (0, 0), *((more, more) for more in spare)])
        bias = np.zeros(len(weight), np.float32) if module.bias is None else _numbers(module.bias)
        edge = (side // 2, side // 2)
        return self.nir.Conv2d(shape[1:], weight, (down, right), edge, (1, 1), module.groups, bias)

    def conv1d(self, module: nn.Conv1d, length: int) -> Any:
        weight = _numbers(module.weight)
        bias = np.zeros(len(weight), np.float32) if module.bias is None else _numbers(module.bias)
        return self.nir.Conv1d(length, weight, 1, weight.shape[2] // 2, 1, module.groups, bias)

    def linear(self, module: nn.Linear) -> Any:
        weight = _numbers(module.weight)
        return self.nir.Linear(weight) if module.bias is None else self.nir.Affine(weight, _numbers(module.bias))

    def neuron(self, config: LIFConfig, shape: Shape, burst: int = 1) -> Any:
        """One that fires up to `burst` times is so many, for a network of one step: none has anything to forget."""
        if burst > 1 and self.timesteps > 1:
            raise SpikeHTRError(
                "NIR has no neuron that fires several times in one of several steps: export a network with "
                "model.timesteps=1, or one trained with model.encoder.pw1_burst=1 and model.mixer.burst=1"
            )

        def all_of(value: float) -> Array:
            return np.full(shape, value, np.float32)

        rest, thresholds = all_of(0.0), [all_of(config.threshold + n * config.burst_step) for n in range(burst)]
        if config.decay == 1:
            r = all_of(1 / DT)
            made = [self.nir.IF(r=r, v_threshold=one, v_reset=rest) for one in thresholds]
        else:
            tau, r = all_of(DT / (1 - config.decay)), all_of(1 / (1 - config.decay))
            made = [self.nir.LIF(tau=tau, r=r, v_leak=rest, v_threshold=one, v_reset=rest) for one in thresholds]
        return made if burst > 1 else made[0]


def _side_by_side(name: str, node: Any) -> dict[str, Any]:
    return {f"{name}.{number}": one for number, one in enumerate(node)} if isinstance(node, list) else {name: node}


def _grouped(node: Any) -> bool:
    return int(getattr(node, "groups", 1)) > 1


def _numbers(value: Tensor) -> Array:
    return value.detach().cpu().float().numpy()


def _plain(value: Any) -> Any:
    """What JSON can hold: a tensor as numbers, which read back exactly."""
    return value.detach().cpu().tolist() if isinstance(value, Tensor) else value
