"""A model as a file for kraken 7, which reads it with `spikehtr.kraken_plugin`. Writing it does not need kraken."""

from __future__ import annotations

import json
import os

import torch
from safetensors.torch import save_file

from spikehtr.files import whole_file
from spikehtr.version import __version__
from spikehtr.weights import Loaded

MINIMUM = "7.0.0"  # kraken's version that brought the registry
NAME = "SpikeHTRModel"  # the class, and the entry point's name
_PREFIX = "spikehtr"  # of this model among those of a file


def save(loaded: Loaded, path: str | os.PathLike[str]) -> None:
    """Weights in fp32; configuration, characters, temperature and notes in the header, as kraken expects them."""
    described = {
        "_kraken_min_version": MINIMUM,
        "_tasks": ["recognition"],
        "_model": NAME,
        "config": loaded.config.to_dict(),
        "charset": list(loaded.charset.characters),
        "temperature": loaded.temperature,
        "notes": loaded.notes,
        "spikehtr_version": __version__,
    }
    tensors: dict[str, torch.Tensor] = {
        f"{_PREFIX}.net.{name}": value.contiguous() for name, value in loaded.net.state_dict().items()
    }
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"kraken_meta": json.dumps({_PREFIX: described}, ensure_ascii=False)})
