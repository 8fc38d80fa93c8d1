import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import draw_line
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rates import character_edits
from spikehtr.evaluation.worst import MAX_LINES, ReadLine, align, draw_worst

MARK = (255, 202, 188)


def sheet(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def marks(pixels):
    return int((pixels == MARK).all(-1).sum())


@given(st.text("ab é", max_size=12), st.text("ab é", max_size=12))
def test_aligned_texts_are_the_texts_and_differ_as_counted(reference, text):
    cells = align(reference, text)
    assert "".join(cell.reference or "" for cell in cells) == reference
    assert "".join(cell.read or "" for cell in cells) == text
    edits = character_edits(reference, text)
    assert sum(not cell.same for cell in cells) == edits.errors
    assert sum(cell.read is None for cell in cells) == edits.deletions
    assert sum(cell.reference is None for cell in cells) == edits.insertions


def test_differences_are_marked_and_nothing_else(tmp_path):
    pixels = draw_line("ink on paper")
    draw_worst([(pixels, "ink on paper", "ink on paper", 0.9)], tmp_path / "right.png")
    draw_worst([(pixels, "ink on paper", "ink an paper", 0.9)], tmp_path / "one.png")
    draw_worst([(pixels, "ink on paper", "xxxxxxxxxxxx", 0.9)], tmp_path / "all.png")
    right, one, every = (marks(sheet(tmp_path / f"{name}.png")) for name in ("right", "one", "all"))
    assert right == 0
    assert 0 < 9 * one < every  # twelve characters against one; glyphs cover some of it
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.png", "one.png", "right.png"]


def test_the_line_itself_is_drawn(tmp_path):
    pixels = draw_line("ink on paper", height=64)
    draw_worst([ReadLine(pixels, "a", "b", 0.5, "page 1/line 2")], tmp_path / "s.png")
    drawn = sheet(tmp_path / "s.png")[:, :, 0]
    top, left = 16 + 22, 16
    assert np.array_equal(drawn[top : top + pixels.shape[0], left : left + pixels.shape[1]], pixels)


def test_long_texts_wrap_and_wide_lines_shrink_and_low_ones_grow(tmp_path):
    short, long = tmp_path / "short.png", tmp_path / "long.png"
    draw_worst([(np.full((64, 400), 200, np.uint8), "word " * 20, "w0rd " * 20, 0.5)], short)
    draw_worst([(np.full((64, 4000), 200, np.uint8), "word " * 100, "w0rd " * 100, 0.5)], long)
    assert sheet(short).shape[1] == sheet(long).shape[1]
    draw_worst([(np.full((16, 100), 200, np.uint8), "word " * 20, "w0rd " * 20, 0.5)], tmp_path / "low.png")
    assert sheet(tmp_path / "low.png").shape == sheet(short).shape
    assert sheet(long).shape[0] > sheet(short).shape[0] + 2 * 44 - 50  # more rows of text, a lower picture
    assert marks(sheet(long)) == 5 * marks(sheet(short))  # nothing is clipped away
    for path in (short, long):
        assert (sheet(path)[:, -15:] == 255).all()  # nor reaches into the margin, but for the frame


def test_any_text_can_be_drawn(tmp_path):
    hostile = "$x_1 \\frac{ \u4e2d \u0633 q\u0303 x\u0363 \U0001f600 \x07"
    draw_worst([(draw_line("x"), hostile, "", 0.0), (draw_line("y"), "", hostile, 1.0)], tmp_path / "s.png")
    assert marks(sheet(tmp_path / "s.png"))
    assert (sheet(tmp_path / "s.png")[:, -15:] == 255).all()


@pytest.mark.parametrize("count", [0, MAX_LINES + 1])
def test_a_wrong_number_of_lines_is_refused(count, tmp_path):
    with pytest.raises(SpikeHTRError, match=f"1 to {MAX_LINES} lines, not {count}"):
        draw_worst([(np.zeros((8, 8), np.uint8), "x", "y", 0.5)] * count, tmp_path / "s.png")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(SpikeHTRError, match=r"s\.png: cannot be written"):
        draw_worst([(draw_line("x"), "x", "y", 0.5)], tmp_path / "nowhere" / "s.png")
