import numpy as np
import pytest
from PIL import Image

from spikehtr.pages.overlay import draw
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word


def word(text, x, width=20.0):
    step = width / len(text)
    boxes = [(x + i * step, 10.0, x + (i + 1) * step, 40.0) for i in range(len(text))]
    return Word(tuple(Glyph(character, 0.9, box) for character, box in zip(text, boxes, strict=True)))


def drawn(words, width=400):
    line = TextLine("l1", ((5.0, 10.0), (width - 5.0, 10.0), (width - 5.0, 40.0), (5.0, 40.0)), (), tuple(words), 0.9)
    page = Page("p.png", width, 60, (Region("r1", (line,)),))
    picture = draw(page, Image.new("L", (width, 60), 255))
    assert picture.size == (2 * width, 60)
    return np.asarray(picture.convert("L"))[:, width:]  # what stands beside the page


@pytest.mark.parametrize(
    "text", ["court", "vingt-deuxieme", "a word at the very right end of a line".replace(" ", "-")]
)
def test_text_at_the_right_edge_is_drawn_whole(text):
    beside = drawn([word("Louis", 10), word(text, 380)])
    columns = np.flatnonzero((beside < 200).any(axis=0))
    assert len(columns)
    assert columns.max() < beside.shape[1] - 1  # nothing is cut off
    assert columns.min() <= 15
    assert columns.max() > 350


def test_a_word_stands_where_it_stands_on_the_page():
    columns = np.flatnonzero((drawn([word("ici", 200)]) < 200).any(axis=0))
    assert 199 <= columns.min() <= 204


def test_words_never_lie_on_top_of_each_other():
    apart = drawn([word("premier", 10, 5.0), word("second", 12, 5.0)])
    columns = np.flatnonzero((apart < 200).any(axis=0))
    assert np.diff(columns).max() >= 3  # a space between the two


@pytest.mark.parametrize("count", [9, 14])
def test_more_words_than_fit_lie_side_by_side(count):
    beside = drawn([word("parchemin", 30 * number) for number in range(count)])
    columns = np.flatnonzero((beside < 200).any(axis=0))
    assert columns.min() <= 12
    gaps = np.diff(columns)
    assert (gaps >= 3).sum() >= count - 1  # a space after each word but the last
