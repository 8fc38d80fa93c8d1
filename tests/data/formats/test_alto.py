import pytest
from formats_help import draw, gather, kinds, write

from spikehtr.data.formats import alto_xml as reader

BOX = 'HPOS="10" VPOS="20" WIDTH="80" HEIGHT="20"'
SHAPE = '<Shape><Polygon POINTS="10 20 90 20 90 40 10 40"/></Shape>'
POLYGON = ((10.0, 20.0), (90.0, 20.0), (90.0, 40.0), (10.0, 40.0))


def line(attributes: str = BOX, inside: str = SHAPE + '<String CONTENT="Hello"/>', name: str = "l1") -> str:
    return f'<TextLine ID="{name}" {attributes}>{inside}</TextLine>'


def alto(*lines, namespace="http://www.loc.gov/standards/alto/ns-v4#", unit="pixel", size='WIDTH="100" HEIGHT="200"'):
    return (
        f'<alto xmlns="{namespace}"><Description><MeasurementUnit>{unit}</MeasurementUnit>'
        "<sourceImageInformation><fileName>p.png</fileName></sourceImageInformation></Description>"
        f"<Layout><Page {size}><PrintSpace><TextBlock>{''.join(lines)}</TextBlock></PrintSpace></Page></Layout></alto>"
    )


def read(folder, *lines, **options):
    draw(folder / "p.png", (100, 200))
    return gather(reader.read, write(folder / "p.xml", alto(*lines, **options)))


@pytest.mark.parametrize("namespace", ["", *(f"http://www.loc.gov/standards/alto/ns-v{v}#" for v in (2, 3, 4))])
def test_every_version_is_read(tmp_path, namespace):
    (sample,), report = read(tmp_path, line(BOX + ' BASELINE="10 35 90 36"'), namespace=namespace)
    assert (sample.id, sample.text, sample.polygon) == ("p/l1", "Hello", POLYGON)
    assert sample.baseline == ((10.0, 35.0), (90.0, 36.0))
    assert not report.counts


@pytest.mark.parametrize("baseline", ["10 35 90 36", "10,35 90,36"])
@pytest.mark.parametrize("points", ["10 20 90 20 90 40 10 40", "10,20 90,20 90,40 10,40"])
def test_both_ways_of_writing_points_are_read(tmp_path, points, baseline):
    inside = f'<Shape><Polygon POINTS="{points}"/></Shape><String CONTENT="x"/>'
    (sample,), _ = read(tmp_path, line(f'{BOX} BASELINE="{baseline}"', inside))
    assert (sample.polygon, sample.baseline) == (POLYGON, ((10.0, 35.0), (90.0, 36.0)))


def test_a_baseline_of_one_number_runs_level_through_the_box(tmp_path):
    (sample,), _ = read(tmp_path, line(BOX + ' BASELINE="36.5"'))
    assert sample.baseline == ((10.0, 36.5), (90.0, 36.5))


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ('<String CONTENT="one"/><String CONTENT="two"/>', "one two"),
        ('<String CONTENT="one"/><SP/><String CONTENT="two"/><String CONTENT="!"/>', "one two!"),
        ('<String CONTENT="hy"/><HYP CONTENT="-"/>', "hy-"),
        ('<String CONTENT="one"/><SP/><String CONTENT="hy"/><HYP CONTENT="¬"/>', "one hy¬"),
    ],
)
def test_spaces_and_hyphens_are_respected(tmp_path, inside, text):
    (sample,), _ = read(tmp_path, line(inside=SHAPE + inside))
    assert sample.text == text


def test_without_a_polygon_the_box_is_used(tmp_path):
    (sample,), report = read(tmp_path, line(inside='<String CONTENT="x"/>'))
    assert (sample.polygon, sample.box) == (None, (10.0, 20.0, 90.0, 40.0))
    assert report.counts == {("warning", "box for outline"): 1}


def test_without_polygon_and_box_a_band_is_used(tmp_path):
    (sample,), report = read(tmp_path, line('BASELINE="0 100 100 100"', '<String CONTENT="x"/>'))
    assert sample.polygon == ((0, 96.25), (100, 96.25), (100, 101.25), (0, 101.25))
    assert report.counts == {("warning", "band for outline"): 1}


def test_no_place_at_all_is_an_error(tmp_path):
    samples, report = read(tmp_path, line('BASELINE="5 5"', '<String CONTENT="x"/>'))
    assert not samples
    assert kinds(report) == {"no outline": 1}


def test_lines_without_strings_are_counted(tmp_path):
    samples, report = read(tmp_path, line(inside=SHAPE), line(name="l2"))
    assert [sample.id for sample in samples] == ["p/l2"]
    assert report.counts == {("warning", "no text"): 1}


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_other_units_are_scaled_by_the_page_size(tmp_path, unit):
    (sample,), report = read(tmp_path, line(), unit=unit, size='WIDTH="1000" HEIGHT="2000"')
    assert sample.polygon == ((1, 2), (9, 2), (9, 4), (1, 4))
    assert not report.counts


def test_other_units_without_a_page_size_are_an_error(tmp_path):
    samples, report = read(tmp_path, line(), unit="mm10", size="")
    assert not samples
    assert report.counts == {("error", "unknown unit"): 1}
    assert "mm10" in report.problems[0].message


def test_lines_of_a_second_page_are_reported_one_by_one(tmp_path):
    two = alto(line()).replace("</Page>", f"</Page><Page>{line(name='l2')}</Page>")
    draw(tmp_path / "p.png", (100, 200))
    samples, report = gather(reader.read, write(tmp_path / "p.xml", two))
    assert [sample.id for sample in samples] == ["p/l1"]
    assert report.counts[("error", "no outline")] == 1
    assert "second page" in str(report.problems)


def test_an_empty_layout_is_mentioned(tmp_path):
    samples, report = gather(reader.read, write(tmp_path / "p.xml", "<alto/>"))
    assert not samples
    assert report.counts == {("warning", "no lines"): 1}


def test_a_page_is_called_the_same_whatever_the_format_of_its_file(tmp_path):
    draw(tmp_path / "p.png", (100, 200))
    content = alto(line()).replace("p.png", "")  # found by the name of the file
    (sample,), report = gather(reader.read, write(tmp_path / "p.alto.xml", content))
    assert (sample.id, sample.page, sample.image) == ("p/l1", "p", tmp_path / "p.png")
    assert not report.counts
