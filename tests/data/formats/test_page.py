from pathlib import Path

import pytest
from formats_help import POLYGON, draw, gather, kinds, page, page_line, page_xml, write

from spikehtr.data.formats import page_xml as reader
from spikehtr.data.images import line_image

SQUARE = ((10.0, 10.0), (90.0, 10.0), (90.0, 30.0), (10.0, 30.0))


def read_one(folder: Path, *lines: str, **options: object):
    samples, report = gather(reader.read, page(folder, *lines, **options))
    return samples, report


def test_a_line_has_its_text_polygon_baseline_and_names(tmp_path):
    folder = tmp_path / "register"
    file = page(folder, page_line(more='<Baseline points="10,25 90,26"/>'))
    (sample,), report = gather(reader.read, folder)
    assert (sample.id, sample.text, sample.document, sample.page) == ("p/l1", "Hello", "p", "p")
    assert (sample.polygon, sample.box) == (SQUARE, None)
    assert sample.baseline == ((10.0, 25.0), (90.0, 26.0))
    assert sample.image == folder / "p.png"
    assert sample.origin == f"{file}, line l1"
    assert line_image(sample).size == (83, 23)  # a pixel more all round
    assert not report.counts


@pytest.mark.parametrize("year", ["2010-03-19", "2013-07-15", "2016-07-15", "2019-07-15"])
def test_every_namespace_is_read(tmp_path, year):
    namespace = f"http://schema.primaresearch.org/PAGE/gts/pagecontent/{year}"
    samples, _ = read_one(tmp_path, page_line(), namespace=namespace)
    assert [sample.text for sample in samples] == ["Hello"]


def test_points_of_the_old_kind_are_read(tmp_path):
    points = "".join(f'<Point x="{x:.0f}" y="{y:.0f}"/>' for x, y in SQUARE)
    samples, report = read_one(tmp_path, page_line(coords=None, more=f"<Coords>{points}</Coords>"))
    assert samples[0].polygon == SQUARE
    assert not report.counts


def test_the_transcript_of_the_lowest_index_is_taken(tmp_path):
    texts = "".join(
        f'<TextEquiv index="{i}"><Unicode>{t}</Unicode></TextEquiv>' for i, t in [(2, "c"), (0, "a"), (1, "b")]
    )
    samples, _ = read_one(tmp_path, page_line(text=None, more=texts))
    assert samples[0].text == "a"


def test_the_words_make_the_text_and_the_box_of_a_line_that_has_none_itself(tmp_path):
    word = '<Word><Coords points="{}"/><TextEquiv><Unicode>{}</Unicode></TextEquiv></Word>'
    words = word.format("10,10 20,10 20,20", "two") + word.format("30,5 50,10 50,25", "words")
    samples, report = read_one(tmp_path, page_line(text=None, coords=None, more=words))
    assert (samples[0].text, samples[0].box, samples[0].polygon) == ("two words", (10.0, 5.0, 50.0, 25.0), None)
    assert kinds(report) == {"box for outline": 1}


def test_a_line_that_someone_emptied_does_not_come_back_by_its_words(tmp_path):
    word = '<Word><Coords points="1,1 9,1 9,9"/><TextEquiv><Unicode>misread</Unicode></TextEquiv></Word>'
    emptied = page_line("l2", text=None, more=f"{word}<TextEquiv><Unicode></Unicode></TextEquiv>")
    samples, report = read_one(tmp_path, page_line("l1", "kept"), emptied)
    assert [sample.text for sample in samples] == ["kept"]
    assert kinds(report) == {"no text": 1}


def test_lines_of_nested_regions_come_in_document_order(tmp_path):
    nested = f'<TextRegion id="r2">{page_line("b", "second")}</TextRegion>'
    samples, _ = read_one(tmp_path, page_line("a", "first"), nested, page_line("c", "third"))
    assert [sample.text for sample in samples] == ["first", "second", "third"]


def test_a_missing_polygon_becomes_a_band_as_high_as_the_pages_lines(tmp_path):
    bare = page_line("l2", coords=None, more='<Baseline points="0,100 100,100"/>')
    samples, report = read_one(tmp_path, page_line(), bare)
    assert samples[1].polygon == ((0, 85), (100, 85), (100, 105), (0, 105))
    assert kinds(report) == {"band for outline": 1}
    assert "line l2" in report.problems[0].where


def test_a_one_point_baseline_costs_a_warning_not_the_line(tmp_path):
    samples, report = read_one(tmp_path, page_line(more='<Baseline points="10,20"/>'))
    assert len(samples) == 1
    assert samples[0].baseline is None
    assert report.counts == {("warning", "one-point baseline"): 1}


def test_a_page_without_coordinates_loses_its_lines_by_name(tmp_path):
    samples, report = read_one(tmp_path, page_line("l1", coords=None), page_line("l2", coords=""))
    assert not samples
    assert report.counts == {("error", "no outline"): 2}


def test_coordinates_that_are_no_numbers_are_reported(tmp_path):
    samples, report = read_one(tmp_path, page_line(coords="1,2 x,y"))
    assert not samples
    assert kinds(report) == {"bad coordinates": 1, "no outline": 1}


def test_lines_without_text_are_left_out_and_counted(tmp_path):
    samples, report = read_one(
        tmp_path, page_line("l1", None), page_line("l2", "  "), page_line("l3", "¬"), page_line("l4")
    )
    assert [sample.id for sample in samples] == ["p/l4"]
    assert report.counts == {("warning", "no text"): 3}


def test_coordinates_for_another_size_are_scaled_and_that_is_said(tmp_path):
    samples, report = read_one(tmp_path, page_line(), size=(200, 400))
    assert samples[0].polygon == ((5.0, 5.0), (45.0, 5.0), (45.0, 15.0), (5.0, 15.0))
    assert report.counts == {("warning", "size differs"): 1}
    assert "200 x 400" in report.problems[0].message
    assert "shape" not in report.problems[0].message


def test_another_shape_of_page_is_pointed_out(tmp_path):
    _, report = read_one(tmp_path, page_line(), size=(400, 200))
    assert "differ in shape" in report.problems[0].message


def test_a_line_outside_its_page_is_an_error(tmp_path):
    samples, report = read_one(tmp_path, page_line(coords="500,10 600,10 600,30"))
    assert not samples
    assert report.counts == {("error", "outside the page"): 1}


def test_line_ids_used_twice_are_told_apart(tmp_path):
    samples, report = read_one(tmp_path, page_line(), page_line(), page_line())
    assert [sample.id for sample in samples] == ["p/l1", "p/l1~2", "p/l1~3"]
    assert report.counts == {("warning", "name used twice"): 2}


def test_pages_of_the_same_name_are_told_apart_with_one_warning_each(tmp_path):
    for folder in ("a", "b"):
        page(tmp_path / folder, page_line("l1"), page_line("l2"))
    samples, report = gather(reader.read, tmp_path)
    assert [sample.id for sample in samples] == ["p/l1", "p/l2", "p~2/l1", "p~2/l2"]
    assert [sample.document for sample in samples] == ["a", "a", "b", "b"]
    assert report.counts == {("warning", "name used twice"): 1}


@pytest.mark.parametrize(
    ("place", "stated"),
    [
        ("page/p.png", "p.png"),
        ("p.png", "p.png"),
        ("images/p.png", "p.png"),
        ("Images/p.JPG", "p.jpg"),
        ("page/images/p.png", "p.png"),
        ("other/p.png", "../other/p.png"),
        ("p.tif", "p.png"),
        ("p.png", ""),
        ("p.png", r"C:\scans\p.png"),
        ("p.png", "https://example.org/iiif/p.png"),
        ("p.png", "x" * 5000),
    ],
)
def test_the_image_is_found_near_the_xml(tmp_path, place, stated):
    image = draw(tmp_path / place, (100, 200))
    write(tmp_path / "page" / "p.xml", page_xml(page_line(), image=stated))
    samples, report = gather(reader.read, tmp_path)
    assert [sample.image.samefile(image) for sample in samples] == [True]
    assert not report.counts


def test_a_page_without_its_image_is_one_error(tmp_path):
    file = write(tmp_path / "p.xml", page_xml(page_line("l1"), page_line("l2")))
    samples, report = gather(reader.read, file)
    assert not samples
    assert report.counts == {("error", "image missing"): 1}
    assert "2 lines" in report.problems[0].message


@pytest.mark.parametrize("content", [b"", b"no image at all"])
def test_a_page_whose_image_cannot_be_opened_is_one_error(tmp_path, content):
    file = page(tmp_path, page_line())
    write(tmp_path / "p.png", content)
    samples, report = gather(reader.read, file)
    assert not samples
    assert report.counts == {("error", "unreadable image"): 1}


def test_other_xml_beside_the_pages_is_mentioned(tmp_path):
    page(tmp_path, page_line())
    write(tmp_path / "mets.xml", "<mets/>")
    samples, report = gather(reader.read, tmp_path)
    assert len(samples) == 1
    assert report.counts == {("warning", "other XML"): 1}


def test_a_page_without_lines_is_mentioned(tmp_path):
    samples, report = read_one(tmp_path)
    assert not samples
    assert report.counts == {("warning", "no lines"): 1}
    assert not gather(reader.read, write(tmp_path / "q.xml", "<PcGts/>"))[0]


def test_folders_named_like_splits_give_the_split(tmp_path):
    for folder in ("train/a", "val/b", "test"):
        page(tmp_path / folder, page_line(), name=folder[0])
    samples, _ = gather(reader.read, tmp_path)
    assert {(sample.split, sample.document) for sample in samples} == {
        ("train", "a"),
        ("validation", "b"),
        ("test", "t"),  # the page itself
    }


def test_broken_pages_do_not_stop_the_others(tmp_path):
    page(tmp_path, page_line(), name="a")
    write(tmp_path / "b.xml", page_xml(page_line())[:200])
    write(tmp_path / "c.xml", b"")
    write(tmp_path / "d.xml", page_xml(page_line(text="été")).encode("latin-1"))
    page(tmp_path, page_line(coords=POLYGON), name="e")
    samples, report = gather(reader.read, tmp_path)
    assert [sample.id for sample in samples] == ["a/l1", "e/l1"]
    assert report.counts == {("error", "broken XML"): 3}


def test_an_outside_entity_is_not_resolved_into_the_text(tmp_path):
    secret = write(tmp_path / "secret", "a secret")
    document = page_xml(page_line(text="&x;")).replace(
        "?><PcGts", f'?><!DOCTYPE PcGts [<!ENTITY x SYSTEM "{secret.as_uri()}">]><PcGts'
    )
    page(tmp_path, page_line())
    samples, report = gather(reader.read, write(tmp_path / "p.xml", document))
    assert not samples
    assert report.counts == {("error", "unsafe XML"): 1}
    assert "a secret" not in str(report.problems)


def test_reading_is_lazy(tmp_path):
    page(tmp_path, page_line(), name="a")
    write(tmp_path / "b.xml", b"broken")
    from spikehtr.data.samples import ImportReport

    report = ImportReport()
    samples = reader.read(tmp_path, report)
    assert next(samples).id == "a/l1"
    assert not report.counts
