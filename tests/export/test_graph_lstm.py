"""LSTMs in graphs, against PyTorch's own; and the baselines that have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from conftest import draw_line
from spikehtr.baselines.common import BLSTM
from spikehtr.baselines.htr_convtext import RelativeAttention
from spikehtr.config import Config
from spikehtr.data.batching import to_batch
from spikehtr.errors import SpikeHTRError
from spikehtr.export import program
from spikehtr.export.graph_lstm import with_graph_lstms
from spikehtr.export.tracing import capture
from spikehtr.model.network import Network
from spikehtr.recognizer import Recognizer
from spikehtr.registry import build
from spikehtr.text import Charset
from spikehtr.weights import Loaded

CHARSET = Charset.from_texts(["abcdefghijk"])
pytest.importorskip("onnxscript", reason="the extra `export` is not installed")
onnx = pytest.importorskip("onnx", reason="the extra `export` is not installed")
runtime = pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")


@torch.no_grad()
def test_an_operation_gives_what_torch_gives() -> None:
    torch.manual_seed(0)
    holder = nn.ModuleList([nn.LSTM(5, 7, batch_first=True)]).eval()
    for batch, size in ((1, 2), (3, 9), (4, 30)):
        x = torch.randn(batch, size, 5)
        changed = with_graph_lstms(holder)
        assert torch.allclose(holder[0](x)[0], changed[0](x)[0], atol=1e-6)  # type: ignore[index]
    assert isinstance(holder[0], nn.LSTM)  # the network itself is left as it was


@torch.no_grad()
def test_a_network_without_lstms_is_its_own_graph() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    assert with_graph_lstms(net) is net


@pytest.fixture(scope="module")
def blstm() -> BLSTM:
    torch.manual_seed(1)
    return BLSTM(6, 5, layers=2).eval()


def rows(batch: int, size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(batch, size, 6), torch.randint(1, size + 1, (batch,))


def agree(net: BLSTM, found: Tensor, tokens: Tensor, lengths: Tensor) -> None:
    wanted = net(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.allclose(found[row, :length], wanted[row, :length], atol=1e-6)


@torch.no_grad()
def test_one_graph_serves_any_number_of_lines_of_any_length(blstm: BLSTM, tmp_path: Path) -> None:
    from spikehtr.export.onnx import translate

    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("tokens", min=2, max=500)}
    shapes = (sizes, {0: sizes[0]})
    model = translate(capture(with_graph_lstms(blstm), rows(2, 11), shapes), ("x", "n"), ("y",))
    assert sum(node.op_type == "LSTM" for node in model.graph.node) == 4  # two layers, two directions
    onnx.save(model, tmp_path / "b.onnx")
    session = runtime.InferenceSession(tmp_path / "b.onnx")
    torch.manual_seed(2)
    for batch, size in ((1, 2), (1, 40), (5, 23), (3, 200)):
        tokens, lengths = rows(batch, size)
        (found,) = session.run(None, {"x": tokens.numpy(), "n": lengths.numpy()})
        agree(blstm, torch.from_numpy(found), tokens, lengths)


@torch.no_grad()
def test_attention_with_a_learned_bias_has_a_graph(tmp_path: Path) -> None:
    """For which torch chooses another way where a gradient is asked for."""
    from spikehtr.export.onnx import translate

    torch.manual_seed(0)
    attention = RelativeAttention(16, dropout=0.0).eval()
    nn.init.normal_(attention.distances)
    inside = torch.arange(9) < torch.tensor([[9], [4]])
    sizes = {1: Dim("tokens", min=2, max=500)}
    with torch.enable_grad():
        model = translate(capture(attention, (torch.randn(2, 9, 16), inside), (sizes, sizes)), ("z", "inside"), ("y",))
    onnx.save(model, tmp_path / "a.onnx")
    z, inside = torch.randn(2, 17, 16), torch.arange(17) < torch.tensor([[3], [17]])
    (found,) = runtime.InferenceSession(tmp_path / "a.onnx").run(None, {"z": z.numpy(), "inside": inside.numpy()})
    assert torch.allclose(torch.from_numpy(found), attention(z, inside), atol=1e-6)


def small(arch: str, reducer: bool = False) -> Loaded:
    changes: dict[str, object] = {"model.baseline.scale": 0.1, "model.height": 32, "data.max_width": 400}
    if reducer:
        changes |= {"model.reducer.mode": "keep-and-merge", "training.aux_weight": 0.3}
    config = Config.preset(arch).with_overrides(changes)
    torch.manual_seed(0)
    return Loaded(build(config.model, len(CHARSET)).eval(), config, CHARSET, {})


LINES = [draw_line(text, height=32, seed=i) for i, text in enumerate(("ink", "a rather long line", "so", "i"))]


@torch.no_grad()
def read_each_line_otherwise(net: Network) -> None:
    """Gives the head such weights that over the frames of `LINES` each character is at times the likeliest. As it is
    drawn, all frames are nearly the same."""
    images, widths = to_batch(LINES)
    out = net(images, widths)
    frames = torch.cat([row[:length] for row, length in zip(out.logits, out.lengths.tolist(), strict=True)])
    *_, weight, bias = (net.get_parameter(name) for name in net.per_label if name.startswith("head"))
    scale = 1 / frames.std(0)
    weight.mul_(scale.view(-1, *[1] * (weight.dim() - 1)))
    bias.copy_((bias - frames.mean(0)) * scale)


SLOW = pytest.mark.slow  # ten to thirty seconds to trace each


@pytest.mark.parametrize(
    ("arch", "reducer", "kind"),
    [
        pytest.param("kraken", False, "onnx", marks=SLOW),
        pytest.param("kraken", True, "onnx", marks=SLOW),
        pytest.param("cnn-blstm", False, "onnx", marks=SLOW),
        pytest.param("retsinas", False, "onnx", marks=SLOW),
        pytest.param("htr-vt", False, "onnx", marks=SLOW),
        pytest.param("htr-vt", False, "torch", marks=SLOW),
        pytest.param("crnn", False, "onnx", marks=SLOW),
        pytest.param("gated-crnn", False, "onnx", marks=SLOW),
        pytest.param("gfcn", False, "onnx", marks=SLOW),
        pytest.param("van", False, "onnx", marks=SLOW),
        pytest.param("van", True, "torch", marks=SLOW),
        pytest.param("origaminet", False, "onnx", marks=SLOW),
        pytest.param("htr-convtext", False, "onnx", marks=SLOW),
    ],
)
def test_a_baselines_file_reads_what_the_network_reads(arch: str, reducer: bool, kind: str, tmp_path: Path) -> None:
    from spikehtr.export import onnx as to_onnx

    model = small(arch, reducer)
    read_each_line_otherwise(model.net)
    file = tmp_path / "m"
    if kind == "onnx":
        to_onnx.save(model, file)
        reading = to_onnx.read(file)
    else:
        program.save(model, file)
        reading = program.read(file)
    network = Recognizer(model.net, model.config, CHARSET)
    for batch_size in (1, 4):
        ours, theirs = network.transcribe(LINES, batch_size), reading.transcribe(LINES, batch_size)
        assert [line.text for line in ours] == [line.text for line in theirs]
        assert all(line.text for line in ours)
        assert len({line.text for line in ours}) > 1
        for one, other in zip(ours, theirs, strict=True):
            assert one.confidence == pytest.approx(other.confidence, abs=1e-4)
            assert [c[2:] for c in one.characters] == [c[2:] for c in other.characters]


def test_double_precision_is_refused_with_the_reason(tmp_path: Path) -> None:
    from spikehtr.export.onnx import save

    with pytest.raises(SpikeHTRError, match=r"onnxruntime has no LSTM in fp64; .* take fp32"):
        save(small("kraken"), tmp_path / "m.onnx", kind="fp64")


def test_torch_export_refuses_lstms(tmp_path: Path) -> None:
    with pytest.raises(SpikeHTRError, match="export this network as onnx"):
        program.save(small("kraken"), tmp_path / "m.pt2")
    assert not list(tmp_path.iterdir())
