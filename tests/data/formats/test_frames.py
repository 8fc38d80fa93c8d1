"""Lines of one page of an image file that has several."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats_help import gather, kinds, write
from lxml import etree
from PIL import Image

from spikehtr.data.compiling import compile_store
from spikehtr.data.formats import alto_xml, page_xml
from spikehtr.data.formats.frames import frame_of
from spikehtr.data.images import line_image
from spikehtr.data.samples import ImportReport, Sample
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word

OUTLINE = ((10.0, 10.0), (90.0, 10.0), (90.0, 40.0), (10.0, 40.0))
SHADES = (60, 140, 220)  # of the pages' paper


def book(file: Path) -> Path:
    """A TIFF of three pages, each larger and lighter than the one before."""
    first, *others = (Image.new("L", (100 * n, 50 * n), shade) for n, shade in enumerate(SHADES, start=1))
    first.save(file, save_all=True, append_images=others)
    return file


def written(frame: int | None, form: str, size: tuple[int, int]) -> str:
    word = Word(tuple(Glyph(letter, 1.0, (10, 10, 90, 40)) for letter in "ink"))
    sheet = Page("book.tif", *size, (Region("r", (TextLine("l", OUTLINE, words=(word,)),)),), frame=frame)
    return str(getattr(sheet, f"to_{form}")())


def read(folder: Path, form: str, text: str) -> tuple[list[Sample], ImportReport]:
    return gather({"page": page_xml, "alto": alto_xml}[form].read, write(folder / "p.xml", text))


@pytest.mark.parametrize("form", ["page", "alto"])
@pytest.mark.parametrize("frame", [1, 2, 3])
def test_a_line_is_cut_out_of_the_page_that_is_meant(frame: int, form: str, tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    (sample,), report = read(tmp_path, form, written(frame, form, (100 * frame, 50 * frame)))
    assert not report.counts  # the size is that of this page, not of the first
    assert (sample.frame, sample.polygon) == (frame, OUTLINE)
    assert line_image(sample).getextrema() == (SHADES[frame - 1],) * 2


@pytest.mark.parametrize("form", ["page", "alto"])
def test_coordinates_are_scaled_to_the_page_that_is_meant(form: str, tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    (sample,), report = read(tmp_path, form, written(3, form, (200, 100)))
    assert kinds(report) == {"size differs": 1}
    assert "page 3 of 'book.tif' has 300 x 150" in report.problems[0].message
    assert sample.polygon == tuple((1.5 * x, 1.5 * y) for x, y in OUTLINE)


@pytest.mark.parametrize("form", ["page", "alto"])
def test_a_page_that_is_not_there_is_an_error(form: str, tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    samples, report = read(tmp_path, form, written(4, form, (200, 100)))
    assert not samples
    assert (kinds(report), report.count("error")) == ({"no such page": 1}, 1)
    assert "page 4 of its image 'book.tif', which has 3" in report.problems[0].message


def test_where_no_page_is_named_the_first_is_taken_with_a_warning(tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    (sample,), report = read(tmp_path, "page", written(None, "page", (100, 50)))
    assert (kinds(report), report.count("warning")) == ({"several pages": 1}, 1)
    assert line_image(sample).getextrema() == (SHADES[0],) * 2


def test_an_image_of_one_page_is_that_page_whatever_its_number_was(tmp_path: Path) -> None:
    Image.new("L", (200, 100), 255).save(tmp_path / "book.tif")
    (sample,), report = read(tmp_path, "page", written(2, "page", (200, 100)))
    assert (sample.frame, kinds(report)) == (None, {})


def test_lines_of_all_pages_are_compiled_each_from_its_own(tmp_path: Path) -> None:
    """The pages kept open while lines are cut are told apart."""
    book(tmp_path / "book.tif")
    for frame in (1, 2, 3):
        write(tmp_path / f"p{frame}.xml", written(frame, "page", (100 * frame, 50 * frame)))
    store, _ = compile_store([tmp_path], tmp_path / "s.arrow", machine_lines=True)
    assert [int(store.line(row).mean()) for row in range(len(store))] == list(SHADES)


@pytest.mark.parametrize(
    ("custom", "frame"),
    [("", None), ("frame {number:12;}", 12), ("structure {type:x;} frame {number: 3}", 3), ("frame {number:0;}", None)],
)
def test_notes_of_a_frame(custom: str, frame: int | None) -> None:
    assert frame_of(etree.fromstring(f'<PcGts><Page custom="{custom}"/></PcGts>')) == frame
