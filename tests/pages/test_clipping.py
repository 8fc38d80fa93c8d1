from __future__ import annotations

import itertools

import cv2
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.data.formats.outlines import Points, bounds
from spikehtr.results.clipping import clip_baseline, clip_box, clip_polygon, is_simple

WIDTH, HEIGHT = 60, 40
COORDINATES = st.tuples(st.integers(-40, 100), st.integers(-40, 80)).map(lambda pair: (float(pair[0]), float(pair[1])))


def on_the_page(points: Points) -> bool:
    return all(0 <= x <= WIDTH - 1 and 0 <= y <= HEIGHT - 1 for x, y in points)


def depth(points: Points, x: int, y: int) -> float:
    """How far inside a polygon a place is; below 0: outside."""
    return cv2.pointPolygonTest(np.array(points, np.float32), (x, y), measureDist=True)


@st.composite
def outlines(draw: st.DrawFn) -> Points:
    """Outlines as lines have them: an upper edge from left to right, a lower edge back, never crossing."""
    xs = sorted(draw(st.lists(st.integers(-40, 100), min_size=2, max_size=8, unique=True)))
    tops = [draw(st.integers(-40, 70)) for _ in xs]
    upper = [(float(x), float(y)) for x, y in zip(xs, tops, strict=True)]
    lower = [(x, y + draw(st.integers(2, 20))) for x, y in upper]
    return (*upper, *reversed(lower))


@given(outlines())
def test_a_clipped_outline_is_valid_and_holds_all_that_was_on_the_page(points: Points) -> None:
    clipped = clip_polygon(points, WIDTH, HEIGHT)
    assert on_the_page(clipped)
    assert len(set(clipped)) >= 3
    left, top, right, bottom = bounds(clipped)
    assert right > left
    assert bottom > top
    if is_simple(points):
        assert is_simple(clipped)
    for x in range(0, WIDTH, 7):
        for y in range(0, HEIGHT, 6):
            assert depth(points, x, y) < 0.01 or depth(clipped, x, y) > -0.01


@given(st.lists(COORDINATES, min_size=3, max_size=10))
def test_any_polygon_comes_out_on_the_page_with_an_area(points: list[tuple[float, float]]) -> None:
    clipped = clip_polygon(tuple(points), WIDTH, HEIGHT)
    assert on_the_page(clipped)
    if clipped != tuple(points):
        left, top, right, bottom = bounds(clipped)
        assert right > left
        assert bottom > top


@given(outlines())
def test_what_lies_on_the_page_stays_as_it_is(points: Points) -> None:
    if on_the_page(points):
        assert clip_polygon(points, WIDTH, HEIGHT) == points
        assert clip_baseline(points, WIDTH, HEIGHT) == points


@given(st.lists(COORDINATES, min_size=2, max_size=8))
def test_a_baseline_ends_on_the_page_and_keeps_its_columns(points: list[tuple[float, float]]) -> None:
    points = [(x, y) for x, y in zip(sorted(x for x, _ in points), [y for _, y in points], strict=True)]
    clipped = clip_baseline(tuple(points), WIDTH, HEIGHT)
    assert clipped
    assert on_the_page(clipped)
    left, right = max(points[0][0], 0.0), min(points[-1][0], WIDTH - 1.0)
    if left < right:
        assert (clipped[0][0], clipped[-1][0]) == (left, right) or np.allclose(
            (clipped[0][0], clipped[-1][0]), (left, right)
        )
        assert all(a[0] <= b[0] + 1e-6 for a, b in itertools.pairwise(clipped))


def test_a_baseline_is_cut_where_it_crosses_the_edge_and_runs_along_the_bottom() -> None:
    assert clip_baseline(((-10.0, 0.0), (10.0, 20.0)), WIDTH, HEIGHT) == ((0.0, 10.0), (10.0, 20.0))
    assert clip_baseline(((10.0, 30.0), (30.0, 60.0)), WIDTH, HEIGHT) == ((10.0, 30.0), (30.0, 39.0))


def test_an_outline_that_leaves_the_page_twice_becomes_one_that_does_not_touch_itself() -> None:
    comb = ((10.0, -20.0), (50.0, -20.0), (50.0, 20.0), (40.0, 20.0), (30.0, -10.0), (20.0, 20.0), (10.0, 20.0))
    assert is_simple(comb)
    clipped = clip_polygon(comb, WIDTH, HEIGHT)
    assert is_simple(clipped)
    assert bounds(clipped) == (10.0, 0.0, 50.0, 20.0)


@given(COORDINATES, COORDINATES)
def test_a_box_is_a_pixel_large_at_the_least(one: tuple[float, float], other: tuple[float, float]) -> None:
    left, right = sorted((one[0], other[0]))
    top, bottom = sorted((one[1] + 0.4, other[1]))
    clipped = clip_box((left, top, right, bottom), WIDTH, HEIGHT)
    assert on_the_page(((clipped[0], clipped[1]), (clipped[2], clipped[3])))
    assert clipped[2] - clipped[0] >= 1
    assert clipped[3] - clipped[1] >= 1
