from contextlib import suppress
from math import isfinite

import pytest
from formats_help import kinds
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.data.formats.outlines import (
    BAND_OF_SPACING,
    LIMIT,
    LineOutline,
    band,
    band_height,
    bounds,
    parse_points,
    usable,
)
from spikehtr.data.samples import ImportReport

coordinates = st.floats(-1e5, 1e5) | st.integers(-100_000, 100_000).map(float)
SQUARE = ((0.0, 0.0), (10.0, 0.0), (10.0, 4.0), (0.0, 4.0))


@given(st.lists(st.tuples(coordinates, coordinates)), st.sampled_from([",", " ", ", "]))
def test_points_survive_being_written_and_parsed(points, comma):
    assert parse_points(" ".join(f"{x!r}{comma}{y!r}" for x, y in points)) == tuple(points)


@given(st.text(max_size=30))
def test_any_text_gives_points_or_a_value_error(text):
    points: tuple = ()
    with suppress(ValueError):
        points = parse_points(text)
    assert all(isfinite(x) and isfinite(y) for x, y in points)


@pytest.mark.parametrize("text", ["1,2 3", "a,b", "1,nan 2,3", "inf,1", "1;2"])
def test_wrong_points_say_what_is_wrong(text):
    with pytest.raises(ValueError, match=r"number"):
        parse_points(text)


def test_a_polygon_is_used_as_it_is():
    report = ImportReport()
    shape = LineOutline(SQUARE, (0, 0, 99, 99), ((0, 3), (9, 3)))
    assert usable(shape, 20, "x", report) == LineOutline(SQUARE, None, ((0, 3), (9, 3)))
    assert not report.problems


def test_a_polygon_equal_to_its_box_is_still_a_polygon():
    report = ImportReport()
    assert usable(LineOutline(SQUARE, bounds(SQUARE)), 20, "x", report) == LineOutline(SQUARE)
    assert not report.problems


@pytest.mark.parametrize("polygon", [(), ((1.0, 1.0), (5.0, 5.0), (1.0, 1.0)), ((0.0, 2.0), (5.0, 2.0), (9.0, 2.0))])
def test_without_a_usable_polygon_the_box_is_used_and_that_is_said(polygon):
    report = ImportReport()
    assert usable(LineOutline(polygon, (1, 2, 30, 20)), 20, "x", report) == LineOutline((), (1, 2, 30, 20))
    assert report.counts == {("warning", "box for outline"): 1}


def test_without_an_outline_a_band_lies_about_the_baseline_and_that_is_said():
    report = ImportReport()
    shape = usable(LineOutline(baseline=((10, 50), (90, 50))), 20, "x", report)
    assert shape is not None
    assert shape.polygon == ((10, 35), (90, 35), (90, 55), (10, 55))
    assert report.counts == {("warning", "band for outline"): 1}


@given(st.floats(0, 300), st.floats(0, 300), st.floats(0, 300), st.floats(0, 300))
def test_a_band_is_the_same_whichever_way_its_baseline_is_drawn(x0, y0, x1, y1):
    there, back = band(((x0, y0), (x1, y1)), 10), band(((x1, y1), (x0, y0)), 10)
    if abs(x0 - x1) > 1e-3:  # an upright one has no upper side
        assert bounds(there) == pytest.approx(bounds(back), abs=1e-6)


def test_a_one_point_baseline_is_left_out_where_there_is_an_outline():
    report = ImportReport()
    assert usable(LineOutline(SQUARE, None, ((3, 3), (3, 3))), 20, "x", report) == LineOutline(SQUARE)
    assert report.counts == {("warning", "one-point baseline"): 1}


@pytest.mark.parametrize(
    "shape",
    [
        LineOutline(),
        LineOutline(baseline=((3.0, 3.0),)),
        LineOutline(box=(5, 5, 5, 9)),
        LineOutline(((0, 0), (LIMIT * 2.0, 0), (5, 5))),
        LineOutline(baseline=((0, 0), (LIMIT * 2.0, 0))),
    ],
    ids=["nothing", "one point", "flat box", "far polygon", "far baseline"],
)
def test_nothing_usable_is_an_error_that_names_the_line(shape):
    report = ImportReport()
    assert usable(shape, 20, "p.xml, line l7", report) is None
    assert report.counts == {("error", "no outline"): 1}
    assert report.problems[0].where == "p.xml, line l7"


def test_coordinates_that_were_not_understood_are_a_warning_beside_the_fall_back():
    report = ImportReport()
    assert usable(LineOutline(box=(0, 0, 5, 5), faults=("its polygon is odd",)), 20, "x", report)
    assert kinds(report) == {"bad coordinates": 1, "box for outline": 1}


def test_a_band_is_as_high_as_the_median_line_or_a_fortieth_of_the_page():
    shapes = [LineOutline(SQUARE), LineOutline(box=(0, 0, 5, 10)), LineOutline(box=(0, 0, 5, 100)), LineOutline()]
    assert band_height(shapes, 1000) == 10
    assert band_height([LineOutline()], 1000) == 25


def level(y, left=0, right=100):
    return LineOutline(baseline=((left, y), (right, y)))


@given(st.integers(2, 9), st.floats(5, 500), st.floats(0.1, 10))
def test_where_no_line_has_an_outline_bands_follow_the_baselines_at_any_scale(count, apart, scale):
    shapes = [level(apart * line) for line in range(count)]
    page = apart * 10
    assert band_height(shapes, page) == pytest.approx(apart * BAND_OF_SPACING)
    larger = [shape.scaled(scale, scale) for shape in shapes]
    assert band_height(larger, page * scale) == pytest.approx(scale * apart * BAND_OF_SPACING)


def test_a_baseline_beside_another_is_not_below_it():
    columns = [level(y, left, left + 100) for left, first in ((0, 0), (200, 10)) for y in range(first, 400, 40)]
    assert band_height(columns, 1000) == 40 * BAND_OF_SPACING
    aside = [level(0), level(30, 90, 300), LineOutline(baseline=((1, 1),))]  # a tenth shared, and a single point
    assert band_height(aside, 1000) == 25


def test_baselines_that_tell_nothing_of_the_hand():
    assert band_height([level(200), level(1700)], 2000) == 250  # an eighth of the page at most
    twice = [level(y + again) for y in (100, 150, 200) for again in (0, 1)]  # each drawn twice
    assert band_height(twice, 1000) == pytest.approx(49.5 * BAND_OF_SPACING)
    assert band_height([level(100), level(1e8)], 1000) == 25  # off any page


def test_scaling_moves_every_part():
    shape = LineOutline(((1, 1),), (1, 2, 3, 4), ((5, 6),)).scaled(2, 3)
    assert shape == LineOutline(((2, 3),), (2, 6, 6, 12), ((10, 18),))
