"""The project's 23 real pages against the line images that were cut from larger scans of them."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from formats_help import gather, real
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats import alto_xml, parquet
from spikehtr.data.geometry import scale_line
from spikehtr.data.images import line_image
from spikehtr.data.samples import Sample
from spikehtr.text import normalise

HEIGHT = 64
SHIFT = 4  # rows and columns
Pair = tuple[NDArray[np.uint8], Image.Image]  # our line and the other, both 64 rows high


def test_every_line_of_every_page_is_read_and_can_be_cut():
    samples, report = gather(alto_xml.read, real("pages"))
    assert len({sample.image for sample in samples}) == 23
    assert len(samples) == 551
    assert not report.counts
    assert all(sample.polygon and sample.baseline for sample in samples)


def pairs() -> Iterator[list[Pair]]:
    """Page by page, the lines whose text is found just once on the page and once among the page's Parquet lines."""
    for folder in sorted(real("pages").iterdir()):
        ours, _ = gather(alto_xml.read, folder)
        names = {sample.page for sample in ours}
        rows = [row for split in ("validation", "test") for row in gather(parquet.read, lines_of(folder, split))[0]]
        theirs = [row for row in rows if page_of(row) in names]
        key = {id(sample): (page_of(sample), normalise(sample.text)) for sample in ours + theirs}
        once = {name for name, n in Counter(key[id(s)] for s in ours).items() if n == 1}
        once &= {name for name, n in Counter(key[id(s)] for s in theirs).items() if n == 1}
        found = {key[id(row)]: row for row in theirs}
        pages: dict[str | None, list[Pair]] = defaultdict(list)
        for sample in ours:
            if key[id(sample)] in once:
                ours_cut = scale_line(line_image(sample), HEIGHT)
                other = Image.open(io.BytesIO(found[key[id(sample)]].image)).convert("L")
                pages[sample.page].append((ours_cut, other))
        yield from pages.values()


def lines_of(folder: Path, split: str) -> Path:
    return real("lines") / folder.name / f"{split}.parquet"


def page_of(sample: Sample) -> str:
    """The Parquet lines name their page by its image: data/x/PH 1858-22.jpg."""
    name = sample.page or ""
    return Path(name).stem.replace(" ", "_") if "/" in name else name


def likeness(ours: NDArray[np.uint8], other: Image.Image) -> float:
    """Normalised cross-correlation, the best over shifts of up to 4 of the 64 rows: outlines are whole pixels of the
    page here and of a larger scan there."""
    theirs = np.asarray(other)
    fitted = np.asarray(Image.fromarray(ours).resize(other.size, Image.Resampling.BICUBIC))
    inner = fitted[SHIFT:-SHIFT, SHIFT:-SHIFT]
    return float(cv2.matchTemplate(theirs, inner, cv2.TM_CCOEFF_NORMED).max())


@pytest.mark.slow  # that they can be cut: above
def test_lines_cut_from_the_pages_agree_with_those_cut_from_the_scans():
    found = np.array([likeness(*pair) for lines in pairs() for pair in lines])
    share = np.mean(found >= 0.85)
    print(f"{len(found)} lines in both; cross-correlation 0.85 or more: {share:.1%}, median {np.median(found):.3f}")
    assert len(found) > 500
    assert share >= 0.9
