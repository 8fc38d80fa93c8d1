"""The lines of PAGE and ALTO files, as they stand in their regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.given import read_given
from spikehtr.results.page import Page, Region, TextLine

PAGE = (
    '<PcGts><Page imageFilename="p.png" imageWidth="900" imageHeight="2000">{}</Page></PcGts>',
    '<TextRegion id="r{}"><Coords points="0,0 10,0 10,10"/>{}</TextRegion>',
    '<TextLine id="{}"><Coords points="10,{top} 500,{top} 500,{bottom} 10,{bottom}"/></TextLine>',
)
ALTO = (
    "<alto><Description><sourceImageInformation><fileName>p.png</fileName></sourceImageInformation></Description>"
    '<Layout><Page WIDTH="900" HEIGHT="2000"><PrintSpace>{}</PrintSpace></Page></Layout></alto>',
    '<TextBlock ID="r{}">{}</TextBlock>',
    '<TextLine ID="{}" HPOS="10" VPOS="{top}" WIDTH="490" HEIGHT="18"/>',
)


@pytest.mark.parametrize(("page", "block", "line"), [PAGE, ALTO], ids=["page", "alto"])
def test_every_line_stays_in_its_own_region(page: str, block: str, line: str, tmp_path: Path) -> None:
    Image.new("L", (900, 2000), 255).save(tmp_path / "p.png")
    for seed in range(20):  # many files: objects that are mixed up are so only now and then
        counts = np.random.default_rng(seed).integers(1, 5, 20).tolist()
        expected = {f"r{number}": [f"r{number}_{i}" for i in range(count)] for number, count in enumerate(counts)}
        blocks, top = "", 1
        for number, ids in enumerate(expected.values()):
            lines = [line.format(name, top=top + 20 * i, bottom=top + 20 * i + 18) for i, name in enumerate(ids)]
            blocks += block.format(number, "".join(lines))
            top += 20 * len(ids)
        (tmp_path / "p.xml").write_text(page.format(blocks), encoding="utf-8")
        found = {region.id: [place.id for place in region.lines] for region in read_given(tmp_path / "p.xml").regions}
        assert found == expected


OUTLINE = ((10.0, 10.0), (90.0, 10.0), (90.0, 40.0), (10.0, 40.0))


def book(file: Path) -> Path:
    """A TIFF of three pages, each larger than the one before."""
    first, *others = (Image.new("L", (100 * number, 50 * number), 255) for number in (1, 2, 3))
    first.save(file, save_all=True, append_images=others)
    return file


def written(frame: int | None, form: str, size: tuple[int, int] = (200, 100)) -> str:
    page = Page("book.tif", *size, (Region("r", (TextLine("l", OUTLINE),)),), frame=frame)
    return str(getattr(page, f"to_{form}")())


@pytest.mark.parametrize("form", ["page", "alto"])
def test_a_file_of_ours_leads_back_to_its_page_of_the_image(form: str, tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    (tmp_path / "p.xml").write_text(written(2, form), encoding="utf-8")
    given = read_given(tmp_path / "p.xml")
    assert (given.frame, given.problems, given.remarks) == (2, [], [])
    assert given.regions[0].lines[0].outline == OUTLINE  # as it was: the first page is half as large
    (tmp_path / "p.xml").write_text(written(3, form), encoding="utf-8")
    given = read_given(tmp_path / "p.xml")
    assert given.frame == 3
    assert ["page 3 of 'book.tif' has 300 x 150" in remark for remark in given.remarks] == [True]
    assert given.regions[0].lines[0].outline == tuple((1.5 * x, 1.5 * y) for x, y in OUTLINE)
    (tmp_path / "p.xml").write_text(written(4, form), encoding="utf-8")
    with pytest.raises(SpikeHTRError, match=r"made for page 4 of its image 'book\.tif', which has 3"):
        read_given(tmp_path / "p.xml")


@pytest.mark.parametrize("form", ["page", "alto"])
def test_where_no_page_is_named_the_first_is_taken_and_that_is_told(form: str, tmp_path: Path) -> None:
    book(tmp_path / "book.tif")
    text = written(None, form, (100, 50)).replace("<softwareName>spikehtr", "<softwareName>another")
    (tmp_path / "p.xml").write_text(text.replace('PHYSICAL_IMG_NR="1"', 'PHYSICAL_IMG_NR="2"'), encoding="utf-8")
    given = read_given(tmp_path / "p.xml")
    assert (given.frame, given.problems) == (1, [])
    assert ["has 3 pages, and which one is meant is not said" in remark for remark in given.remarks] == [True]


@pytest.mark.parametrize("form", ["page", "alto"])
def test_an_image_of_one_page_is_that_page_whatever_its_number_was(form: str, tmp_path: Path) -> None:
    Image.new("L", (200, 100), 255).save(tmp_path / "book.tif")
    (tmp_path / "p.xml").write_text(written(2, form), encoding="utf-8")
    assert read_given(tmp_path / "p.xml")[2:] == ([], [], None)
