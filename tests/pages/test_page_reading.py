from __future__ import annotations

import io
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pages_help import random_recognizer, simple_page
from spikehtr.data.geometry import cut_line
from spikehtr.data.images import open_gray
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.page_lines import ReadOptions, is_line
from spikehtr.pages.page_source import Failure
from spikehtr.pages.read_pages import read_pages
from spikehtr.pages.result_names import ResultNames
from spikehtr.pages.rule_segmenter import find_lines
from spikehtr.recognizer import Recognizer
from spikehtr.results.page import Page, Region, TextLine

RECOGNIZER = random_recognizer()


def read_all(inputs: list[Path], recognizer: Recognizer = RECOGNIZER, **options: object) -> list[Page | Failure]:
    sources, _, _ = find_sources(map(str, inputs))
    names = ResultNames()
    jobs = [job for source in sources for job in names.jobs(source)]
    return [done.result for done in read_pages(recognizer, jobs, ReadOptions(find_lines, **options))]  # type: ignore[arg-type]


def texts(pages: list[Page | Failure]) -> list[list[str]]:
    return [[line.text for line in page.lines] for page in pages if isinstance(page, Page)]


def pages(folder: Path, count: int) -> list[Path]:
    for number in range(count):
        simple_page(1 + number % 3, seed=number)[0].save(folder / f"{number}.png")
    return sorted(folder.glob("*.png"))


def test_pooled_batches_give_what_each_page_gives_alone(tmp_path: Path) -> None:
    files = pages(tmp_path, 4)
    pooled = read_all(files, batch_size=5)
    assert texts(pooled) == texts(read_all(files, batch_size=1))
    for page, file in zip(pooled, files, strict=True):
        alone = RECOGNIZER.transcribe_page(file, find_lines)
        assert isinstance(page, Page)
        assert page.to_text() == alone.to_text()
        assert [line.polygon for line in page.lines] == [line.polygon for line in alone.lines]
        sure = [line.confidence for line in page.lines]
        assert sure == pytest.approx([line.confidence for line in alone.lines], abs=1e-5)
    assert [page.image for page in pooled if isinstance(page, Page)] == [file.name for file in files]
    assert all(any(line) for line in texts(pooled))


def test_the_page_route_is_cutting_the_polygons_by_hand() -> None:
    image, _ = simple_page()
    page = RECOGNIZER.transcribe_page(image)
    assert len(page.lines) == 4
    for line in page.lines:
        cut = cut_line(image, line.polygon)
        alone = RECOGNIZER.transcribe(cut)
        assert line.text == " ".join(alone.text.split())
        assert line.confidence == pytest.approx(alone.confidence, abs=1e-5)
        glyphs = [glyph for word in line.words for glyph in word.characters]
        places = [c for c in alone.characters if not c.character.isspace()]
        left = max(0, round(min(x for x, _ in line.polygon) - 1))
        assert [glyph.character for glyph in glyphs] == [c.character for c in places]
        for word in line.words:
            lefts = [glyph.box[0] for glyph in word.characters]
            assert lefts == sorted(lefts)
            assert lefts[1:] == [glyph.box[2] for glyph in word.characters][:-1]
        # A character's box is where it was read, but for a word's ends, which are those of its ink.
        inner = [i for i, c in enumerate(places[:-1]) if i and glyphs[i].box[0] == glyphs[i - 1].box[2]]
        halves = [left + (places[i - 1].x0 + places[i - 1].x1 + places[i].x0 + places[i].x1) / 4 for i in inner]
        clamped = [glyphs[i].box[0] for i in inner]
        assert sum(abs(a - b) <= 0.5 for a, b in zip(clamped, halves, strict=True)) >= len(inner) / 2


@pytest.mark.parametrize("form", ["page", "alto"])
def test_a_file_without_text_keeps_its_lines_and_ids_and_gets_text(form: str, tmp_path: Path) -> None:
    image, _ = simple_page()
    image.save(tmp_path / "p.png")
    found = RECOGNIZER.transcribe_page(tmp_path / "p.png")
    ids = {line.id: f"old_{line.id}" for line in found.lines}
    regions = tuple(
        Region(f"block_{region.id}", tuple(TextLine(ids[one.id], one.polygon, one.baseline) for one in region.lines))
        for region in found.regions
    )
    blank = Page(found.image, found.width, found.height, regions)
    (tmp_path / "p.xml").write_text(getattr(blank, f"to_{form}")(), encoding="utf-8")
    again = RECOGNIZER.transcribe_page(tmp_path / "p.xml")
    assert [region.id for region in again.regions] == [f"block_{region.id}" for region in found.regions]
    assert [line.id for line in again.lines] == [ids[line.id] for line in found.lines]
    whole = [tuple((round(x), round(y)) for x, y in line.polygon) for line in found.lines]
    assert [line.polygon for line in again.lines] == whole
    by_hand = [RECOGNIZER.transcribe(cut_line(image, line.polygon)).text for line in again.lines]
    assert [line.text for line in again.lines] == [" ".join(text.split()) for text in by_hand]
    assert all(by_hand)


def test_lines_that_cannot_be_used_are_named_and_the_rest_are_read(tmp_path: Path) -> None:
    image, _ = simple_page()
    image.save(tmp_path / "p.png")
    (tmp_path / "p.xml").write_text(
        '<PcGts><Page imageFilename="p.png" imageWidth="1000" imageHeight="700"><TextRegion id="r">'
        '<TextLine id="good"><Coords points="90,70 700,70 700,150 90,150"/></TextLine>'
        '<TextLine id="dot"><Baseline points="5,5"/></TextLine>'
        '<TextLine id="off"><Coords points="2000,0 2100,0 2100,50"/></TextLine>'
        "</TextRegion></Page></PcGts>"
    )
    page = RECOGNIZER.transcribe_page(tmp_path / "p.xml")
    assert [line.id for line in page.lines] == ["good"]
    assert any("dot" in problem for problem in page.problems)
    assert any("off" in problem and "outside" in problem for problem in page.problems)


def test_bad_pages_are_failures_in_their_place(tmp_path: Path) -> None:
    files = pages(tmp_path, 3)
    files[1].write_bytes(files[1].read_bytes()[:900])
    results = read_all(files)
    assert [isinstance(result, Failure) for result in results] == [False, True, False]
    assert isinstance(results[1], Failure)
    assert "damaged" in results[1].reason


def test_an_unexpected_error_on_one_page_is_that_pages_failure(tmp_path: Path) -> None:
    files = pages(tmp_path, 3)
    second = open_gray(files[1]).tobytes()

    def find(image: Image.Image) -> object:
        if image.tobytes() == second:
            raise ZeroDivisionError("of all things")
        return find_lines(image)

    sources, _, _ = find_sources(map(str, files))
    names = ResultNames()
    jobs = [job for source in sources for job in names.jobs(source)]
    results = [done.result for done in read_pages(RECOGNIZER, jobs, ReadOptions(find))]  # type: ignore[arg-type]
    assert [type(result).__name__ for result in results] == ["Page", "Failure", "Page"]
    assert "ZeroDivisionError: of all things" in results[1].reason  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(900, 64, True), (100, 64, True), (2000, 400, True), (1500, 2000, False), (2000, 1400, False)],
)
def test_lines_and_pages_are_told_apart_by_shape(width: int, height: int, expected: bool) -> None:
    assert is_line(width, height) is expected


@pytest.mark.parametrize(("size", "rows"), [((1, 1), 1), ((90, 5), 5), ((9000, 90), None), ((300, 40), 0)])
def test_a_line_too_small_to_read_gets_a_remark(size: tuple[int, int], rows: int | None, tmp_path: Path) -> None:
    Image.new("L", size, 255).save(tmp_path / "a.png")
    sources, _, _ = find_sources([str(tmp_path / "a.png")])
    jobs = list(ResultNames().jobs(sources[0]))
    (done,) = read_pages(RECOGNIZER, jobs, ReadOptions(find_lines, mode="line"))
    if rows is None:  # scaled down to the widest that is read
        rows = round(RECOGNIZER.config.data.max_width / 100)
    told = [f"a.png, line r1l1: {size[0]} x {size[1]} px, read at {rows} px of height, too little to tell letters"]
    assert done.remarks == (told if rows else [])


def test_a_line_image_is_one_line_and_read_as_it_is(tmp_path: Path) -> None:
    line = simple_page(1)[0].crop((80, 70, 680, 150))
    line.save(tmp_path / "line.png")
    (page,) = read_all([tmp_path / "line.png"])
    assert isinstance(page, Page)
    assert [found.text for found in page.lines] == [" ".join(RECOGNIZER.transcribe(line).text.split())]
    assert page.lines[0].box == (0, 0, 600, 80)


def test_any_kind_of_image_gives_the_same_page(tmp_path: Path) -> None:
    image, _ = simple_page(2)
    image.save(tmp_path / "p.png")
    expected = RECOGNIZER.transcribe_page(tmp_path / "p.png")
    data = io.BytesIO()
    image.save(data, "PNG")
    for same in (str(tmp_path / "p.png"), image, np.asarray(image), np.asarray(image.convert("RGB")), data.getvalue()):
        assert RECOGNIZER.transcribe_page(same).regions == expected.regions


def test_a_segmenter_of_ones_own() -> None:
    image, _ = simple_page(3)
    page = RECOGNIZER.transcribe_page(image, segmenter=lambda gray: find_lines(gray)[:1])
    assert page.regions == RECOGNIZER.transcribe_page(image, "rules").regions[:1]
    with pytest.raises(SpikeHTRError, match="no segmenter"):
        RECOGNIZER.transcribe_page(image, segmenter="other")


def test_wrong_use_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpikeHTRError, match="batch_size must be 1 or more, not -1"):
        RECOGNIZER.transcribe_page(simple_page(1)[0], batch_size=-1)
    (tmp_path / "other.xml").write_text("<mets/>")
    for name, message in (("none.xml", "no such file"), ("other.xml", "neither PAGE nor ALTO")):
        with pytest.raises(SpikeHTRError, match=f"{name}: {message}"):
            RECOGNIZER.transcribe_page(tmp_path / name)


@pytest.mark.parametrize("size", [(1, 9000), (9000, 1), (1, 1)])
def test_an_image_too_thin_for_any_line_has_none(size: tuple[int, int]) -> None:
    assert RECOGNIZER.transcribe_page(Image.new("L", size, 255)).lines == []


def test_threads_may_share_a_recognizer() -> None:
    images = [simple_page(count, seed=count)[0] for count in (1, 2, 3)]
    expected = [RECOGNIZER.transcribe_page(image) for image in images]
    got: dict[int, Page] = {}
    threads = [
        threading.Thread(target=lambda i=i: got.update({i: RECOGNIZER.transcribe_page(images[i])})) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[i] for i in range(3)] == expected
