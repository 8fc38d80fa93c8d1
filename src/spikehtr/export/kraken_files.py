"""A model as a file for kraken 7, which reads it with `spikehtr.kraken_plugin`. Writing it does not need kraken."""

from __future__ import annotations

import json
import os
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from spikehtr.decoding.language_model import ARRAYS, LanguageModel
from spikehtr.files import whole_file
from spikehtr.version import __version__
from spikehtr.weights import Loaded

MINIMUM = "7.0.0"  # kraken's version that brought the registry
NAME = "SpikeHTRModel"  # the class, and the entry point's name
_PREFIX = "spikehtr"  # of this model among those of a file
_ARRAY = "array_"  # a module has a `to` of its own


class LanguageModelBuffers(nn.Module):
    """A language model's arrays as a module's buffers, which kraken reads and writes with the weights.

    `described` is what the file's header has of it: the model's own header, and how long each array is, so that the
    buffers are there before they are filled.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        super().__init__()
        self.described = described
        for name, dtype in ARRAYS.items():
            empty = torch.from_numpy(np.zeros(int(described["sizes"][name]), dtype))
            self.register_buffer(f"{_ARRAY}{name}", empty)

    @classmethod
    def of(cls, model: LanguageModel) -> Self:
        sizes = {name: len(values) for name, values in model.arrays.items()}
        buffers = cls({"header": model.header(), "sizes": sizes})
        buffers.load_state_dict(
            {f"{_ARRAY}{name}": torch.from_numpy(values.copy()) for name, values in model.arrays.items()}
        )
        return buffers

    def model(self) -> LanguageModel:
        """What the buffers hold, wherever they were moved and whatever was made of the fractions."""
        arrays = {name.removeprefix(_ARRAY): value.detach().cpu() for name, value in self.state_dict().items()}
        arrays |= {name: value.float() for name, value in arrays.items() if value.is_floating_point()}
        return LanguageModel.unpack(arrays, self.described["header"], "the model's file")


def save(loaded: Loaded, path: str | os.PathLike[str]) -> None:
    """Weights in fp32; configuration, characters, temperature and notes in the header, as kraken expects them. A
    language model that the model carries goes along."""
    described: dict[str, Any] = {
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
    if loaded.language_model is not None:
        buffers = LanguageModelBuffers.of(loaded.language_model)
        described["language_model"] = buffers.described
        tensors |= {f"{_PREFIX}.language_model.{name}": value for name, value in buffers.state_dict().items()}
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"kraken_meta": json.dumps({_PREFIX: described}, ensure_ascii=False)})
