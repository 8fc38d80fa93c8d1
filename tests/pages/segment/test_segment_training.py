"""The line network, its training, packed folders and measures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.score_lines import cover_of, resample, tolerances_of
from spikehtr.pages.segment import network_onnx as onnx
from spikehtr.pages.segment import network_weights as weights
from spikehtr.pages.segment.firing import firing
from spikehtr.pages.segment.labels import LineLabel, PageLabels
from spikehtr.pages.segment.line_network import LineNetwork, Maps, NetworkShape, folded, parameters
from spikehtr.pages.segment.map_losses import PartBatch, losses
from spikehtr.pages.segment.measures import order_errors, page_score
from spikehtr.pages.segment.packed_pages import PackedPage, folds, pack, unpack
from spikehtr.pages.segment.train_network import Trainer, TrainOptions

SMALL = NetworkShape((4, 4, 8, 8, 8), (1, 1, 1, 1, 1), decoder=(4, 8, 8))
ALTO = """<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>{name}.png</fileName></sourceImageInformation></Description>
<Layout><Page WIDTH="400" HEIGHT="300"><PrintSpace><TextBlock ID="b">
<TextLine ID="l" BASELINE="50 100 350 100" HPOS="45" VPOS="80" WIDTH="310" HEIGHT="30">
<String CONTENT="text"/></TextLine>
</TextBlock></PrintSpace></Page></Layout></alto>"""


def some_page(seed: int = 0) -> PackedPage:
    points = np.linspace((40.0, 100.0), (260.0, 100.0), 12)
    labels = PageLabels((LineLabel(points, np.full(12, 20.0), np.full(12, 8.0), 0),), ())
    image = np.random.default_rng(seed).integers(0, 255, (200, 300), np.uint8)
    return PackedPage(f"a/{seed}", "a", "layout", image, labels, 1.0)


def test_the_network_is_within_its_limit_and_gives_maps_of_its_strides() -> None:
    network = LineNetwork()
    assert parameters(network) <= 1_500_000
    maps = LineNetwork(SMALL)(torch.rand(2, 1, 64, 96))
    assert maps.fine.shape == (2, 4, 32, 48)
    assert maps.coarse.shape == (2, 7, 16, 24)


@pytest.mark.parametrize("burst", [1, 4])
def test_with_neurons_every_convolution_but_the_first_reads_spikes(burst: int) -> None:
    torch.manual_seed(0)
    network = LineNetwork(replace(SMALL, burst=burst))
    seen: dict[str, torch.Tensor] = {}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0].detach()}))
    network(torch.rand(2, 1, 64, 64)).coarse.sum().backward()
    assert len(seen) > 20
    analog = {name for name, x in seen.items() if not torch.equal(x, x.round().clamp(0, burst))}
    assert analog == {"stem.0"}
    most = max(float(x.max()) for name, x in seen.items() if name != "stem.0")
    assert most == burst
    reached = network.get_parameter("stem.0.weight").grad
    assert reached is not None
    assert float(reached.abs().max()) > 0
    images = [np.random.default_rng(0).integers(0, 255, (70, 100), np.uint8)]
    fired = firing(network.eval(), images)
    assert 0 < fired["neurons that fire"] <= fired["spikes a neuron"] <= burst * fired["neurons that fire"]


@pytest.mark.parametrize("burst", [0, 4])
def test_folding_changes_nothing(burst: int) -> None:
    torch.manual_seed(0)
    network = LineNetwork(replace(SMALL, burst=burst)).double()
    images = torch.rand(2, 1, 64, 64).double()  # so that no spike hangs on rounding
    network.train()(images)  # statistics of its own
    network.fine.weight.data.normal_()
    network.eval()
    folded_network = folded(network)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in folded_network.modules())
    with torch.no_grad():
        for one, other in zip(network(images), folded_network(images), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_rare_directions_count_as_much_as_usual_ones() -> None:
    """One part in eight is upside down and held for upright: a half of the loss, not an eighth."""
    turn = torch.zeros(8, 4, 4, dtype=torch.uint8)
    turn[0] = 2
    coarse = torch.zeros(8, 7, 4, 4)
    coarse[:, 3] = 8.0
    batch = PartBatch(
        torch.zeros(8, 1, 16, 16),
        torch.zeros(8, 8, 8, dtype=torch.uint8),
        torch.full((8, 2, 4, 4), 16.0),
        turn,
        torch.ones(8, dtype=torch.bool),
    )
    assert float(losses(Maps(torch.zeros(8, 4, 8, 8), coarse), batch).turn) == pytest.approx(4.0, abs=0.01)


def options(steps: int) -> TrainOptions:
    return TrainOptions(steps=steps, batch=2, size=64, workers=0, log_every=1)


def test_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = Trainer(tmp_path, options(2), SMALL, "cpu", {})
    first.train([some_page()])
    second = Trainer(tmp_path, options(3), SMALL, "cpu", {})
    assert second.resume()
    assert second.step == 2
    for name, value in first.network.state_dict().items():
        assert torch.equal(value, second.network.state_dict()[name])
    moments = first.optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(moments, second.optimizer.state_dict()["state"][0]["exp_avg"])
    second.train([some_page()])
    steps = [json.loads(row)["step"] for row in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3]
    network = weights.load(tmp_path / "weights.safetensors")
    assert network.shape == SMALL
    assert weights.header(tmp_path / "weights.safetensors")["step"] == 3


def test_a_run_is_not_gone_on_with_by_another_network(tmp_path: Path) -> None:
    Trainer(tmp_path, options(1), SMALL, "cpu", {}).train([some_page()])
    with pytest.raises(SpikeHTRError, match=r"last\.safetensors: .*another network"):
        Trainer(tmp_path, options(2), replace(SMALL, burst=4), "cpu", {}).resume()


def test_training_needs_either_minutes_or_steps(tmp_path: Path) -> None:
    for wrong in (TrainOptions(), TrainOptions(minutes=1, steps=1)):
        with pytest.raises(SpikeHTRError, match="either minutes or steps"):
            Trainer(tmp_path, wrong, SMALL, "cpu", {})


def test_a_file_that_holds_no_line_network_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"nothing")
    with pytest.raises(SpikeHTRError, match="not a weight file"):
        weights.load(file)


def filled(shape: NetworkShape | None = None) -> LineNetwork:
    """A network whose every number counts: statistics of its own, and no map that is constant."""
    torch.manual_seed(0)
    network = LineNetwork(shape)
    network.train()(torch.rand(2, 1, 64, 64))
    network.fine.weight.data.normal_()
    return network.eval()


def test_a_file_of_the_whole_network_in_16_bits_is_small_and_says_the_same(tmp_path: Path) -> None:
    network = filled()
    file = tmp_path / "bundled.safetensors"
    weights.save(file, network.state_dict(), network.shape, {"step": 7}, half=True)
    assert file.stat().st_size < 4_000_000
    back = weights.load(file)
    assert weights.header(file)["step"] == 7
    assert {value.dtype for value in back.state_dict().values()} == {torch.float32, torch.int64}
    images = torch.rand(1, 1, 64, 96)
    with torch.no_grad():
        for one, other in zip(network(images), back(images), strict=True):
            assert (one - other).abs().max() < 0.02 * one.abs().max()


@pytest.mark.slow  # of several sizes
def test_onnx_says_what_torch_says_at_every_size(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    pytest.importorskip("onnxscript", reason="needs the extra `export`")
    network = filled(SMALL)
    kept, file = tmp_path / "kept.safetensors", tmp_path / "lines.onnx"
    weights.save(kept, network.state_dict(), network.shape, {})
    onnx.save(weights.load(kept), file)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    for shape in ((1, 1, 32, 32), (3, 1, 64, 160), (1, 1, 256, 96)):
        images = torch.rand(shape)
        with torch.no_grad():
            said = network(images)
        for one, other in zip(said, session.run(["fine", "coarse"], {"images": images.numpy()}), strict=True):
            torch.testing.assert_close(one, torch.from_numpy(other), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_onnx_has_the_neurons_too(tmp_path: Path) -> None:
    """A spike that hangs on rounding may differ, and what it changes; most do not."""
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    pytest.importorskip("onnxscript", reason="needs the extra `export`")
    network, file = filled(replace(SMALL, burst=4)), tmp_path / "lines.onnx"
    onnx.save(network, file)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    images = torch.rand(1, 1, 64, 96)
    with torch.no_grad():
        said = network(images)
    for one, other in zip(said, session.run(["fine", "coarse"], {"images": images.numpy()}), strict=True):
        differ = (one - torch.from_numpy(other)).abs() > 1e-3
        assert float(differ.float().mean()) < 0.1


def test_packed_pages_come_back_with_their_lines(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "letters"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / f"{name}.xml").write_text(ALTO.format(name=name))
    Image.new("L", (400, 300), 200).save(folder / "one.png")
    left_out = pack([tmp_path / "set"], tmp_path / "packed")
    assert len(left_out) == 1
    assert "two.xml" in left_out[0]
    (page,) = unpack(tmp_path / "packed")
    assert (page.name, page.collection, page.group) == ("letters/one", "letters", "set")
    assert page.image.shape == (300, 400)
    assert page.labels.lines[0].points[[0, -1]].tolist() == [[50, 100], [350, 100]]
    assert page.labels.height == pytest.approx(30, abs=1)


def test_a_folder_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpikeHTRError, match="no PAGE or ALTO"):
        pack([tmp_path], tmp_path / "packed")
    with pytest.raises(SpikeHTRError, match="packed folder"):
        list(unpack(tmp_path))


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(1, 5))
def test_folds_hold_every_collection_once(collections: list[str], number: int) -> None:
    dealt = folds(collections, number)
    assert sorted(name for fold in dealt for name in fold) == sorted(set(collections))


def test_a_line_in_two_pieces_is_split_and_two_in_one_are_merged() -> None:
    true = [[(0, 100), (400, 100)], [(0, 160), (190, 160)], [(210, 160), (400, 160)], [(0, 220), (400, 220)]]
    found = [[(0, 100), (180, 100)], [(220, 100), (400, 100)], [(0, 160), (400, 160)], [(0, 400), (300, 400)]]
    result = page_score(true, found)
    assert (result.split, result.merged, result.missed, result.false) == (0.25, 0.5, 0.25, 0.25)


@given(st.permutations(range(6)))
def test_order_errors_are_none_only_in_the_right_order(order: list[int]) -> None:
    disorder, jumps = order_errors(order)
    assert (disorder == 0) == (order == sorted(order))
    assert 0 <= disorder <= 1
    assert 0 <= jumps <= 1
    assert order_errors(order[::-1])[0] == pytest.approx(1 - disorder)


@given(st.integers(0, 10_000))
def test_cover_is_that_of_point_by_point(seed: int) -> None:
    random = np.random.default_rng(seed)

    def some(number: int) -> list[np.ndarray]:
        lines = random.uniform(0, 300, (number, 2, 2))
        lines[:, 1] = lines[:, 0] + random.uniform(20, 200, (number, 2)) * [1, 0.1]
        return [resample(line.tolist()) for line in lines]

    lines, others = some(4), some(5)
    cover = cover_of(lines, others)
    for i, (line, tolerance) in enumerate(zip(lines, tolerances_of(lines), strict=True)):

        def share(one: np.ndarray, by: np.ndarray, t: float = tolerance) -> float:
            nearest = np.hypot(*(one[:, None] - by[None]).transpose(2, 0, 1)).min(1)
            return float(np.clip((3 * t - nearest) / (2 * t), 0, 1).mean())

        assert cover.recall[i] == pytest.approx(share(line, np.concatenate(others)))
        for j, other in enumerate(others):
            assert cover.forth[i, j] == pytest.approx(share(line, other))
            assert cover.back[i, j] == pytest.approx(share(other, line))
