import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats_help import draw, gather, kinds, real, write
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from spikehtr.data.formats import parquet
from spikehtr.data.images import line_image

buffer = io.BytesIO()
Image.new("L", (30, 20), 200).save(buffer, "PNG")
PNG = buffer.getvalue()


def save(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def structs(count, **change):
    return [{"bytes": PNG, "path": f"{number}.png"} | change for number in range(count)]


def test_image_structs_with_page_and_document(tmp_path):
    texts = ["a", "b", "c"]
    file = save(tmp_path / "train.parquet", image=structs(3), text=texts, page=["1", "1", "2"], document=["d"] * 3)
    samples, report = gather(parquet.read, file)
    assert [(s.id, s.text, s.split, s.page, s.document) for s in samples] == [
        ("train/0", "a", "train", "1", "d"),
        ("train/1", "b", "train", "1", "d"),
        ("train/2", "c", "train", "2", "d"),
    ]
    assert line_image(samples[0]).size == (30, 20)
    assert not report.counts


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_plain_image_bytes(tmp_path, kind):
    file = save(tmp_path / "x.parquet", image=pa.array([PNG], kind), text=["a"])
    (sample,), _ = gather(parquet.read, file)
    assert (sample.image, sample.split) == (PNG, None)


def test_a_folder_of_shards_with_splits_by_name_or_folder(tmp_path):
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001", "test/0000"):
        save(tmp_path / f"{name}.parquet", image=structs(1), text=["a"])
    samples, _ = gather(parquet.read, tmp_path)
    assert {sample.id: sample.split for sample in samples} == {
        "train-00000-of-00002/0": "train",
        "train-00001-of-00002/0": "train",
        "validation-00000-of-00001/0": "validation",
        "test/0000/0": "test",
    }


def test_id_and_split_columns_are_used(tmp_path):
    splits = ["val", "odd", None]
    file = save(tmp_path / "train.parquet", image=structs(3), text=["a"] * 3, id=["x", "x", None], split=splits)
    samples, report = gather(parquet.read, file)
    assert [(s.id, s.split) for s in samples] == [("train/x", "validation"), ("train/x~2", None), ("train/2", None)]
    assert report.counts == {("warning", "unknown split"): 1, ("warning", "name used twice"): 1}


def test_rows_without_image_or_text_are_counted(tmp_path):
    images = [*structs(1), {"bytes": None, "path": "none.png"}, None, *structs(2)]
    file = save(tmp_path / "x.parquet", image=images, text=["a", "b", "c", None, " "])
    samples, report = gather(parquet.read, file)
    assert [sample.id for sample in samples] == ["x/0"]
    assert report.counts == {("error", "image missing"): 2, ("warning", "no text"): 2}


def test_an_image_may_be_a_file_beside(tmp_path):
    image = draw(tmp_path / "0.png")
    (sample,), _ = gather(parquet.read, save(tmp_path / "x.parquet", image=structs(1, bytes=None), text=["a"]))
    assert sample.image == image


def unchecked(values, kind=None):
    """Strings that are claimed to be UTF-8 and need not be."""
    raw = pa.array(values, pa.large_binary() if kind == pa.large_string() else pa.binary())
    return pa.Array.from_buffers(kind or pa.string(), len(raw), raw.buffers())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_text_that_is_not_utf8_costs_only_its_row(tmp_path, kind):
    file = save(tmp_path / "x.parquet", image=structs(3), text=unchecked([b"a", b"caf\xe9", "\u00e9".encode()], kind))
    samples, report = gather(parquet.read, file)
    assert [(sample.id, sample.text) for sample in samples] == [("x/0", "a"), ("x/2", "\u00e9")]
    assert kinds(report) == {"wrong encoding": 1}
    assert report.problems[0].where == f"{file}, row 1"
    assert "0xe9 at position 3" in report.problems[0].message


def test_names_that_are_not_utf8_are_spelt_out(tmp_path):
    images = pa.StructArray.from_arrays(
        [pa.array([PNG, None]), unchecked([b"\xe9.png", b"\xe9.png"])], ["bytes", "path"]
    )
    names = {name: unchecked([b"\xe9", b"b"]) for name in ("id", "page", "document", "split")}
    file = save(tmp_path / "x.parquet", **names, text=pa.array(["a", "b"]).dictionary_encode(), image=images)
    (sample,), report = gather(parquet.read, file)
    assert (sample.id, sample.page, sample.text) == ("x/\\xe9", "\\xe9", "a")
    assert kinds(report) == {"unknown split": 1, "image missing": 1}


@pytest.mark.parametrize(
    "columns", [{"img": [PNG], "text": ["a"]}, {"image": ["a"], "label": ["a"]}, {"image": [1], "text": ["a"]}]
)
def test_other_columns_are_listed(tmp_path, columns):
    samples, report = gather(parquet.read, save(tmp_path / "x.parquet", **columns))
    assert not samples
    assert kinds(report) == {"wrong columns": 1}
    assert all(name in report.problems[0].message for name in columns)


@pytest.mark.parametrize("content", [b"", b"PAR1 or not"])
def test_a_broken_file_does_not_stop_the_next(tmp_path, content):
    write(tmp_path / "a.parquet", content)
    save(tmp_path / "b.parquet", image=structs(1), text=["a"])
    samples, report = gather(parquet.read, tmp_path)
    assert [sample.id for sample in samples] == ["b/0"]
    assert kinds(report) == {"unreadable file": 1}


def test_a_file_damaged_in_the_middle_says_how_far_it_was_read(tmp_path):
    file = save(tmp_path / "x.parquet", image=structs(200), text=[f"{i}" for i in range(200)])
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 2000] = bytes(2000)
    write(file, bytes(data))
    samples, report = gather(parquet.read, file)
    assert len(samples) < 200
    assert kinds(report) == {"unreadable file": 1}


def test_column_names_that_are_not_utf8_are_a_clear_error_and_do_not_stop_the_next_file(tmp_path):
    file = save(tmp_path / "a.parquet", image=structs(1), text=["a"], zurück=["b"])
    write(file, file.read_bytes().replace("zurück".encode(), b"zur\xfc\xfcck"))
    save(tmp_path / "b.parquet", image=structs(1), text=["a"])
    samples, report = gather(parquet.read, tmp_path)
    assert [sample.id for sample in samples] == ["b/0"]
    assert kinds(report) == {"wrong columns": 1}
    assert report.problems[0].where == str(file)
    assert "column names are not UTF-8 (b'zur\\xfc\\xfcck')" in report.problems[0].message
    assert list(parquet.named_files(file)) == []


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory):
    return save(tmp_path_factory.mktemp("whole") / "x.parquet", image=structs(3), text=["a", "b", "c"], id=["1"] * 3)


@settings(max_examples=200)
@given(data=st.data())
def test_no_damage_to_a_files_footer_escapes_as_an_exception(whole_file, data):
    file = whole_file.with_name("damaged.parquet")
    damaged = bytearray(whole_file.read_bytes())
    length = int.from_bytes(damaged[-8:-4], "little")
    places = st.integers(len(damaged) - 8 - length, len(damaged) - 9)
    for place, value in data.draw(st.dictionaries(places, st.integers(0, 255), min_size=1, max_size=4)).items():
        damaged[place] = value
    write(file, bytes(damaged))
    samples, report = gather(parquet.read, file)
    assert report.counts or {sample.text for sample in samples} <= {"a", "b", "c"}
    list(parquet.named_files(file))


def test_the_real_lines(tmp_path):
    samples, report = gather(parquet.read, real("lines") / "bronod")
    counts = {split: sum(s.split == split for s in samples) for split in ("train", "validation", "test")}
    assert counts == {"train": 2930, "validation": 375, "test": 391}
    assert line_image(samples[0]).height == 64
    assert not report.counts
