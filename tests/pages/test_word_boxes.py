from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from spikehtr import Recognizer
from spikehtr.assets import FONTS, SAMPLE_PAGE
from spikehtr.data.formats.outlines import Box, Points, bounds
from spikehtr.data.geometry import cut_line
from spikehtr.pages.word_boxes import LineInk, place_characters

WORDS = ("a", "quick", "brown", "fjord", "I", "up")
GAP = 18


def drawn_line(
    slope: float, curve: float = 0.0
) -> tuple[Image.Image, Points, list[Box], list[list[tuple[float, float]]]]:
    """A line of words along a slope or bow: the page, the line's outline, the words' true boxes and, as a network would
    tell them, the middles of their characters."""
    font = ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), 44)
    page = Image.new("L", (700, 300), 225)
    boxes, places = [], []
    x, middles = 40.0, []
    for word in WORDS:
        base = 150 + slope * x + curve * (x - 300) ** 2
        alone = Image.new("L", page.size, 0)
        ImageDraw.Draw(alone).text((x, base), word, font=font, fill=255, anchor="ls")
        strong = np.asarray(alone) > 128
        ys, xs = np.nonzero(strong)
        boxes.append((float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)))
        page.paste(45, mask=alone)
        starts = [x + font.getlength(word[:index]) for index in range(len(word))]
        wide = [font.getlength(character) for character in word]
        places.append([(a + w / 2 - 1, a + w / 2 + 1) for a, w in zip(starts, wide, strict=True)])
        middles += [x, x + font.getlength(word)]
        x += font.getlength(word) + GAP
    along = np.linspace(30, x, 12)
    base = 150 + slope * along + curve * (along - 300) ** 2
    upper, lower = (
        [(float(a), float(b) - 40) for a, b in zip(along, base, strict=True)],
        [(float(a), float(b) + 20) for a, b in zip(along, base, strict=True)],
    )
    return page, (*upper, *reversed(lower)), boxes, places


def union(boxes: list[Box]) -> Box:
    return bounds([corner for a, b, c, d in boxes for corner in ((a, b), (c, d))])


@pytest.mark.parametrize(("slope", "curve"), [(0.0, 0.0), (0.12, 0.0), (-0.12, 0.0), (0.0, 0.0004)])
def test_a_words_box_is_around_its_ink_on_level_tilted_and_bent_lines(slope: float, curve: float) -> None:
    page, outline, truth, places = drawn_line(slope, curve)
    left, top = (max(0, round(value - 1)) for value in bounds(outline)[:2])
    ink = LineInk.of(cut_line(page, outline), left, top)
    cut = [[(a - left, b - left) for a, b in word] for word in places]
    found = [union(boxes) for boxes in place_characters(ink, outline, cut)]
    for box, true in zip(found, truth, strict=True):
        assert box == pytest.approx(true, abs=2)
    for one, other in itertools.pairwise(found):
        assert one[2] <= other[0]


def test_characters_side_by_side_fill_their_words_box_and_keep_their_order() -> None:
    page, outline, _, places = drawn_line(0.0)
    left, top = (max(0, round(value - 1)) for value in bounds(outline)[:2])
    ink = LineInk.of(cut_line(page, outline), left, top)
    for word in place_characters(ink, outline, [[(a - left, b - left) for a, b in word] for word in places]):
        assert [box[2] for box in word[:-1]] == [box[0] for box in word[1:]]
        assert [box[0] for box in word] == sorted(box[0] for box in word)


def test_writing_that_runs_from_right_to_left_is_placed_too() -> None:
    page, outline, truth, places = drawn_line(0.0)
    left, top = (max(0, round(value - 1)) for value in bounds(outline)[:2])
    ink = LineInk.of(cut_line(page, outline), left, top)
    cut = [[(a - left, b - left) for a, b in reversed(word)] for word in reversed(places)]
    found = place_characters(ink, outline, cut)
    for boxes, true in zip(reversed(found), truth, strict=True):
        assert union(boxes) == pytest.approx(true, abs=2)
        assert [box[0] for box in boxes] == sorted((box[0] for box in boxes), reverse=True)


def test_a_word_where_there_is_no_ink_lies_within_the_outline() -> None:
    blank = Image.new("L", (300, 60), 220)
    outline = ((0.0, 0.0), (300.0, 0.0), (300.0, 60.0), (0.0, 60.0))
    (boxes,) = place_characters(LineInk.of(blank, 0, 0), outline, [[(290.0, 310.0), (320.0, 330.0)]])
    for left, top, right, bottom in boxes:
        assert 0 <= left <= right <= 300
        assert (top, bottom) == (0, 60)


@given(st.lists(st.lists(st.tuples(st.floats(-5, 420), st.floats(0, 30)), min_size=1, max_size=6), max_size=8))
def test_wherever_characters_are_read_their_boxes_are_finite_and_in_order(
    words: list[list[tuple[float, float]]],
) -> None:
    page, outline, _, _ = drawn_line(0.0)
    left, top = (max(0, round(value - 1)) for value in bounds(outline)[:2])
    line = cut_line(page, outline)
    spans = [[(x, x + width) for x, width in word] for word in words]
    found = place_characters(LineInk.of(line, left, top), outline, spans)
    assert [len(boxes) for boxes in found] == [len(word) for word in words]
    for box in (box for boxes in found for box in boxes):
        assert all(map(math.isfinite, box))
        assert left - 1 <= box[0] <= box[2] <= left + line.width + 1
        assert top - 1 <= box[1] <= box[3] <= top + line.height + 1


def test_boxes_of_a_page_that_was_read_lie_within_their_lines() -> None:
    with Image.open(SAMPLE_PAGE) as image:
        page = Recognizer.load(device="cpu").transcribe_page(image)
    assert sum(len(line.words) > 1 for line in page.lines) > 10
    for line in page.lines:
        left, top, right, bottom = line.box
        for word in line.words:
            assert left - 2 <= word.box[0] <= word.box[2] <= right + 2
            assert top - 2 <= word.box[1] <= word.box[3] <= bottom + 2
