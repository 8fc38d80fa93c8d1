"""The forward pass as one graph without Python: what ONNX and torch.export files are made of."""

from __future__ import annotations

import copy
import importlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch._dynamo.config as dynamo
import torch.fx.config as fx
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from spikehtr import ops
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.model.network import Network
from spikehtr.model.spike_htr import SpikeHTR

INPUTS, OUTPUTS = ("images", "widths"), ("logits", "lengths", "spans")
_BATCH = 1024  # most lines at a time: a graph wants a bound, and no one reads more


class TracedNetwork(nn.Module):
    """What a graph takes and gives: images [B, C, H, n stride] in [0, 1], widths [B] -> logits [B, L, V], lengths [B],
    spans [B, L, 2].

    The network's own forward pass keeps L at the unreduced length when it is traced. Here L is the longest reduced
    length, so that a file, too, computes nothing for the tokens that the reducer took away.
    """

    def __init__(self, net: Network) -> None:
        super().__init__()
        self.net = net
        if not isinstance(net, SpikeHTR):
            self.net = copy.copy(net)
            self.net.config = net.config.model_copy(update={"max_width": net.config.max_width + net.stride})

    def forward(self, images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        net = self.net
        if not isinstance(net, SpikeHTR):
            return self._baseline(images, widths)
        z, lengths = net.encode(images, widths)  # [T, B, L0, d], [B]
        reduction = net.reduce(z, lengths)
        longest: int = reduction.lengths.max().item()  # type: ignore[assignment]  # int() would end the tracing
        torch._check(longest >= 1)  # what tracing cannot know of a number from data
        torch._check(longest <= z.shape[2])
        logits, _ = net.decode(reduction.tokens[:, :, :longest], reduction.lengths)
        return logits, reduction.lengths, reduction.spans[:, :longest]

    def _baseline(self, images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The network's own pass, without the rows that no line has.

        A token of padding is added, which changes nothing: tracing takes a single one for a case of its own.
        """
        out = self.net(F.pad(images, (0, self.net.stride)), widths)
        longest: int = out.lengths.max().item()
        torch._check(longest >= 1)
        torch._check(longest <= out.logits.shape[1])
        return out.logits[:, :longest], out.lengths, out.spans[:, :longest]


def trace(net: Network, channels: int = 1) -> ExportedProgram:
    """The `TracedNetwork` as a torch.export program, for any number of lines and any width that is whole tokens."""
    c = net.config
    if net.autoregressive:
        raise SpikeHTRError(f"{c.arch} spells a line character by character, and a graph is of one pass: no export")
    dtype = next(net.parameters()).dtype
    images = torch.rand(2, channels, c.height, 16 * net.stride, dtype=dtype)
    widths = torch.tensor([16, 10]) * net.stride
    size, tokens = Dim("batch", min=1, max=_BATCH), Dim("tokens", min=1, max=c.max_width // net.stride)
    shapes = ({0: size, 3: net.stride * tokens}, {0: size})
    try:
        return capture(TracedNetwork(net.eval()), (images, widths), shapes)
    except Exception as error:
        if isinstance(net, SpikeHTR):  # must not happen
            raise
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise SpikeHTRError(f"{c.arch} cannot be exported: torch.export stops ({reason})") from None


def capture(module: nn.Module, inputs: tuple[Tensor, ...], shapes: tuple[dict[int, Any], ...]) -> ExportedProgram:
    """A module as a program, its inputs of the named sizes where `shapes` names them."""
    # The tracer's cache of operations costs more than it saves where sizes are symbols.
    with quiet(), ops.reference(), torch.no_grad(), dynamo.patch(fake_tensor_cache_enabled=False):
        program = torch.export.export(module, inputs, dynamic_shapes=shapes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine, which a file should not tell
    return program


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and log lines of tracing and translation: nothing in them is for the user to mend."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "root")]
    before = [logger.level for logger in loggers]
    traces = fx.do_not_emit_stack_traces
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fx.do_not_emit_stack_traces = True  # of where each operation was called: a third of the time, and in no file
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            fx.do_not_emit_stack_traces = traces
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


def need(*names: str) -> list[ModuleType]:
    """Packages of the extra `export`; one that is missing is an error that says how to get it."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise SpikeHTRError(f"{error.name or names[0]} is not installed: pip install 'spikehtr[export]'") from None
