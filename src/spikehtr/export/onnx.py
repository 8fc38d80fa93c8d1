"""ONNX: the network, reducer included, as one graph for onnxruntime; in fp32 or fp64."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.export import ExportedProgram

from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.export import double, graph_lstm, graph_norm
from spikehtr.export.exported_reader import describe, parse, recognizer
from spikehtr.export.tracing import INPUTS, OUTPUTS, need, quiet, trace
from spikehtr.files import whole_file
from spikehtr.recognizer import Recognizer
from spikehtr.weights import Loaded

Kind = Literal["fp32", "fp64"]
_AXES = {"images": ("batch", None, None, "width"), "widths": ("batch",)} | {
    "logits": ("batch", "frames", None),
    "lengths": ("batch",),
    "spans": ("batch", "frames", None),
}


def save(loaded: Loaded, path: str | os.PathLike[str], channels: int = 1, kind: Kind = "fp32") -> None:
    """Write the network as one .onnx file, whose metadata hold the configuration, the characters and the notes."""
    onnx, _ = need("onnx", "onnxscript")
    if kind == "fp64" and loaded.config.model.neuron == "gelu":
        raise SpikeHTRError("onnxruntime has no GELU in fp64; without spikes rounding decides no text, so take fp32")
    if kind == "fp64" and graph_lstm.has_lstms(loaded.net):
        raise SpikeHTRError("onnxruntime has no LSTM in fp64; without spikes rounding decides no text, so take fp32")
    net = copy.deepcopy(loaded.net).double() if kind == "fp64" else loaded.net
    net = graph_norm.with_graph_norms(graph_lstm.with_graph_lstms(net))
    model = translate(trace(net, channels), INPUTS, OUTPUTS)
    _tidy(model)
    if kind == "fp64":
        double.narrow(model)
    onnx.helper.set_model_props(model, describe(loaded, channels, kind))
    with whole_file(path) as temporary:
        onnx.save(model, temporary, format="protobuf")


def translate(program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """A program as an ONNX model, whose inputs and outputs go by these names."""
    table = _translations()
    if any(weight.dtype == torch.float64 for weight in program.state_dict.values()):
        table |= double.translations()
    with quiet(), torch.no_grad():  # as it was traced: with gradients torch may take attention apart otherwise
        translated = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(inputs),
            output_names=list(outputs),
            custom_translation_table=table,
            verbose=False,
            optimize=False,
        )
        assert translated is not None
        _simplify(translated.model)
    return translated.model_proto


def _simplify(model: Any) -> None:
    """Folds what is constant and drops what is not used. PyTorch's own optimisation ends with almost the same
    graph, but looks for many patterns at every node: for a large graph that is a minute."""
    optimizer, passes = need("onnxscript.optimizer", "onnx_ir.passes.common")
    passes.InlinePass()(model)
    optimizer.fold_constants(model, onnx_shape_inference=False)
    for each in (
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.LiftSubgraphInitializersToMainGraphPass(),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        each(model)


def read(path: str | os.PathLike[str]) -> Recognizer:
    """A Recognizer on a file of `save`, by onnxruntime on the CPU with as many threads as torch has."""
    (runtime,) = need("onnxruntime")
    if not Path(path).is_file():
        raise SpikeHTRError(f"{path}: no such file")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common type of their own
        raise SpikeHTRError(f"{path}: onnxruntime cannot open it ({reason_of(error)})") from None
    header = parse(session.get_modelmeta().custom_metadata_map, path)
    dtype = torch.float64 if header.precision == "fp64" else torch.float32

    def run(images: Tensor, widths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fed = {"images": images.to(dtype).numpy(), "widths": widths.numpy()}
        logits, lengths, spans = (torch.from_numpy(value) for value in session.run(list(OUTPUTS), fed))
        return logits, lengths, spans

    return recognizer(header, run)


def _tidy(model: Any) -> None:
    """Names for the dynamic sizes, and nothing of how and where the graph was made (most of the file otherwise)."""
    graph = model.graph
    graph.ClearField("value_info")
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    for value in (*graph.input, *graph.output):
        for name, size in zip(_AXES[value.name], value.type.tensor_type.shape.dim, strict=True):
            if name:
                size.dim_param = name


def _translations() -> dict[Any, Any]:
    """Operations for which torch.onnx has no translation of its own."""
    op: Any = need("onnxscript")[0].opset18  # its types are too narrow for what its operators take

    def sort_stable(x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
        """TopK of all: of equals it takes the earlier first, as a stable sort does."""
        size = op.Reshape(op.Gather(op.Shape(x), op.Constant(value_int=dim)), op.Constant(value_ints=[1]))
        return op.TopK(x, size, axis=dim, largest=int(descending), sorted=1)

    def cummax(x: Any, dim: int) -> Any:
        """[B, L] whole numbers along dim 1: the largest of each position and all before it. (The places of the maxima,
        the second result, are not used.)"""
        size = op.Gather(op.Shape(x), op.Constant(value_int=dim))
        place = op.Range(op.Constant(value_int=0), size, op.Constant(value_int=1))  # [L]
        rows, columns = op.Constant(value_ints=[1]), op.Constant(value_ints=[0])
        before = op.LessOrEqual(op.Unsqueeze(place, columns), op.Unsqueeze(place, rows))  # [L, L]
        every = op.Where(before, op.Unsqueeze(x, rows), op.Constant(value_int=-(2**31)))  # [B, L, L]
        largest = op.ReduceMax(every, op.Constant(value_ints=[2]), keepdims=0)
        return largest, largest

    return {
        torch.ops.aten.sort.stable: sort_stable,
        torch.ops.aten.cummax.default: cummax,
        torch.ops.spikehtr.lstm.default: graph_lstm.translation(op),
        torch.ops.spikehtr.column_norm.default: graph_norm.translation(op),
    }
