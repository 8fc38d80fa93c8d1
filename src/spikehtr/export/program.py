"""torch.export: the network as a program that PyTorch runs without this package's code."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from spikehtr.errors import SpikeHTRError
from spikehtr.export.reading import describe, parse, recognizer
from spikehtr.export.tracing import quiet, trace
from spikehtr.files import whole_file
from spikehtr.recognizer import Recognizer
from spikehtr.weights import Loaded

_HEADER = ("format", "version", "config", "charset", "notes", "channels", "precision")


def save(loaded: Loaded, path: str | os.PathLike[str], channels: int = 1) -> None:
    """Write the network as a .pt2 file; its header lies beside the graph, as extra files."""
    program = trace(loaded.net, channels)
    with whole_file(path) as temporary:
        named = temporary.with_suffix(".pt2")  # torch minds the name
        try:
            with quiet():
                torch.export.save(program, named, extra_files=describe(loaded, channels, "fp32"))
            named.replace(temporary)
        finally:
            named.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> Recognizer:
    """A Recognizer on a file of `save`. Torch may unpickle parts of such a file: open your own only."""
    if not Path(path).is_file():
        raise SpikeHTRError(f"{path}: no such file")
    header = dict.fromkeys(_HEADER, "")
    try:
        with quiet():
            program = torch.export.load(path, extra_files=header)
    except (RuntimeError, ValueError, KeyError) as error:
        raise SpikeHTRError(f"{path}: not a program of torch.export ({str(error).splitlines()[0]})") from None
    return recognizer(parse(header, path), program.module())
