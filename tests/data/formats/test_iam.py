import pytest
from formats_help import draw, gather, kinds, write

from spikehtr.data.formats import iam
from spikehtr.data.images import line_image

LINES_TXT = """#--- lines.txt ---
# format: a01-000u-00 ok 154 19 408 746 1661 89 A|MOVE
a01-000u-00 ok 154 19 10 20 60 15 A|MOVE|to|stop|Mr.|Gaitskell|,
a01-000u-01 err 156 19 10 40 50 12 nominating|any
a01-003-00 ok 156 19 10 60 40 10 third
"""
XML = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE form SYSTEM "http://www.iam.unibe.ch/~fki/iamdb/form-metadata.dtd">
<form id="a01-000u" width="100" height="120">
 <machine-printed-part><machine-print-line text="printed"/></machine-printed-part>
 <handwritten-part>
  <line id="a01-000u-00" text="A MOVE to &amp;quot;stop&amp;quot; Mr. Gaitskell,">
   <word id="a01-000u-00-00" text="A"><cmp x="12" y="20" width="5" height="10"/></word>
   <word id="a01-000u-00-01" text="MOVE"><cmp x="20" y="18" width="30" height="15"/></word>
  </line>
 </handwritten-part>
</form>"""


def make(root, images=("a01-000u-00", "a01-000u-01", "a01-003-00")):
    write(root / "ascii" / "lines.txt", LINES_TXT)
    for name in images:
        form = name.rpartition("-")[0]
        draw(root / "lines" / name[:3] / form / f"{name}.png")
    return root


def splits(root):
    samples, report = gather(iam.read, root)
    return {sample.id: sample.split for sample in samples}, report


def test_line_images_with_lines_txt(tmp_path):
    assert iam.recognises(make(tmp_path))
    samples, report = gather(iam.read, tmp_path)
    assert [(s.id, s.text, s.document, s.page, s.box, s.split) for s in samples] == [
        ("a01-000u-00", "A MOVE to stop Mr. Gaitskell ,", "a01-000u", "a01-000u", None, None),
        ("a01-000u-01", "nominating any", "a01-000u", "a01-000u", None, None),
        ("a01-003-00", "third", "a01-003", "a01-003", None, None),
    ]
    assert samples[0].image == tmp_path / "lines/a01/a01-000u/a01-000u-00.png"
    assert not report.counts


@pytest.mark.parametrize("place", ["lines.txt", "ascii/lines.txt", "lines/lines.txt"])
def test_flat_images_and_any_place_of_lines_txt(tmp_path, place):
    write(tmp_path / place, LINES_TXT)
    for name in ("a01-000u-00", "a01-000u-01", "a01-003-00"):
        draw(tmp_path / "lines" / f"{name}.tif")
    assert iam.recognises(tmp_path)
    assert len(gather(iam.read, tmp_path)[0]) == 3


def test_the_xmls_text_goes_before_that_of_lines_txt(tmp_path):
    make(tmp_path)
    write(tmp_path / "xml" / "a01-000u.xml", XML)
    samples, report = gather(iam.read, tmp_path)
    texts = {sample.id: sample.text for sample in samples}
    assert texts["a01-000u-00"] == 'A MOVE to "stop" Mr. Gaitskell,'
    assert texts["a01-000u-01"] == "nominating any"
    assert not report.counts


@pytest.mark.parametrize("folder", ["forms", "formsA-D"])
def test_lines_are_cut_from_forms_by_the_box_around_their_components(tmp_path, folder):
    draw(tmp_path / folder / "a01-000u.png", (100, 120))
    write(tmp_path / "xml" / "a01-000u.xml", XML)
    assert iam.recognises(tmp_path)
    (sample,), report = gather(iam.read, tmp_path)
    assert sample.box == (12.0, 18.0, 50.0, 33.0)
    assert line_image(sample).size == (38, 15)
    assert not report.counts


def test_lines_are_cut_from_forms_by_the_box_of_lines_txt(tmp_path):
    write(tmp_path / "lines.txt", LINES_TXT)
    draw(tmp_path / "forms" / "a01-000u.png", (100, 120))
    samples, report = gather(iam.read, tmp_path)
    assert [sample.box for sample in samples] == [(10, 20, 70, 35), (10, 40, 60, 52)]
    assert kinds(report) == {"image missing": 1}


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("", ("train.ln", "val.ln", "test.ln")),
        ("splits", ("train.uttlist", "validation.uttlist", "test.uttlist")),
        ("split", ("train.txt", "val.txt", "test.txt")),
        ("aachen", ("train.lst", "dev.lst", "eval-not.lst")),
        ("largeWriterIndependentTextLineRecognitionTask", ("trainset.txt", "validationset1.txt", "testset.txt")),
    ],
)
def test_split_lists_are_found(tmp_path, folder, names):
    make(tmp_path)
    names = names if folder != "aachen" else (*names[:2], "test.lst")
    for name, entry in zip(names, ("a01-000u-00", "a01-000u-01.png", "a01/a01-003"), strict=True):
        write(tmp_path / folder / name, f"{entry}\n")
    found, report = splits(tmp_path)
    assert found == {"a01-000u-00": "train", "a01-000u-01": "validation", "a01-003-00": "test"}
    assert not report.counts


def test_a_form_id_stands_for_all_its_lines_and_others_have_no_split(tmp_path):
    make(tmp_path)
    write(tmp_path / "splits/train.txt", "a01-000u\n")
    assert splits(tmp_path)[0] == {"a01-000u-00": "train", "a01-000u-01": "train", "a01-003-00": None}


def test_listed_lines_that_are_not_there_are_mentioned(tmp_path):
    make(tmp_path)
    write(tmp_path / "train.txt", "a01-000u\nz99-999\n")
    assert kinds(splits(tmp_path)[1]) == {"listed but not there": 1}


def test_a_line_of_two_lists_is_kept_from_training(tmp_path):
    make(tmp_path)
    write(tmp_path / "train.txt", "a01-000u\na01-003")
    write(tmp_path / "test.txt", "a01-000u-01")
    found, report = splits(tmp_path)
    assert found == {"a01-000u-00": "train", "a01-000u-01": "test", "a01-003-00": "train"}
    assert kinds(report) == {"in two splits": 1}


def test_of_lists_in_several_folders_those_taken_are_named(tmp_path):
    make(tmp_path)
    write(tmp_path / "aachen/train.txt", "a01-000u")
    write(tmp_path / "xTask/testset.txt", "a01-000u")
    found, report = splits(tmp_path)
    assert found["a01-000u-00"] == "train"
    assert kinds(report) == {"several splits": 1}
    assert "aachen" in report.problems[0].message


def test_every_image_and_every_row_is_accounted_for(tmp_path):
    make(tmp_path, images=("a01-000u-00", "b02-000-00"))
    with (tmp_path / "ascii/lines.txt").open("a") as file:
        file.write("too few fields\na01-000u-00 ok 1 1 1 1 1 1 again\nc03-000-00 ok 1 1 1 1 1 1\n")
    draw(tmp_path / "lines/c03-000-00.png")
    samples, report = gather(iam.read, tmp_path)
    assert [sample.id for sample in samples] == ["a01-000u-00"]
    assert report.counts == {
        ("error", "bad row"): 2,
        ("error", "image missing"): 2,
        ("warning", "no text"): 1,
        ("error", "text missing"): 1,
    }


def test_a_form_without_boxes_cannot_be_cut(tmp_path):
    draw(tmp_path / "forms" / "a01-000u.png", (100, 120))
    write(tmp_path / "xml" / "a01-000u.xml", XML.replace("cmp", "dot"))
    samples, report = gather(iam.read, tmp_path)
    assert not samples
    assert kinds(report) == {"no outline": 1}


def test_broken_xml_falls_back_to_lines_txt_and_says_so(tmp_path):
    make(tmp_path)
    write(tmp_path / "xml" / "a01-000u.xml", XML[:400])
    write(tmp_path / "xml" / "b.xml", '<form><handwritten-part><line id="x"/></handwritten-part></form>')
    samples, report = gather(iam.read, tmp_path)
    assert len(samples) == 3
    assert kinds(report) == {"broken XML": 1, "bad row": 1}
