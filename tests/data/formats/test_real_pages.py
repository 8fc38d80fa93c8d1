"""The project's 23 real pages against the line images that were cut from larger scans of them."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from formats_help import gather, real
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats import alto, parquet
from spikehtr.data.geometry import scale_line
from spikehtr.data.images import line_image
from spikehtr.data.samples import Sample
from spikehtr.text import normalise

HEIGHT = 64
MARGINS = (0.0, 0.5, 1.0, 1.5, 2.0)  # pixels of the page
Pair = tuple[NDArray[np.uint8], int, Image.Image]  # our line at the common height, its height on the page, the other


def test_every_line_of_every_page_is_read_and_can_be_cut():
    samples, report = gather(alto.read, real("pages"))
    assert len({sample.image for sample in samples}) == 23
    assert len(samples) == 551
    assert not report.counts
    assert all(sample.polygon and sample.baseline for sample in samples)


def pairs() -> Iterator[list[Pair]]:
    """Page by page, the lines whose text is found just once on the page and once among the page's Parquet lines."""
    for folder in sorted(real("pages").iterdir()):
        ours, _ = gather(alto.read, folder)
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
                image = line_image(sample)
                other = Image.open(io.BytesIO(found[key[id(sample)]].image)).convert("L")
                pages[sample.page].append((scale_line(image, HEIGHT), image.height, other))
        yield from pages.values()


def lines_of(folder: Path, split: str) -> Path:
    return real("lines") / folder.name / f"{split}.parquet"


def page_of(sample: Sample) -> str:
    """The Parquet lines name their page by its image: data/x/PH 1858-22.jpg."""
    name = sample.page or ""
    return Path(name).stem.replace(" ", "_") if "/" in name else name


def likeness(pair: Pair, before: float, after: float) -> float:
    """Normalised cross-correlation with the other image, less a margin before and after the line in page pixels."""
    ours, height, other = pair
    scale = HEIGHT / (height + before + after)
    part = (before * scale, before * scale, other.width - after * scale, HEIGHT - after * scale)
    theirs = np.asarray(other.resize((ours.shape[1], HEIGHT), Image.Resampling.BICUBIC, part))
    return float(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1])


def test_lines_cut_from_the_pages_agree_with_those_cut_from_the_scans():
    """The Parquet lines have a margin of about two pixels of their scan: here between none and two, as scans differ.

    It is estimated once a page, from three lines, and must then fit all lines of that page.
    """
    plain, trimmed = [], []
    for lines in pairs():
        margin = max(product(MARGINS, MARGINS), key=lambda m: sum(likeness(pair, *m) for pair in lines[:3]))
        trimmed += [likeness(pair, *margin) for pair in lines]
        plain += [likeness(pair, 0, 0) for pair in lines]
    share = np.mean(np.array(trimmed) >= 0.85)
    print(
        f"{len(trimmed)} lines in both; cross-correlation of 0.85 or more: {share:.1%}, median {np.median(trimmed):.3f}"
    )
    print(f"with their margin left on: {np.mean(np.array(plain) >= 0.85):.1%}, median {np.median(plain):.3f}")
    assert len(trimmed) > 500
    assert share >= 0.9
    assert np.median(plain) >= 0.85
