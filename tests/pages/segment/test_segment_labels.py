"""Labels of pages: heights from outlines, drawn maps, and lines found again in maps drawn without fault."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spikehtr.pages.score_lines import score
from spikehtr.pages.segment.decode_maps import Probabilities, decode
from spikehtr.pages.segment.draw_labels import BASELINE, END, OUTSIDE, START, Targets, draw
from spikehtr.pages.segment.labels import LineLabel, PageLabels, line_label
from spikehtr.pages.segment.page_parts import Bend, Distortion, cut, source_of


def line(x0: float, y0: float, x1: float, y1: float, above: float = 18.0, below: float = 8.0) -> LineLabel:
    number = max(2, int(np.hypot(x1 - x0, y1 - y0) / 15))
    points = np.linspace((x0, y0), (x1, y1), number)
    return LineLabel(points, np.full(number, above), np.full(number, below), 0)


def page(*lines: LineLabel) -> PageLabels:
    return PageLabels(lines, ())


def maps_of(targets: Targets) -> Probabilities:
    """Maps as a network without fault would give them: a little blurred."""
    fine = np.stack([(targets.fine >> bit) & 1 for bit in range(4)]).astype(np.float32)
    fine = np.stack([cv2.GaussianBlur(one, (5, 5), 1.0) for one in fine])
    turn = np.stack([targets.turn == k for k in range(4)]).astype(np.float32)
    return Probabilities(fine, (targets.turn != OUTSIDE).astype(np.float32), np.maximum(targets.heights, 6.0), turn)


def found_again(labels: PageLabels, height: int = 512, width: int = 640) -> list[list[tuple[float, float]]]:
    lines = decode(maps_of(draw(labels, lambda points: points, height, width)))
    return [[(float(x), float(y)) for x, y in one.points] for one in lines]


def test_heights_are_those_of_the_outline() -> None:
    label = line_label([(10, 100), (210, 100)], [(5, 80), (215, 80), (215, 107), (5, 107)])
    assert label is not None
    assert label.above == pytest.approx(20, abs=0.5)
    assert label.below == pytest.approx(7, abs=0.5)


def test_a_baseline_drawn_from_right_to_left_is_turned() -> None:
    label = line_label([(210, 100), (10, 100)], [(5, 80), (215, 80), (215, 107), (5, 107)])
    assert label is not None
    assert label.points[0, 0] == 10
    assert label.above == pytest.approx(20, abs=0.5)


def test_a_baseline_without_length_is_no_line() -> None:
    assert line_label([(10, 100), (10, 100)], [(5, 80), (215, 80), (215, 107)]) is None


def test_targets_hold_a_line_with_its_ends_heights_and_direction() -> None:
    targets = draw(page(line(100, 200, 400, 200)), lambda points: points, 512, 640)
    assert targets.fine[100, 125] & BASELINE
    assert targets.fine[100, 50] & START
    assert targets.fine[100, 200] & END
    assert not targets.fine[110, 125]
    assert targets.heights[:, 48, 60] == pytest.approx([18, 8], abs=0.5)
    assert targets.turn[48, 60] == 0
    assert targets.turn[10, 10] == OUTSIDE


@pytest.mark.parametrize(("end", "turn"), [((300, 300), 0), ((100, 500), 1), ((100, 100), 3)])
def test_the_direction_of_a_line_is_in_quarter_turns_clockwise(end: tuple[int, int], turn: int) -> None:
    targets = draw(page(line(100, 300, *end)), lambda points: points, 512, 640)
    assert set(np.unique(targets.turn)) == {turn, OUTSIDE}


@settings(max_examples=25, deadline=None)
@given(
    tilt=st.floats(-0.26, 0.26),
    pitch=st.integers(26, 60),
    columns=st.integers(1, 2),
    gutter=st.integers(20, 80),
)
def test_lines_drawn_without_fault_are_found_whole(tilt: float, pitch: int, columns: int, gutter: int) -> None:
    width = 560 // columns - gutter
    lines = [
        line(x, y + tilt * (x - 320), x + width, y + tilt * (x + width - 320))
        for y in range(110, 420, pitch)
        for x in range(40, 560, 560 // columns)
        if columns * (width + gutter) <= 640 and x + width < 636
    ]
    found = found_again(page(*lines))
    result = score([one.points.tolist() for one in lines], found)
    assert len(found) == len(lines)
    assert result.whole == 1
    assert result.recall > 0.97


def test_a_line_that_runs_down_the_page_is_found_in_its_direction() -> None:
    for y0, y1 in ((100, 400), (400, 100)):
        (found,) = found_again(page(line(300, y0, 300, y1)))
        assert found[0] == pytest.approx((300, y0), abs=8)
        assert found[-1] == pytest.approx((300, y1), abs=8)


def test_an_empty_page_has_no_lines() -> None:
    assert found_again(page()) == []


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_bend_is_undone_exactly(seed: int) -> None:
    random = np.random.default_rng(seed)
    bend = Bend(random.uniform(0, 40, 2), random.uniform(500, 2000, 2), random.uniform(0, 6, 2))
    points = random.uniform(0, 2000, (50, 2))
    assert bend.backward(bend.forward(points)) == pytest.approx(points, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_targets_follow_the_image_through_every_distortion(seed: int) -> None:
    """Where a baseline is drawn, the part is as dark as the page's black line there."""
    image = np.full((800, 700), 255, np.uint8)
    lines = [line(80, y, 600, y + 20) for y in range(100, 700, 70)]
    for one in lines:
        cv2.polylines(image, [one.points.round().astype(np.int32)], False, 0, 9)
    random = np.random.default_rng(seed)
    how = Distortion(rules=0.0, blank=0.0, overview=0.0, heights=(24.0, 40.0))
    part = cut(source_of(image, page(*lines)), 320, random, how)
    drawn = part.targets.fine & BASELINE > 0
    assert drawn.sum() > 50
    inner = cv2.erode(drawn.astype(np.uint8), np.ones((2, 2), np.uint8)) > 0
    assert np.median(part.image[::2, ::2][inner | drawn]) < 128
    (direction,) = np.unique(part.targets.turn[part.targets.turn != OUTSIDE]).tolist()
    assert part.upright == (direction != 2)


def test_blank_paper_has_nothing_to_find() -> None:
    one = line(80, 300, 600, 300)
    source = source_of(np.full((600, 700), 255, np.uint8), page(one))
    part = cut(source, 64, np.random.default_rng(0), Distortion(blank=1.0))
    assert part.image.shape == (64, 64)
    assert not part.targets.fine.any()
    assert (part.targets.turn == OUTSIDE).all()
