"""Composed pages: what their labels say is where the ink is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spikehtr.assets import FONTS
from spikehtr.data.synth import SynthReport, load_fonts
from spikehtr.data.synthesis.drawing import Sources
from spikehtr.data.synthesis.texts import Texts, plain_characters
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.segment.compose_pages import LAYOUTS, Layout, compose, compose_many
from spikehtr.pages.segment.packed_pages import COMPOSED, pack_composed, unpack
from spikehtr.pages.segment.page_sheet import INKED
from spikehtr.pages.segment.training_run import divided


@pytest.fixture(scope="module")
def sources() -> Sources:
    texts = Texts([], [["one", "morning", "the", "old", "gardener", "opened", "his", "door"] * 20], [])
    return Sources(texts, load_fonts(FONTS, plain_characters(texts), SynthReport()), [])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_lines_stand_on_their_baselines_within_their_heights(sources: Sources, layout: Layout, seed: int) -> None:
    page, ink = compose(sources, np.random.default_rng(seed), layout=layout)
    assert page.image.shape == ink.shape
    assert page.labels.lines
    claimed = np.zeros(ink.shape, bool)
    for line in page.labels.lines:
        xs = np.arange(int(line.points[0, 0]), int(line.points[-1, 0]) + 1)
        base = np.interp(xs, *line.points.T)
        rows = np.arange(len(ink))[:, None]
        own = (rows >= base - line.above[0] - 2) & (rows <= base + line.below[0] + 2)
        claimed[:, xs] |= own
        above = (ink[:, xs] > INKED) & own & (rows <= base)
        below = (ink[:, xs] > INKED) & own & (rows > base + 0.5)
        assert above.sum() > 2 * below.sum()  # letters stand on it, few parts hang below
    written = ink > INKED
    assert (written & claimed).sum() > 0.97 * written.sum()


def test_regions_hold_their_lines_and_pages_are_those_of_their_seed(sources: Sources) -> None:
    first, second = list(compose_many(sources, 5, 2)), list(compose_many(sources, 5, 2))
    for one, again in zip(first, second, strict=True):
        assert (one.image == again.image).all()
    for page in first:
        for line in page.labels.lines:
            (left, top), _, (right, bottom), _ = page.labels.regions[line.region]
            assert ((line.points >= (left, top)) & (line.points <= (right, bottom))).all()


def test_composed_pages_are_packed_and_never_left_out(sources: Sources, tmp_path: Path) -> None:
    folder = tmp_path / "drawn"
    heard: list[int] = []
    assert pack_composed(compose_many(sources, 1, 2), folder, heard.append) == 2
    assert heard == [1, 2]
    pages = list(unpack(folder))
    assert [page.group for page in pages] == [COMPOSED] * 2
    kept, others = divided(pages, 0, [])
    assert len(kept) == 2
    assert not others
    with pytest.raises(SpikeHTRError, match="no collection drawn"):
        divided(pages, None, ["drawn"])
