import json
from pathlib import Path

import pytest
from formats_help import draw, page, page_line, real, write

from spikehtr.data.formats import FORMATS, detect, read
from spikehtr.data.samples import ImportReport, Sample
from spikehtr.errors import SpikeHTRError


def folder(root):
    draw(root / "a.png")
    write(root / "a.gt.txt", "Hello")


def iam(root):
    draw(root / "lines" / "a01-000u-00.png")
    write(root / "lines.txt", "a01-000u-00 ok 1 1 1 1 1 1 Hello")
    write(root / "train.ln", "a01-000u-00.png")  # a split list here, not a set of its own


def lam(root):
    draw(root / "lines/img/a.jpg")
    write(root / "lines/split/basic/train.json", json.dumps([{"img": "a.jpg", "text": "Hello"}]))


def ln(root):
    draw(root / "lines/a.png")
    write(root / "lines/a.txt", "Hello")
    write(root / "train.ln", "a.png")


def read2016(root):
    page(root / "PublicData/Training/page", page_line())


def page_folder(root):
    page(root / "doc" / "page", page_line())
    write(root / "mets.xml", "<mets/>")
    write(root / "doc" / "alto" / "p.xml", "<alto/>")


def alto(root):
    draw(root / "p.png", (100, 200))
    line = '<TextLine ID="a" HPOS="1" VPOS="1" WIDTH="9" HEIGHT="9"><String CONTENT="Hello"/></TextLine>'
    write(root / "p.xml", f"<alto><Layout><Page>{line}</Page></Layout></alto>")


def parquet(root):
    import pyarrow as pa
    import pyarrow.parquet as pq

    image = draw(root / "a.png")
    pq.write_table(pa.table({"image": [image.read_bytes()], "text": ["Hello"]}), root / "data.parquet")
    image.unlink()


MAKERS = {
    "folder": folder,
    "iam": iam,
    "lam": lam,
    "ln": ln,
    "read2016": read2016,
    "page": page_folder,
    "alto": alto,
    "parquet": parquet,
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_format_is_found_out_and_read_either_way(tmp_path, name):
    MAKERS[name](tmp_path)
    assert detect(tmp_path) == name
    for spec in (tmp_path, str(tmp_path), f"{name}:{tmp_path}", f"{name.upper()}:{tmp_path}"):
        report = ImportReport()
        assert [sample.text for sample in read(spec, report)] == ["Hello"]
        assert report.used == 1


def test_a_compiled_store_goes_before_all_else(tmp_path, monkeypatch):
    store = write(tmp_path / "lines.parquet")
    sample = Sample("a", "Hello", b"", origin="x")
    monkeypatch.setattr("spikehtr.data.store.is_store", lambda path: path == store)
    monkeypatch.setattr("spikehtr.data.store.read_store", lambda path, report: iter([sample]))
    assert detect(store) == "store"
    for spec in (store, f"store:{store}"):
        assert list(read(spec, ImportReport())) == [sample]


def test_every_format_is_tried_above():
    assert set(FORMATS) == {*MAKERS, "store"}


@pytest.mark.parametrize("file", ["p.xml", "data.parquet", "train.ln"])
def test_single_files_are_found_out_too(tmp_path, file):
    for maker in (alto, parquet, ln):
        maker(tmp_path)
    assert detect(tmp_path / file) in ("alto", "parquet", "ln")
    assert len(list(read(tmp_path / file, ImportReport()))) == 1


def test_an_unknown_folder_says_what_was_looked_for_and_what_to_do(tmp_path):
    write(tmp_path / "notes.md", "x")
    with pytest.raises(SpikeHTRError) as error:
        detect(tmp_path)
    message = str(error.value)
    assert str(tmp_path) in message
    assert all(f"{name}:" in message for name in FORMATS)
    assert f"format:{tmp_path}" in message


@pytest.mark.parametrize(
    "spec",
    [
        "nowhere",
        "page:nowhere",
        r"C:\nowhere\x",
        "~nowhere/x",
        "nowhere" * 2000,
        "nowhere\0:x",
        "https://example.org/x.parquet",
    ],
)
def test_a_missing_path_is_said_at_once(spec):
    with pytest.raises(SpikeHTRError, match=r"no such file or folder: .*(nowhere|example)"):
        read(spec, ImportReport())
    with pytest.raises(SpikeHTRError, match="no such file"):
        read(Path("nowhere"), ImportReport())


def test_a_format_without_a_path_is_wrong_use():
    with pytest.raises(SpikeHTRError, match="page:PATH"):
        read("page:", ImportReport())


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(SpikeHTRError, match="did you mean 'parquet'"):
        read(f"parket:{tmp_path}", ImportReport())
    with pytest.raises(SpikeHTRError, match="known are store, parquet"):
        read(f"zzz:{tmp_path}", ImportReport())


def test_a_path_with_a_colon_that_exists_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "page:one")
    assert [sample.text for sample in read("page:one", ImportReport())] == ["Hello"]
    assert [sample.text for sample in read("folder:page:one", ImportReport())] == ["Hello"]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "store"])
@pytest.mark.parametrize("what", ["empty folder", "file"])
def test_a_named_format_that_finds_nothing_is_one_error(tmp_path, name, what):
    path = tmp_path if what == "empty folder" else write(tmp_path / "notes.md", "")
    report = ImportReport()
    assert not list(read(f"{name}:{path}", report))
    assert (report.used, report.count("error")) == (0, 1)
    assert report.problems[0].where == str(path)


def test_the_real_sets_are_found_out():
    assert detect(real("pages")) == "alto"
    assert detect(real("lines")) == "parquet"
    assert detect(real("splits/iam")) == "ln"
