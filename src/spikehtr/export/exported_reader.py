"""An exported file in the place of a network: it reads lines by the same code, and can be checked against the model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from spikehtr.config import Config, ModelConfig
from spikehtr.config.retired import config_of_file
from spikehtr.errors import SpikeHTRError
from spikehtr.model.masking import shrink
from spikehtr.model.network import Network, Output
from spikehtr.recognizer import Recognizer
from spikehtr.text import Charset
from spikehtr.version import __version__
from spikehtr.weights import Loaded

FORMAT = "spikehtr-graph-1"
Run = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]  # images, widths -> logits, lengths, spans


class Header(NamedTuple):
    """What a file says of itself: enough, with its graph, to read lines."""

    config: Config
    charset: Charset
    channels: int  # of the images that the graph takes
    precision: str  # fp32 or fp64
    temperature: float = 1.0  # of its confidences


def describe(loaded: Loaded, channels: int, precision: str) -> dict[str, str]:
    """The header of a file, all of it text."""
    return {
        "format": FORMAT,
        "version": __version__,
        "config": json.dumps(loaded.config.to_dict()),
        "charset": json.dumps(loaded.charset.characters, ensure_ascii=False),
        "notes": json.dumps(loaded.notes, ensure_ascii=False),
        "channels": str(channels),
        "stride": str(loaded.net.stride),
        "precision": precision,
    }


def parse(header: Mapping[str, str], path: str | os.PathLike[str]) -> Header:
    if header.get("format") != FORMAT:
        found = header.get("format", "no format note")
        raise SpikeHTRError(f"{path}: not exported by spikehtr in format {FORMAT} (found {found})")
    if header["precision"] not in ("fp32", "fp64"):
        raise SpikeHTRError(
            f"{path}: in {header['precision']}, which this version does not read: export the model again"
        )
    config = config_of_file(json.loads(header["config"]), str(path))
    charset = Charset(tuple(json.loads(header["charset"])))
    temperature = float(json.loads(header["notes"]).get("temperature", 1.0))
    return Header(config, charset, int(header["channels"]), header["precision"], temperature)


class GraphNetwork(Network):
    """A Network whose forward pass is a graph's."""

    per_label = ()

    def __init__(self, config: ModelConfig, vocab_size: int, run: Run) -> None:
        super().__init__(config, vocab_size)
        self.run = run
        self.place = nn.Parameter(torch.empty(0), requires_grad=False)  # readers ask a network's weights where it is

    def forward(self, images: Tensor, widths: Tensor | Sequence[int] | None = None) -> Output:
        images, widths = self.prepare(images, widths)
        whole = shrink(widths, self.stride)  # [B], tokens of each line
        logits, lengths, spans = self.run(images, widths)
        return Output(logits, lengths, None, spans, lengths / whole)


def recognizer(header: Header, run: Run) -> Recognizer:
    """Reads lines with a graph as `Recognizer` does with a network."""
    model = header.config.model.model_copy(update={"in_channels": header.channels})
    net = GraphNetwork(model, len(header.charset), run)
    return Recognizer(net, header.config, header.charset, header.temperature, precision=header.precision)
