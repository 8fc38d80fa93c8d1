"""Weight files of line networks: one safetensors file whose header holds the network's shape and how it was trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.pages.segment.line_network import LineNetwork, NetworkShape

KIND = "line-network"


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Tensors and a header, in place when whole."""
    plain = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    with whole_file(path) as file:
        save_file(plain, file, {"spikehtr": json.dumps(about)})


def save(path: Path, state: dict[str, Tensor], shape: NetworkShape, about: dict[str, Any], half: bool = False) -> None:
    """`half` keeps the kernels in 16 bits, for files that travel; the few other numbers stay as exact as they are."""
    if half:
        state = {name: value.half() if value.ndim > 1 else value for name, value in state.items()}
    save_tensors(path, state, {"kind": KIND, "shape": shape.to_dict(), **about})


def header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            values: dict[str, Any] = json.loads((file.metadata() or {})["spikehtr"])
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise SpikeHTRError(
            f"{path}: not a weight file of this program ({error}); train one, or give another"
        ) from None
    return values


def line_network_header(path: Path) -> dict[str, Any]:
    """What the weight file of a line network says of itself; another file is an error."""
    about = header(path)
    if about.get("kind") != KIND:
        raise SpikeHTRError(f"{path}: weights of something else than a line network; give a segmenter's weight file")
    return about


def load(path: Path) -> LineNetwork:
    """The network of a weight file, ready to read."""
    about = line_network_header(path)
    network = LineNetwork(NetworkShape.from_dict(about["shape"]))
    network.load_state_dict(load_file(path))
    return network.eval()
