"""NIR: the network's convolutions, linear maps, pools and neurons as parts of one .nir file, and a manifest that says
what a host computes between them.

NIR has no normalisation by a line's own statistics, no product of two signals and no reduction, so the network is not
one NIR graph. It is a list of steps, each either a part (a small NIR graph with one input and one output, complete with
weights) or a host operation with its parameters. `spikehtr.export.simulate` runs that list from the two files alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from spikehtr.errors import SpikeHTRError
from spikehtr.export.nir_builder import DT
from spikehtr.export.nir_walk import describe_network
from spikehtr.export.simulate import FORMAT, OPERATIONS
from spikehtr.files import whole_file
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.text import BLANK
from spikehtr.version import __version__
from spikehtr.weights import Loaded

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


def save(loaded: Loaded, path: str | os.PathLike[str], width: int | None = None) -> Path:
    """Write PATH.nir, and its manifest beside it as PATH.json; the latter's name. `width`: of the widest line."""
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
