"""File names are any bytes; what is made of them must be writable all the same."""

import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from spikehtr.config import Config
from spikehtr.data.check import check_data
from spikehtr.data.compiling import compile_store, open_lines
from spikehtr.data.formats import read
from spikehtr.data.samples import ImportReport

ODD = os.fsdecode(b"caf\xe9")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    place = tmp_path / ODD / "train"
    try:
        place.mkdir(parents=True)
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    for name in (ODD, os.fsdecode(b"caf\xe8"), "caf\u00e9", "lonely"):
        Image.new("L", (90, 64), 200).save(place / f"{name}.png")
        (place / f"{name}.txt").write_text("ink")
    (place / "lonely.txt").rename(place / f"{ODD}-lonely.txt")
    return place.parent


def test_a_store_has_names_that_can_be_written(folder, tmp_path):
    store, report = compile_store([folder], tmp_path / f"{ODD}.arrow")
    names = {store.record(row)["id"] for row in range(len(store))}
    assert names == {"train/caf\\udce9", "train/caf\\udce8", "train/caf\u00e9"}
    assert report.counts == {("error", "text missing"): 1, ("warning", "text without image"): 1}
    remarks = []
    assert len(open_lines([folder], say=remarks.append)) == 3
    assert [remark.encode().split(b" of ")[0] for remark in remarks] == [b"1 line or file"]


def test_a_parquet_file_may_have_any_name(folder):
    columns = {"image": [{"bytes": (folder / "train" / f"{ODD}.png").read_bytes()}], "text": ["ink"]}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    (folder / f"{ODD}.parquet").write_bytes(sink.getvalue())
    assert [sample.id for sample in read(folder / f"{ODD}.parquet", ImportReport())] == ["caf\\udce9/0"]


def test_a_report_can_be_written(folder):
    json.dumps(check_data([folder], Config()).to_dict(), ensure_ascii=False).encode()


def test_a_text_with_half_a_character_is_reported(tmp_path):
    for place in ("img", "split/basic"):
        (tmp_path / place).mkdir(parents=True)
    Image.new("L", (90, 64), 200).save(tmp_path / "img" / "a.png")
    entries = [{"img": "a.png", "text": "whole"}, {"img": "a.png", "text": "ha\ud800lf"}]
    (tmp_path / "split" / "basic" / "train.json").write_text(json.dumps(entries))
    report = ImportReport()
    assert [sample.text for sample in read(f"lam:{tmp_path}", report)] == ["whole"]
    assert report.used == 1
    (problem,) = [problem for problem in report.problems if problem.severity == "error"]
    assert (problem.kind, problem.message) == ("wrong encoding", "character 3 of 'ha\\ud800lf' is half of one")
    assert "entry 2" in problem.where
