import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from conftest import draw_line
from spikehtr.config import AugmentConfig
from spikehtr.data.sheet import MAX_LINES, draw_sheet, printable
from spikehtr.errors import SpikeHTRError

TEXTS = ("Ink first,", "edges later: spikes read.", "a")


def lines(texts=TEXTS):
    return [(draw_line(text), text) for text in texts]


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("L"))


def test_a_row_for_each_line_and_a_column_for_each_version(tmp_path):
    sizes = {}
    for rows in (1, 3):
        for versions in (0, 2):
            path = tmp_path / f"{rows}-{versions}.png"
            draw_sheet(lines(TEXTS[1:2] * rows), AugmentConfig(stretch=0.0), path, versions)
            sizes[rows, versions] = pixels(path).shape
    (tall, wide), (three, _), (_, wider) = sizes[1, 0], sizes[3, 0], sizes[1, 2]
    width = draw_line(TEXTS[1]).shape[1]
    assert wider - wide == pytest.approx(2 * (width + 12), abs=2)
    assert (three - tall) % 2 == 0
    assert three - tall >= 2 * (32 + 20)  # a line of 32 rows and its title
    assert sizes[3, 2] == (three, wider)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_lines_are_drawn_and_the_versions_differ(tmp_path):
    path = tmp_path / "sheet.png"
    draw_sheet(lines(TEXTS[1:2]), AugmentConfig(probability=1.0, invert=1.0, stretch=0.0), path, 1)
    sheet = pixels(path)
    left, right = sheet[:, : sheet.shape[1] // 2], sheet[:, sheet.shape[1] // 2 :]
    assert (left < 100).mean() < 0.1  # ink
    assert (right < 100).mean() > 0.2  # inverted: paper


def test_the_seed_decides(tmp_path):
    made = []
    for seed in (0, 0, 1):
        draw_sheet(lines(), AugmentConfig(), tmp_path / "sheet.png", seed=seed)
        made.append(pixels(tmp_path / "sheet.png"))
    assert np.array_equal(made[0], made[1])
    assert made[0].shape != made[2].shape or not np.array_equal(made[0], made[2])


def test_any_transcript_can_be_drawn(tmp_path):
    hostile = "$x_1^ 100 % \\frac{ \u4e2d\u6587 \u0633\u0644\u0627\u0645 \U0001f600 \x07\n" + "very long " * 50
    path = tmp_path / "sheet.png"
    draw_sheet([(draw_line("short"), hostile), (draw_line("a line without text"), "")], AugmentConfig(), path)
    assert pixels(path).shape[0] > 64


@given(st.text(max_size=80), st.integers(1, 40))
@settings(max_examples=30)
def test_titles_are_short_and_on_one_line(text, longest):
    title = printable(text, longest)
    assert len(title) <= max(longest, 2)
    assert "\n" not in title
    assert bool(title) == bool(text.split())


def test_ordinary_titles_are_left_alone_and_missing_glyphs_shown_as_boxes():
    assert printable("Été: $5", 60) == "Été: $5"
    assert printable("\u4e2d!", 60) == "\u25a1!"
    assert printable("one two three", 9) == "one two…"


def test_very_wide_lines_are_drawn_smaller(tmp_path):
    path = tmp_path / "sheet.png"
    draw_sheet([(np.full((64, 6000), 200, np.uint8), "wide")], AugmentConfig(), path, versions=1)
    assert pixels(path).shape[1] < 2000


@pytest.mark.parametrize("count", [0, MAX_LINES + 1])
def test_a_wrong_number_of_lines_is_refused(count, tmp_path):
    with pytest.raises(SpikeHTRError, match=f"1 to {MAX_LINES} lines, not {count}"):
        draw_sheet([(np.zeros((8, 8), np.uint8), "x")] * count, AugmentConfig(), tmp_path / "sheet.png")


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(SpikeHTRError, match=r"sheet\.png: cannot be written"):
        draw_sheet(lines(), AugmentConfig(), tmp_path / "nowhere" / "sheet.png")
