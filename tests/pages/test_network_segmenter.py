"""The line network as a segmenter: any image gives a result or a clear message; turned pages read as upright ones."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pages_help import random_recognizer, simple_page
from spikehtr.assets import SEGMENTER
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLayout, FoundLine, FoundRegion, LayoutOptions
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.network_segmenter import NetworkSegmenter
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.quarter_turns import as_it_lies, box_as_it_lies, quarter_of_given, turned_upright, upright_image
from spikehtr.pages.read_pages import read_pages
from spikehtr.pages.result_names import ResultNames
from spikehtr.pages.rule_segmenter import find_lines
from spikehtr.pages.score_lines import score
from spikehtr.pages.segment import network_weights as weights
from spikehtr.pages.segment.decode_maps import DecodedLine
from spikehtr.pages.segment.find_gutter import emptiest, gutter
from spikehtr.pages.segment.line_network import LineNetwork, NetworkShape
from spikehtr.pages.segmenters import TurnedFirst, segmenter
from spikehtr.pages.worker_pool import WorkerPool
from spikehtr.results import Page

LYING = {1: Image.Transpose.ROTATE_270, 2: Image.Transpose.ROTATE_180, 3: Image.Transpose.ROTATE_90}
needs_weights = pytest.mark.skipif(not SEGMENTER.is_file(), reason="this version comes without a line network")


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that says anything: what is made of it must hold all the same."""
    torch.manual_seed(3)
    network = LineNetwork(NetworkShape((4, 4, 8, 8, 8), (1, 1, 1, 1, 1), decoder=(4, 8, 8)))
    network.fine.weight.data.normal_(std=3.0)
    network.fine.bias.data.zero_()  # type: ignore[union-attr]
    file = tmp_path_factory.mktemp("weights") / "any.safetensors"
    weights.save(file, network.state_dict(), network.shape, {})
    return file


def lines_of(layout: FoundLayout) -> list[FoundLine]:
    return [line for region in layout.regions for line in region.lines]


@pytest.mark.parametrize("size", [(1, 1), (5, 900), (17, 16), (700, 40), (333, 401)])
def test_any_size_gives_lines_on_the_page_or_a_remark(untrained: Path, size: tuple[int, int]) -> None:
    noise = np.random.default_rng(1).integers(0, 255, size[::-1], np.uint8)
    layout = NetworkSegmenter(untrained)(Image.fromarray(noise))
    if min(size) < 16:
        assert layout.regions == []
        assert "too small" in layout.remarks[0]
    for line in lines_of(layout):
        assert all(0 <= x < size[0] and 0 <= y < size[1] for x, y in (*line.polygon, *line.baseline))
        assert len(set(line.polygon)) > 2


def test_a_page_does_not_depend_on_those_beside_it(untrained: Path) -> None:
    pages = [simple_page(count)[0].crop((0, 0, 400 + 90 * count, 300)) for count in (1, 2, 3)]
    find = NetworkSegmenter(untrained)
    assert find.segment_pages(pages) == [find(page) for page in pages]
    assert pickle.loads(pickle.dumps(find))(pages[0]) == find(pages[0])


def test_workers_ask_for_the_network_and_find_the_same(untrained: Path) -> None:
    """`cpu:0`: not the CPU of the workers themselves, as a GPU is not."""
    pages = [simple_page(count)[0].crop((0, 0, 400 + 90 * count, 300)) for count in (1, 2, 3, 2)]
    find = NetworkSegmenter(untrained, "cpu:0")
    for_workers, answer = find.for_workers()
    assert answer is not None
    with WorkerPool(2, answer=answer) as pool:
        found = [pool.submit(for_workers, page) for page in pages]
        assert [future.result(120) for future in found] == [find(page) for page in pages]
    assert NetworkSegmenter(untrained).for_workers() == (NetworkSegmenter(untrained), None)


def test_many_pages_are_read_by_processes_that_ask_for_the_network(untrained: Path, tmp_path: Path) -> None:
    for number in range(6):
        simple_page(1 + number % 3, seed=number)[0].crop((0, 0, 500, 300)).save(tmp_path / f"{number}.png")
    sources, _, _ = find_sources([str(tmp_path)])
    jobs = [job for source in sources for job in ResultNames().jobs(source)]
    apart = read_pages(None, jobs, ReadOptions(NetworkSegmenter(untrained, "cpu:0"), "page", workers=2))
    found = [done.result for done in apart]
    here = [done.result for done in read_pages(None, jobs, ReadOptions(NetworkSegmenter(untrained), "page"))]
    assert len(found) == 6
    assert found == here
    assert any(isinstance(page, Page) and page.lines for page in found)


def test_a_segmenter_goes_by_its_name_or_file(untrained: Path, tmp_path: Path) -> None:
    assert isinstance(segmenter(str(untrained)), NetworkSegmenter)
    assert segmenter("rules") is find_lines
    with pytest.raises(SpikeHTRError, match=r"gone\.safetensors"):
        segmenter("gone.safetensors")
    if not SEGMENTER.is_file():
        with pytest.raises(SpikeHTRError, match="comes without a line network"):
            segmenter("network")


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_lines_of_a_turned_page_read_as_those_of_the_upright_one(turns: int, tmp_path: Path) -> None:
    recognizer, (page, _) = random_recognizer(), simple_page()
    right = recognizer.transcribe_page(page, "rules")
    lying = page.transpose(LYING[turns])
    assert upright_image(lying, turns).tobytes() == page.tobytes()
    found = recognizer.transcribe_page(lying, "rules", layout=LayoutOptions(turns=turns))
    assert found.to_text() == right.to_text()
    size = (lying.width, lying.height)
    for one, other in zip(found.lines, right.lines, strict=True):
        assert turned_upright(one.polygon, turns, size) == other.polygon
        for word, its in zip(one.words, other.words, strict=True):
            assert word.box == pytest.approx(box_as_it_lies(its.box, turns, size))
    lying.save(tmp_path / "page.png")
    for form in ("page", "alto"):  # what was written reads the same again
        (tmp_path / "page.xml").write_text(getattr(found, f"to_{form}")().replace('"page"', '"page.png"'), "utf-8")
        again = (tmp_path / "page.xml").read_text("utf-8").replace("<fileName>page<", "<fileName>page.png<")
        (tmp_path / "page.xml").write_text(again, "utf-8")
        assert recognizer.transcribe_page(tmp_path / "page.xml").to_text() == right.to_text()


def test_level_lines_clicked_from_the_right_are_not_upside_down() -> None:
    outline = ((0.0, 0.0), (100.0, 0.0), (100.0, 20.0), (0.0, 20.0))
    assert quarter_of_given(((100.0, 15.0), (0.0, 15.0)), outline, upside_down=False) == 0
    assert quarter_of_given(((100.0, 15.0), (0.0, 15.0)), outline, upside_down=True) == 2
    assert quarter_of_given(((5.0, 2.0), (6.0, 9.0)), outline, upside_down=False) == 0  # a box that is wide is level
    high = tuple((y, x) for x, y in outline)
    assert quarter_of_given(((5.0, 0.0), (5.0, 100.0)), high, upside_down=False) == 1
    assert quarter_of_given(((5.0, 100.0), (5.0, 0.0)), high, upside_down=False) == 3


def test_a_word_on_how_pages_lie_holds_for_any_segmenter() -> None:
    def find(page: Image.Image) -> list[FoundRegion]:
        assert page.size == (40, 90)
        return [FoundRegion([FoundLine(((5.0, 20.0), (30.0, 20.0)), ((5.0, 5.0), (30.0, 5.0), (30.0, 25.0)))])]

    (line,) = lines_of(TurnedFirst(find, 1)(Image.new("L", (90, 40))))
    assert line.baseline == ((69.0, 5.0), (69.0, 30.0))
    back = as_it_lies(np.array([(5.0, 20.0)]), 1, (40, 90))
    assert tuple(back[0]) == line.baseline[0]


def level(x0: float, x1: float, y: float) -> DecodedLine:
    points = np.linspace((x0, y), (x1, y), 9)
    return DecodedLine(points, np.full(9, 18.0), np.full(9, 8.0), 0.9)


def book(fold: bool = True) -> np.ndarray:
    image = np.full((700, 1200), 225, np.uint8)
    if fold:
        image[:, 596:604] = 90
    return image


def test_a_spread_needs_both_a_fold_and_lines_that_end_at_it() -> None:
    two = [level(x, x + 450, y) for y in range(100, 600, 60) for x in (60, 680)]
    one = [level(60, 1130, y) for y in range(100, 600, 60)]
    assert gutter(two, book(), "auto") == pytest.approx(600, abs=12)
    assert gutter(one, book(), "auto") is None
    assert gutter(two, book(fold=False), "auto") is None
    assert gutter(two, book(), "no") is None
    assert 510 < emptiest(two, 1200) < 680
    assert gutter(two, book(fold=False), "yes") == emptiest(two, 1200)


@needs_weights
@pytest.mark.parametrize("turns", range(4))
def test_drawn_pages_are_found_whole_however_they_lie(turns: int) -> None:
    page, true = simple_page(6)
    lying = page.transpose(LYING[turns]) if turns else page
    layout = segmenter("network")(lying)
    assert isinstance(layout, FoundLayout)
    assert any("turned" in remark for remark in layout.remarks) == bool(turns)
    size = (lying.width, lying.height)
    found = [turned_upright(line.baseline, turns, size) for line in lines_of(layout)]
    assert score(true, found).whole >= 0.8


@needs_weights
@pytest.mark.parametrize(
    "image",
    [
        Image.new("L", (800, 1100), 235),
        Image.new("L", (800, 1100), 0),
        Image.fromarray(np.tile(np.linspace(40, 230, 900).astype(np.uint8), (700, 1))),
        Image.fromarray(np.random.default_rng(0).normal(200, 12, (900, 700)).clip(0, 255).astype(np.uint8)),
    ],
    ids=["blank", "black", "shade", "grain"],
)
def test_pages_without_writing_have_no_lines(image: Image.Image) -> None:
    layout = segmenter("network")(image)
    assert isinstance(layout, FoundLayout)
    assert layout.regions == []


@needs_weights
def test_a_line_given_as_a_page_is_one_line() -> None:
    page, true = simple_page(1)
    (x0, y), (x1, _) = true[0]
    found = segmenter("network")(page.crop((round(x0) - 30, round(y) - 50, round(x1) + 30, round(y) + 30)))
    assert isinstance(found, FoundLayout)
    assert len(lines_of(found)) == 1


@pytest.mark.slow  # a scan of 100 million pixels
def test_a_huge_scan_is_looked_at_in_a_smaller_copy(untrained: Path) -> None:
    layout = NetworkSegmenter(untrained)(Image.new("L", (20_000, 5_000), 230))
    for line in lines_of(layout):
        assert all(0 <= x < 20_000 and 0 <= y < 5_000 for x, y in line.polygon)
