"""ONNX in double precision: operations that onnxruntime lacks there, and a file whose texts no rounding changes."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from export_help import exported, images, loaded, same_lines
from export_help import simple as _simple  # noqa: F401 (a fixture that every test here takes)
from torch import nn
from torch.export import Dim

from spikehtr.errors import SpikeHTRError
from spikehtr.export.tracing import capture
from spikehtr.recognizer import Recognizer

runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")

from spikehtr.export.double import narrow  # noqa: E402
from spikehtr.export.onnx import read, save, translate  # noqa: E402


class Operations(nn.Module):
    """Of every kind that the network has, each a result of its own."""

    def __init__(self):
        super().__init__()
        self.planes = nn.ModuleList(
            [
                nn.Conv2d(4, 6, 3, (2, 1), 1),
                nn.Conv2d(4, 6, (1, 3), 1, (0, 1), bias=False),
                nn.Conv2d(4, 4, 5, 1, 2, groups=4),
                nn.Conv2d(4, 3, 1),
            ]
        )
        self.rows = nn.ModuleList([nn.Conv1d(4, 4, 7, padding=3, groups=4), nn.Conv1d(4, 5, 3, bias=False)])

    def forward(self, x):
        row = x.mean(2)
        pools = [F.avg_pool2d(x, 3, stride=1), F.avg_pool2d(x, (2, 1)), F.avg_pool2d(x, (4, 2))]
        larger = [F.interpolate(x, scale_factor=times, mode="bilinear") for times in (2, 3)]
        return *(part(x) for part in self.planes), *(part(row) for part in self.rows), *pools, *larger


@pytest.mark.slow
@torch.no_grad()
def test_operations_in_double_precision_at_other_sizes():
    torch.manual_seed(0)
    module = Operations().double()
    sizes = {0: Dim("lines", min=1, max=64), 3: Dim("columns", min=8, max=512)}
    program = capture(module, (torch.rand(2, 4, 8, 16, dtype=torch.float64),), (sizes,))
    names = [f"y{number}" for number in range(len(module(torch.rand(1, 4, 8, 16, dtype=torch.float64))))]
    session = runtime.InferenceSession(translate(program, ["x"], names).SerializeToString())
    for lines, columns in ((2, 16), (1, 9), (3, 41)):
        x = torch.randn(lines, 4, 8, columns, dtype=torch.float64)
        for wanted, found in zip(module(x), session.run(names, {"x": x.numpy()}), strict=True):
            assert found.shape == tuple(wanted.shape)
            assert found == pytest.approx(wanted.numpy(), abs=1e-12)


@pytest.mark.slow  # operation by operation: the test above; a file: test_onnx.py
def test_a_file_in_double_precision_reads_as_the_model_does_in_it(tmp_path_factory):
    model, path, told = exported(tmp_path_factory, "onnx", ".onnx", "--fp64", timesteps=1, mixer__blocks=["LK"])
    check = json.loads(told)["check"]
    assert check["lines"] == check["identical"] == 5
    assert check["identical_in_double"] is None, "both are in double precision"
    assert check["confidence_difference"] < 1e-10
    kinds = {onnx.numpy_helper.to_array(one).dtype for one in onnx.load(path).graph.initializer}
    assert np.dtype("float32") in kinds, "weights are stored as in the model file"
    ours, file = Recognizer.load(model, precision="fp64"), read(path)
    assert all(line.text for line in ours.transcribe(images()))
    same_lines(ours.transcribe(images()), file.transcribe(images()), tolerance=1e-10)


def test_weights_are_stored_as_narrowly_as_they_can_be():
    values = {"half": [0.5, -3.0], "single": [2.0**100, 1 + 2**-20], "double": [0.1, 1.0], "odd": [float("nan"), 0.0]}
    describe = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", name], [f"x+{name}"]) for name in values],
        "sums",
        [describe("x", onnx.TensorProto.DOUBLE, [2])],
        [describe(f"x+{name}", onnx.TensorProto.DOUBLE, [2]) for name in values],
        [onnx.numpy_helper.from_array(np.array(value), name) for name, value in values.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    narrow(model)
    stored = [onnx.numpy_helper.to_array(one).dtype for one in model.graph.initializer]
    assert stored == [np.float16, np.float32, np.float64, np.float64]
    session = runtime.InferenceSession(model.SerializeToString())
    x = np.array([0.3, -7.0])
    for found, value in zip(session.run(None, {"x": x}), values.values(), strict=True):
        np.testing.assert_array_equal(found, x + np.array(value))


def test_gelu_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(SpikeHTRError, match="no GELU in fp64"):
        save(loaded(neuron="gelu", timesteps=1), tmp_path / "m.onnx", kind="fp64")
    assert not (tmp_path / "m.onnx").exists()
