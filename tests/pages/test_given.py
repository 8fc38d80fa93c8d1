"""The lines of PAGE and ALTO files, as they stand in their regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spikehtr.pages.given import read_given

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
