from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pages_help import TEXTS, baselines_of, draw_page, simple_page
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLine
from spikehtr.pages.rule_segmenter import find_lines
from spikehtr.pages.score_lines import score
from spikehtr.pages.segmenters import segmenter


def lines_of(image: Image.Image) -> list[FoundLine]:
    return [line for region in find_lines(image) for line in region.lines]


def found_all(image: Image.Image, true: list[tuple[tuple[float, float], ...]], extra: int = 0) -> list[FoundLine]:
    lines = lines_of(image)
    result = score(true, [line.baseline for line in lines])
    assert result.whole == 1, result
    assert len(lines) <= len(true) + extra
    return lines


def test_lines_of_a_plain_page_are_found_whole_in_order_and_inside_it() -> None:
    image, true = simple_page()
    lines = found_all(image, true)
    assert [line.baseline[0][1] for line in lines] == sorted(line.baseline[0][1] for line in lines)
    for line in lines:
        assert all(0 <= x < image.width and 0 <= y < image.height for x, y in (*line.polygon, *line.baseline))


def test_outlines_hold_the_ink_of_their_line_and_little_of_others() -> None:
    image, _ = simple_page()
    ink = np.asarray(image) < 130
    owners = np.zeros(ink.shape, int)
    for line in lines_of(image):
        mask = Image.new("1", image.size)
        ImageDraw.Draw(mask).polygon(list(line.polygon), fill=1, outline=1)
        owners += np.asarray(mask)
    assert (owners[ink] > 0).mean() > 0.99
    assert (owners[ink] > 1).mean() < 0.05


def test_a_large_scan_gives_the_same_lines_in_its_own_pixels() -> None:
    image, true = simple_page(size=(1000, 1000))
    large = image.resize((3500, 3500), Image.Resampling.BICUBIC)
    found_all(large, [tuple((x * 3.5, y * 3.5) for x, y in line) for line in true])


@pytest.mark.parametrize("degrees", [-4.0, 3.0])
def test_tilted_pages(degrees: float) -> None:
    image, true = simple_page()
    turned = image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=225)
    angle, middle = np.radians(degrees), (500, 350)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    moved = [tuple(tuple(turn @ (np.array(point) - middle) + middle) for point in line) for line in true]
    found_all(turned, moved)  # type: ignore[arg-type]


def test_curved_lines_are_followed() -> None:
    image, true = simple_page()
    pixels, x = np.asarray(image), np.arange(1000)
    bend = 18 * np.sin(x / 1000 * np.pi)
    rows = np.clip(np.arange(700)[:, None] - bend[None].round().astype(int), 0, 699)
    curved = Image.fromarray(pixels[rows, x[None]])
    found_all(
        curved,
        [
            tuple((u, line[0][1] + float(np.interp(u, x, bend))) for u in range(100, int(line[1][0]), 20))
            for line in true
        ],
    )


def test_rulings_borders_and_shadows_are_no_lines() -> None:
    image, true = simple_page(5)
    pen = ImageDraw.Draw(image)
    for y in range(30, 700, 90):
        pen.line([(40, y + 2), (960, y)], fill=120, width=2)
    pen.line([(80, 0), (84, 700)], fill=120, width=2)
    pen.rectangle((0, 0, 1000, 25), fill=10)
    shadow = np.linspace(1, 0.5, 1000)[None]
    found_all(Image.fromarray((np.asarray(image) * shadow).astype(np.uint8)), true)


def test_faint_writing_beside_bold_writing() -> None:
    image, true = simple_page()
    pixels = np.asarray(image).astype(float)
    pixels[250:] = 225 - (225 - pixels[250:]) * 0.4
    found_all(Image.fromarray(pixels.astype(np.uint8)), true)


def test_a_shadow_at_the_end_of_a_line_is_no_part_of_it() -> None:
    image, true = simple_page()
    pixels = np.asarray(image).copy()
    for _, (right, base) in true:
        for x in range(round(right) + 110, round(right) + 160, 10):  # no farther than a word, and a third as dark
            pixels[round(base) - 16 : round(base), x : x + 4] = 165
    for line, (_, (right, _)) in zip(found_all(Image.fromarray(pixels), true), true, strict=True):
        assert line.baseline[-1][0] < right + 30


def test_columns_are_read_one_after_the_other() -> None:
    left = [(60.0, 100.0 + 80 * row, TEXTS[row % 4][:22]) for row in range(6)]
    right = [(560.0, 140.0 + 80 * row, TEXTS[row % 4][:22]) for row in range(6)]
    regions = find_lines(draw_page(left + right))
    assert len(regions) == 2
    for region, lines in zip(regions, (left, right), strict=True):
        assert score(baselines_of(lines), [line.baseline for line in region.lines]).whole == 1


def test_a_note_in_the_margin_is_not_merged_with_the_text() -> None:
    text = [(320.0, 100.0 + 80 * row, TEXTS[row % 4]) for row in range(6)]
    note = [(30.0, 225.0 + 62 * row, "see here") for row in range(3)]
    regions = find_lines(draw_page(text + note))
    assert sorted(region.kind for region in regions) == ["marginalia", "paragraph"]
    for region in regions:
        true = baselines_of(note if region.kind == "marginalia" else text)
        assert score(true, [line.baseline for line in region.lines]).whole == 1


def test_numbers_before_lines_stay_with_them() -> None:
    text = [(220.0, 100.0 + 90 * row, TEXTS[row % 4]) for row in range(5)]
    numbers = [(60.0, 100.0 + 90 * row, f"{row + 11}") for row in range(5)]
    regions = find_lines(draw_page(text + numbers))
    assert len(regions) == 1
    order = [line.baseline[0] for line in regions[0].lines]
    rows = [round((y - 100) / 90) for _, y in order]
    assert rows == sorted(rows)  # row by row, whether or not number and text are one line


@pytest.mark.parametrize(
    "image",
    [
        Image.new("L", (600, 400), 240),
        Image.new("L", (600, 400), 0),
        Image.new("L", (5, 900), 128),
        Image.new("L", (1, 1), 0),
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (400, 500), dtype=np.uint8)),
    ],
    ids=["white", "black", "narrow", "dot", "noise"],
)
def test_pages_without_writing_have_no_lines(image: Image.Image) -> None:
    assert lines_of(image) == []


def test_same_page_same_lines() -> None:
    image, _ = simple_page()
    assert find_lines(image) == find_lines(image)


def test_unknown_segmenter() -> None:
    with pytest.raises(SpikeHTRError, match="network, rules, kraken"):
        segmenter("crystal ball")
