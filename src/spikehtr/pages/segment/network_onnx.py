"""The line network as an ONNX file: BatchNorm folded, batch and both sides of the image free."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from spikehtr.export.onnx import translate
from spikehtr.export.tracing import capture, need
from spikehtr.files import whole_file
from spikehtr.pages.segment.line_network import LineNetwork, folded
from spikehtr.pages.segment.maps import MULTIPLE
from spikehtr.pages.segment.network_weights import KIND

INPUTS, OUTPUTS = ("images",), ("fine", "coarse")


def save(network: LineNetwork, path: Path, about: dict[str, Any] | None = None) -> None:
    """Images [batch, 1, height, width] in [0, 1], sides multiples of MULTIPLE -> the two tensors of `Maps`."""
    onnx, _ = need("onnx", "onnxscript")
    sides = {0: Dim("batch", min=1), 2: MULTIPLE * Dim("rows", min=1), 3: MULTIPLE * Dim("columns", min=1)}
    example = (torch.zeros(2, 1, 3 * MULTIPLE, 4 * MULTIPLE),)
    model = translate(capture(folded(network), example, (sides,)), INPUTS, OUTPUTS)
    onnx.helper.set_model_props(model, {"spikehtr": json.dumps({"kind": KIND, **(about or {})})})
    with whole_file(path) as temporary:
        onnx.save(model, temporary, format="protobuf")
