"""Lines made level: what sloped is level after, what is level stays, and nothing else about a line changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageDraw, ImageFont

from conftest import LINES, real_lines
from spikehtr.assets import FONTS
from spikehtr.config import Config
from spikehtr.data.check import check_data
from spikehtr.data.compiling import compile_store, open_lines
from spikehtr.data.geometry import fit_line
from spikehtr.data.straightening import grey_levels, straighten
from spikehtr.errors import SpikeHTRError


def written(text="un pont de bois sur la rivière", paper=230, ink=40, size=36, font=None):
    """A level line, tight around its ink."""
    font = ImageFont.truetype(str(font or sorted(FONTS.glob("*.ttf"))[0]), size)
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (right - left + 8, bottom - top + 4), paper)
    ImageDraw.Draw(image).text((4 - left, 2 - top), text, ink, font)
    return np.asarray(image)


def sloped(line, sinks, paper=230):
    """The line with its right end so many pixels lower than its left one, in a box that holds it."""
    height, width = line.shape
    tall = np.full((height + abs(sinks), width), paper, np.uint8)
    for x in range(width):
        y = round(sinks * x / width) + max(-sinks, 0)
        tall[y : y + height, x] = line[:, x]
    return tall


def ink_rows(line):
    return np.flatnonzero((line < 150).any(axis=1))


@pytest.mark.parametrize("sinks", [-40, -12, 0, 9, 30])
def test_a_slope_is_taken_out_and_the_line_fills_its_box(sinks):
    line = written()
    level = straighten(sloped(line, sinks))
    assert level.shape[1] == line.shape[1]
    assert abs(len(ink_rows(level)) - len(ink_rows(line))) <= 4
    assert len(ink_rows(level)) >= 0.8 * len(level)
    columns = ink_columns(level), ink_columns(line)
    assert np.abs(columns[0] - columns[1]).max() <= 1  # no letter has moved along the line


def ink_columns(line):
    return np.flatnonzero((line < 150).any(axis=0))[[0, -1]]


def test_a_level_line_keeps_its_pixels():
    line = written()
    padded = np.pad(line, ((20, 11), (0, 0)), constant_values=230)
    level = straighten(padded)
    start = next(y for y in range(40) if np.array_equal(padded[y : y + len(level)], level))
    assert start > 0
    assert len(ink_rows(level)) >= len(ink_rows(line)) - 1
    assert len(level) <= 1.3 * len(line)


def test_sizes_do_not_matter():
    """The same line in more pixels is sheared by as much."""
    line = sloped(written(size=60), 50)
    big = np.asarray(Image.fromarray(line).resize((line.shape[1] * 2, line.shape[0] * 2), Image.Resampling.BICUBIC))
    assert len(straighten(big)) / len(big) == pytest.approx(len(straighten(line)) / len(line), abs=0.05)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_blank_line_stays(level):
    blank = np.full((40, 300), level, np.uint8)
    assert np.array_equal(straighten(blank), blank)


def test_a_dash_does_not_fill_the_line():
    line = np.full((60, 200), 240, np.uint8)
    line[28:32, 80:120] = 20
    assert len(straighten(line)) >= 0.4 * 60


@pytest.mark.parametrize("accent", ["é", "É", "à"])
@pytest.mark.parametrize("font", sorted(FONTS.glob("*.ttf")), ids=lambda font: font.stem)
def test_the_one_accent_of_a_long_line_is_kept(accent, font):
    line = written("nous avons une maman " * 5 + accent, font=font)
    for sinks in (0, 25):
        level = straighten(sloped(line, sinks))
        assert (level < 150).sum() >= 0.97 * (line < 150).sum()
        last = slice(-60, None)  # the letter with the accent
        assert (level[:, last] < 150).sum() >= 0.9 * (line[:, last] < 150).sum()
        assert len(ink_rows(level[:, last])) >= len(ink_rows(line[:, last])) - 2


@pytest.mark.parametrize("height", [1, 2, 3, 5, 8])
def test_very_low_lines(height):
    line = np.full((height, 120), 240, np.uint8)
    line[height // 2, ::3] = 10
    assert straighten(line).shape[1] == 120


def test_a_word_is_never_sheared():
    word = sloped(written("de"), 12)
    level = straighten(word)
    assert any(np.array_equal(word[y : y + len(level)], level) for y in range(len(word)))


def test_very_wide_images_are_left_alone():
    wide = np.tile(written(), (1, 200))[:, : 1 << 15]
    assert np.array_equal(straighten(wide), wide)


@given(
    arrays(np.uint8, st.tuples(st.integers(1, 90), st.integers(1, 300)), elements=st.sampled_from([0, 30, 200, 255]))
)
def test_any_picture_comes_back_as_wide_and_not_empty(line):
    level = straighten(line)
    assert level.dtype == np.uint8
    assert level.shape[1] == line.shape[1]
    assert 1 <= len(level) <= 3 * len(line) + 2


@pytest.mark.skipif(not LINES.is_dir(), reason="the shared lines are not here")
def test_real_lines_of_a_climbing_hand_become_larger():
    before, after = [], []
    for image, _ in real_lines("timeus", "validation", 60):
        gray = np.asarray(image.convert("L"))
        before.append(len(gray))
        after.append(len(straighten(gray)))
    assert np.median(np.divide(before, after)) > 1.2


def folder_of(place, image):
    place.mkdir()
    for number in range(3):
        Image.fromarray(image).save(place / f"{number}.png")
        (place / f"{number}.gt.txt").write_text("un pont de bois", encoding="utf-8")
    return place


@pytest.mark.parametrize("level", [False, True])
def test_a_check_sees_lines_as_training_does(tmp_path, monkeypatch, level):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "d").mkdir()
    Image.fromarray(sloped(written(), 40)).save(tmp_path / "d" / "a.png")
    (tmp_path / "d" / "a.gt.txt").write_text("un pont")
    config = Config().with_overrides({"data.straighten": level, "data.max_width": 4096})
    store = open_lines([tmp_path / "d"], config.model.height, config.data.max_width, straighten=level)
    (split,) = check_data([tmp_path / "d"], config).splits.values()
    assert split.widths == list(store.widths)


def test_stores_hold_what_the_reader_sees_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    line = sloped(written(), 30)
    source = folder_of(tmp_path / "src", line)
    plain, level = open_lines([source]), open_lines([source], straighten=True)
    assert (plain.straightened, level.straightened) == (False, True)
    assert np.array_equal(level.line(0), fit_line(Image.fromarray(line), 64, 8192, level=True))
    assert np.array_equal(plain.line(0), fit_line(Image.fromarray(line), 64, 8192))
    assert level.widths[0] > 1.3 * plain.widths[0]
    store, _ = compile_store([source], tmp_path / "level.arrow", straighten=True)
    assert open_lines([store.path], straighten=True).straightened
    with pytest.raises(SpikeHTRError, match=r"holds straightened lines: set data\.straighten=true"):
        open_lines([store.path])
    plain_store, _ = compile_store([source], tmp_path / "plain.arrow")
    made = open_lines([plain_store.path], straighten=True)  # in the cache, from the store's 64 rows
    assert made.straightened
    assert int(made.widths[0]) == pytest.approx(int(store.widths[0]), rel=0.1)
    joined, _ = compile_store([store.path, plain_store.path], tmp_path / "joined.arrow", straighten=True)
    assert np.array_equal(joined.line(0), store.line(0))  # not a second time
    assert int(joined.widths[3]) == pytest.approx(int(store.widths[0]), rel=0.1)  # from 64 rows, not from the image
    with pytest.raises(SpikeHTRError, match=r"straightened lines: .* \(compile: --straighten\)"):
        compile_store([store.path, plain_store.path], tmp_path / "other.arrow")


@given(arrays(np.uint8, st.tuples(st.integers(0, 9), st.integers(0, 9))), st.floats(0.01, 0.99))
def test_grey_levels_are_those_of_the_sorted_pixels(gray, share):
    (level,) = grey_levels(gray, share)
    assert np.count_nonzero(gray <= level) >= share * gray.size
    assert not level or np.count_nonzero(gray < level) < share * gray.size


def test_grey_levels_of_more_pixels_than_the_library_counts_exactly():
    gray = np.full((1 << 12, 1 << 12), 200, np.uint8)
    gray[0, 0] = 7
    assert grey_levels(gray, 0.5) == [200]
    assert grey_levels(gray, 1 / gray.size) == [7]
