"""NIR: the network's convolutions, linear maps, pools and neurons as parts of one .nir file, and a manifest that says
what a host computes between them.

NIR has no normalisation by a line's own statistics, no product of two signals and no reduction, so the network is not
one NIR graph. It is a list of steps, each either a part (a small NIR graph with one input and one output, complete with
weights) or a host operation with its parameters. `spikehtr.export.simulate` runs that list from the two files alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from spikehtr.config import LIFConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.export.simulate import FORMAT, OPERATIONS
from spikehtr.export.tracing import need
from spikehtr.files import whole_file
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.text import BLANK
from spikehtr.version import __version__
from spikehtr.weights import Loaded

DT = 1.0  # length of a step, in the unit that tau is given in
_NEURON = (
    "Forward Euler with dt: v <- (1 - dt / tau) * v + (dt / tau) * (v_leak + r * x), with x the input of the step; "
    "it fires where v >= v_threshold (NIR's own definition has >, which differs at exact equality only), and what "
    "fired is set to v_reset before the next step. v starts at v_leak for every line. From the network's own "
    "u <- decay * u * (1 - fired) + x this follows with tau = dt / (1 - decay), r = 1 / (1 - decay), "
    "v_leak = v_reset = 0 and v_threshold = threshold; a decay of 1 is NIR's IF with r = 1 / dt. A neuron X that fires "
    "up to n times in the one step of its network is n nodes side by side, X.0, X.1 and so on, each with a threshold "
    "of its own: where edges meet, values are added. A step's `fires` is the name X of what its LIF or IF nodes are."
)
_LAYOUT = (
    "One line at a time, `width` pixels wide or narrower in whole tokens of `stride` pixels; every parameter of a "
    "neuron is the same at all positions, so a narrower line uses the first columns. Maps are [T, C, H, W], tokens "
    "[T, L, d]. A part whose input is [C, H, W] takes a map of a step; one whose input is [d] takes each vector along "
    "the last axis by itself; one whose input is [C, L] takes tokens turned to [d, L], with zeros behind the last one. "
    "Neurons keep their membrane from step to step, one for every value; all other parts have no state. A "
    "one-channel line goes to all `channels` of the image."
)
_INPUT = (
    "A line, upright and grey (0.299 red + 0.587 green + 0.114 blue), made level first where `straighten` is true, is "
    "scaled to `height` pixels with its aspect kept (bicubic). One that is then wider than `max_width` is scaled down "
    "to that and stands in the middle of the `height` rows, the rest filled with its median. Last columns that are no "
    "whole token are cut off. The image is the grey level / 255, neither inverted nor normalised. "
    "spikehtr.data.geometry.fit_line(image, height, max_width, straighten) does all but the cut and the division."
)
_LABELS = (
    "The output is logits [L, labels]. Label 0 is the CTC blank, label i is charset[i - 1]. Greedy text: the best "
    "label of each of the L frames, repeated ones once, blanks left out."
)

Shape = tuple[int, ...]
Array = NDArray[np.float32]


class Plan:
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
        assert burst == 1 or self.timesteps == 1

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


def save(loaded: Loaded, path: str | os.PathLike[str], width: int | None = None) -> Path:
    """Write PATH.nir, and its manifest beside it as PATH.json; the latter's name. `width`: of the widest line."""
    from spikehtr.export.nir_plan import describe_network

    net, path = _spiking(loaded), Path(path)
    width = loaded.config.data.max_width if width is None else width
    if width % net.stride or not 0 < width <= net.config.max_width:
        raise SpikeHTRError(f"--width must be a multiple of {net.stride} up to {net.config.max_width}, not {width}")
    plan = describe_network(net, width)
    c = net.config
    used = {step["operation"] for step in plan.steps if step["on"] == "host"}
    manifest = {
        "format": FORMAT,
        "version": __version__,
        "file": path.name,
        "channels": c.in_channels,
        "height": c.height,
        "width": width,
        "stride": net.stride,
        "input": _INPUT,
        "range": [0.0, 1.0],
        "polarity": "dark ink on bright paper",
        "max_width": loaded.config.data.max_width,
        "straighten": loaded.config.data.straighten,
        "timesteps": c.timesteps,
        "dt": DT,
        "layout": _LAYOUT,
        "neuron": _NEURON,
        "operations": {name: OPERATIONS[name].__doc__ for name in sorted(used)},
        "labels": _LABELS,
        "blank": BLANK,
        "charset": list(loaded.charset.characters),
        "output": plan.steps[-1]["name"],
        "notes": loaded.notes,
        "steps": plan.steps,
    }
    beside = path.with_suffix(".json")
    with whole_file(path) as temporary, whole_file(beside) as words:
        plan.nir.write(temporary, plan.nir.NIRGraph(plan.parts, [], type_check=False))
        words.write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    return beside


def _spiking(loaded: Loaded) -> SpikeHTR:
    net = loaded.net
    if not isinstance(net, SpikeHTR) or net.config.neuron != "lif":
        kind = "its neuron is GELU" if isinstance(net, SpikeHTR) else f"it is a {net.config.arch}"
        raise SpikeHTRError(f"NIR is for spiking networks, and nothing in this one fires: {kind}")
    return net


def _side_by_side(name: str, node: Any) -> dict[str, Any]:
    return {f"{name}.{number}": one for number, one in enumerate(node)} if isinstance(node, list) else {name: node}


def _grouped(node: Any) -> bool:
    return int(getattr(node, "groups", 1)) > 1


def _numbers(value: Tensor) -> Array:
    return value.detach().cpu().float().numpy()


def _plain(value: Any) -> Any:
    """What JSON can hold: a tensor as numbers, which read back exactly."""
    return value.detach().cpu().tolist() if isinstance(value, Tensor) else value
