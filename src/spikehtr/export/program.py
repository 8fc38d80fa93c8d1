"""torch.export: the network as a program that PyTorch runs without this package's code."""

from __future__ import annotations

import io
import os
from pathlib import Path
from zipfile import BadZipFile

import torch
from torch import Tensor

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.export.exported_reader import describe, parse, recognizer
from spikehtr.export.graph_lstm import has_lstms
from spikehtr.export.tracing import quiet, trace
from spikehtr.files import whole_file
from spikehtr.recognizer import Recognizer
from spikehtr.weights import Loaded

_ABOUT = ("nn_module_stack", "source_fn_stack", "torch_fn", "from_node")  # how a graph came about: most of its bytes
_HEADER = ("format", "version", "config", "charset", "notes", "channels", "precision")


def save(loaded: Loaded, path: str | os.PathLike[str], channels: int = 1) -> None:
    """Write the network as a .pt2 file; its header lies beside the graph, as extra files."""
    if has_lstms(loaded.net):
        raise SpikeHTRError("torch.export has LSTMs for lines of one length only: export this network as onnx")
    program = trace(loaded.net, channels)
    for node in program.graph.nodes:
        for about in _ABOUT:
            node.meta.pop(about, None)
    data = io.BytesIO()  # given a path, torch would write its temporary name into the file
    with quiet():
        torch.export.save(program, data, extra_files=describe(loaded, channels, "fp32"))
    with whole_file(path) as temporary:
        temporary.write_bytes(data.getvalue())


def read(path: str | os.PathLike[str]) -> Recognizer:
    """A Recognizer on a file of `save`. Torch may unpickle parts of such a file: open your own only."""
    if not Path(path).is_file():
        raise SpikeHTRError(f"{path}: no such file")
    header = dict.fromkeys(_HEADER, "")
    try:
        with quiet():
            program = torch.export.load(path, extra_files=header)
            module = program.module()
    except (RuntimeError, ValueError, KeyError, BadZipFile) as error:
        raise SpikeHTRError(f"{path}: not a program of torch.export ({reason_of(error)})") from None

    def run(images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, lengths, spans = module(images, widths)
        return logits, lengths, spans

    return recognizer(parse(header, path), run)
