"""The ONNX file against the network it was made from.

Making a file takes long, most of it for the encoder; here a small one is in its place (the real one's parts:
test_graph_parts.py), and there is one file for all tests.
"""

import json

import pytest
import torch
from export_help import CHARSET, exported, images, reader, same_lines
from export_help import simple as _simple  # noqa: F401 (a fixture that every test here takes)

from spikehtr.errors import SpikeHTRError
from spikehtr.recognizer import Recognizer
from spikehtr.weights import load_model

onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")

from spikehtr.export.onnx import read  # noqa: E402


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return exported(tmp_path_factory, "onnx", ".onnx", timesteps=1, mixer__blocks=["LA"])


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_the_file_reads_what_the_model_reads(files, batch_size):
    model, file = Recognizer.load(files[0]), read(files[1])
    ours = model.transcribe(images(), batch_size)
    assert all(line.text for line in ours)
    same_lines(ours, file.transcribe(images(), batch_size))


@torch.no_grad()
def test_frames_agree_at_any_batch_and_width_and_padding_does_not_matter(files):
    net, file = load_model(files[0]).net, read(files[1]).net
    torch.manual_seed(1)
    for size, width in ((1, 4), (3, 20), (2, 64), (5, 132)):
        pixels = torch.rand(size, 1, 32, width)
        widths = torch.randint(1, width + 1, (size,))
        ours, theirs = net(pixels, widths), file(pixels, widths)
        assert ours.logits.shape == theirs.logits.shape  # reduced, as the network is: no frame is computed for nothing
        assert torch.equal(ours.lengths, theirs.lengths)
        assert torch.allclose(ours.keep_ratio, theirs.keep_ratio)
        for b, n in enumerate(ours.lengths.tolist()):
            assert torch.equal(ours.spans[b, :n], theirs.spans[b, :n])
            assert torch.allclose(ours.logits[b, :n], theirs.logits[b, :n], atol=1e-4)


def test_the_command_compared_both(files):
    told = json.loads(files[2])
    check = told["check"]
    assert check["lines"] == check["identical"] == 5
    assert check["different"] == []
    assert check["confidence_difference"] < 1e-4
    assert check["cer"]["model"] == check["cer"]["file"]
    assert all(value > 0 for key in ("lines_per_second", "milliseconds_alone") for value in check[key].values())
    assert told["bytes"] == {"model": files[0].stat().st_size, "file": files[1].stat().st_size}


def test_the_file_alone_is_enough(files):
    """Plain onnxruntime, and the metadata: no code of ours but the alphabet's."""
    session = runtime.InferenceSession(files[1])
    header = session.get_modelmeta().custom_metadata_map
    assert json.loads(header["charset"]) == list(CHARSET.characters)
    assert json.loads(header["config"]) == load_model(files[0]).config.to_dict()
    assert json.loads(header["notes"]) == {"seed": 0}
    assert [(i.name, i.shape) for i in session.get_inputs()] == [
        ("images", ["batch", 1, 32, "width"]),
        ("widths", ["batch"]),
    ]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [
        ("logits", ["batch", "frames", len(CHARSET)]),
        ("lengths", ["batch"]),
        ("spans", ["batch", "frames", 2]),
    ]


def test_the_file_holds_the_weights_and_little_else(files):
    assert files[1].stat().st_size < 2.5 * files[0].stat().st_size  # a micro network's graph is as large as its weights
    assert b"/src/spikehtr" not in files[1].read_bytes()  # nor where it was made


def test_what_is_no_exported_file_is_named(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(bytes(range(256)))
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "same", ends[:1], ends[1:])
    onnx.save(
        onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]),
        tmp_path / "other.onnx",
    )
    for name, says in (("nowhere", "no such file"), ("noise.onnx", "cannot open"), ("other.onnx", "not exported by")):
        with pytest.raises(SpikeHTRError, match=rf"{name}: .*{says}"):
            read(tmp_path / name)


def test_a_reader_refuses_what_the_network_refuses(files):
    file = read(files[1])
    with pytest.raises(SpikeHTRError, match="images must be"):
        file.net(torch.rand(1, 1, 40, 64))
    assert reader(load_model(files[0])).net.stride == file.net.stride
