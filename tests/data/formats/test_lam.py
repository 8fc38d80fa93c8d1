import json

import pytest
from formats_help import draw, gather, kinds, write

from spikehtr.data.formats import lam


def make(root, splits=("basic",)):
    for number, name in enumerate(["002_02_00", "002_02_01", "103_01_07"]):
        draw(root / "lines" / "img" / f"{name}.jpg")
        entry = {"img": f"{name}.jpg", "text": f"riga {number}", "decade_id": 1}
        for split in splits:
            write(root / "lines" / "split" / split / f"{('train', 'val', 'test')[number]}.json", json.dumps([entry]))
    return root


@pytest.mark.parametrize("below", ["", "lines"])
def test_lines_with_their_splits_and_pages(tmp_path, below):
    root = make(tmp_path) / below
    assert lam.recognises(root)
    samples, report = gather(lam.read, root)
    assert [(s.id, s.text, s.split, s.page) for s in samples] == [
        ("002_02_00", "riga 0", "train", "002_02"),
        ("002_02_01", "riga 1", "validation", "002_02"),
        ("103_01_07", "riga 2", "test", "103_01"),
    ]
    assert not report.counts


def test_of_several_splits_the_basic_one_is_taken_and_named(tmp_path):
    samples, report = gather(lam.read, make(tmp_path, ("a_leave_out", "basic")))
    assert len(samples) == 3
    assert "basic" in samples[0].origin
    assert report.counts == {("warning", "several splits"): 1}
    assert "'basic' is taken" in report.problems[0].message


def test_bad_entries_are_reported_one_by_one(tmp_path):
    root = make(tmp_path)
    good = {"img": "002_02_00.jpg", "text": "x"}
    bad = [7, {}, {"img": 1, "text": "x"}, {"img": "none.jpg", "text": "x"}, good | {"text": " "}]
    write(root / "lines/split/basic/train.json", json.dumps([good, *bad]))
    samples, report = gather(lam.read, root)
    assert [sample.id for sample in samples if sample.split == "train"] == ["002_02_00"]
    assert kinds(report) == {"bad entry": 3, "image missing": 1, "no text": 1}


@pytest.mark.parametrize("content", [b"", b"{", b'{"img": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_broken_split_file_is_one_error_and_the_others_are_read(tmp_path, content):
    root = make(tmp_path)
    write(root / "lines/split/basic/train.json", content)
    samples, report = gather(lam.read, root)
    assert [sample.split for sample in samples] == ["validation", "test"]
    assert report.count("error") == 1


def test_a_line_in_two_splits_is_told_apart(tmp_path):
    root = make(tmp_path)
    write(root / "lines/split/basic/test.json", json.dumps([{"img": "002_02_00.jpg", "text": "x"}]))
    samples, report = gather(lam.read, root)
    assert [sample.id for sample in samples] == ["002_02_00", "002_02_01", "002_02_00~2"]
    assert kinds(report) == {"name used twice": 1}


def test_other_folders_are_not_taken_for_it(tmp_path):
    (tmp_path / "img").mkdir()
    (tmp_path / "split").mkdir()
    assert not lam.recognises(tmp_path)
    assert gather(lam.read, tmp_path)[0] == []
