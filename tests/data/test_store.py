import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from data_help import WORDS, write_folder
from spikehtr.data import compiling
from spikehtr.data.compiling import compile_store, open_lines
from spikehtr.data.geometry import scale_line
from spikehtr.data.images import load_line
from spikehtr.data.samples import ImportReport
from spikehtr.data.store import LineStore, StoreError, decode, encode, is_store, read_store
from spikehtr.errors import SpikeHTRError


def sources_of(store):
    return [store.record(row)["source"] for row in range(len(store))]


@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 10**6))
def test_pixels_survive(height, width, seed):
    line = np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)
    assert np.array_equal(decode(encode(line), height, width), line)


def test_lines_come_back_as_they_went_in(tmp_path):
    source = write_folder(tmp_path / "src")
    store, report = compile_store([source], tmp_path / "lines.arrow")
    assert (len(store), report.used, report.count("error")) == (8, 8, 0)
    assert sorted(store.text(row).strip() for row in range(8)) == sorted(WORDS)
    for row in range(8):
        record = store.record(row)
        expected = scale_line(load_line(source / "train" / f"{record['id'].split('/')[-1][:3]}.png"), 64)
        assert np.array_equal(store.line(row), expected)
        assert store.widths[row] == expected.shape[1] == record["width"]
    assert set(store.splits) == {"train"}
    assert store.meta["lines"] == {"train": 8}
    assert store.charset.characters == tuple(sorted(set("".join(WORDS))))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []  # nothing temporary is left


def test_charset_is_of_the_training_lines(tmp_path):
    write_folder(tmp_path / "src", ["ab"], "train")
    write_folder(tmp_path / "src", ["xyz"], "test")
    store, _ = compile_store([tmp_path / "src"], tmp_path / "s.arrow")
    assert store.charset.characters == ("a", "b")
    assert store.rows("test").tolist() == np.flatnonzero(store.splits == "test").tolist()
    assert len(store.rows()) == 2


def test_several_sources_make_one_store(tmp_path):
    one, two = write_folder(tmp_path / "one"), write_folder(tmp_path / "two", ["more"])
    store, _ = compile_store([one, f"folder:{two}"], tmp_path / "s.arrow")
    assert len(store) == 9
    assert store.sources == [str(one), f"folder:{two}"]
    assert sources_of(store) == [str(one)] * 8 + [f"folder:{two}"]


def test_lines_compiled_from_stores_keep_their_sources(tmp_path):
    """A store of several sources passes those on; a store of one is itself the source."""
    folders = [write_folder(tmp_path / name, [word]) for name, word in (("a", "ink"), ("b", "pen"), ("c", "nib"))]
    two, _ = compile_store(folders[:2], tmp_path / "two.arrow")
    one, _ = compile_store(folders[2:], tmp_path / "one.arrow")
    joined, _ = compile_store([two.path, one.path, folders[0]], tmp_path / "joined.arrow")
    expected = [str(source) for source in (folders[0], folders[1], one.path, folders[0])]
    assert sources_of(joined) == expected
    assert joined.sources == expected[:3]
    again, _ = compile_store([joined.path], tmp_path / "again.arrow")
    assert (sources_of(again), again.meta["sources"]) == (expected, [str(joined.path)])


def test_a_killed_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("spikehtr.data.compiling.PART", 3)
    source, target = write_folder(tmp_path / "src"), tmp_path / "s.arrow"

    def killed(done):
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_store([source], target, progress=killed)
    assert not target.exists()  # never half-written under its name
    read = []
    plain = compiling.line_image
    monkeypatch.setattr(compiling, "line_image", lambda sample: read.append(sample.id) or plain(sample))
    store, _ = compile_store([source], target)
    assert len(store) == 8
    assert len(read) == 2  # the first six were not decoded again
    whole, _ = compile_store([source], tmp_path / "whole.arrow")
    assert all(np.array_equal(store.line(row), whole.line(row)) for row in range(8))
    assert [store.record(row) for row in range(8)] == [whole.record(row) for row in range(8)]


def test_parts_of_changed_sources_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("spikehtr.data.compiling.PART", 3)
    source, target = write_folder(tmp_path / "src"), tmp_path / "s.arrow"

    def killed(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_store([source], target, progress=killed)
    (source / "train" / "000.gt.txt").write_text("changed")
    store, _ = compile_store([source], target)
    assert "changed" in [store.text(row).strip() for row in range(8)]


def test_what_cannot_be_used_is_counted_with_reasons(tmp_path):
    source = write_folder(tmp_path / "src")
    (source / "train" / "000.png").write_bytes(b"")
    (source / "train" / "001.gt.txt").write_text(" \u00ac ")
    (source / "train" / "002.png").write_bytes((source / "train" / "003.png").read_bytes()[:200])
    store, report = compile_store([source], tmp_path / "s.arrow")
    left_out = {kind: number for (_, kind), number in report.counts.items()}
    assert len(store) == report.used == 5
    assert left_out["unreadable image"] == 2
    assert sum(left_out.values()) == 3
    assert all(problem.where and problem.remedy for problem in report.problems)
    assert store.meta["left_out"] == report.left_out == 3


def test_open_lines_compiles_once(tmp_path, monkeypatch):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    source = write_folder(tmp_path / "src")
    first = open_lines([source])
    written = first.path.stat().st_mtime_ns
    assert open_lines([source]).path.stat().st_mtime_ns == written
    (source / "train" / "000.gt.txt").write_text("another")
    assert open_lines([source]).path != first.path
    assert open_lines([first.path]).path == first.path  # a store is opened as it is
    assert len(open_lines([f"store:{first.path}"])) == 8


def test_a_store_serves_networks_of_every_height(tmp_path, monkeypatch):
    """At its own height as it is; at another one, its lines are scaled as images of theirs would be, and it is said."""
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    source = write_folder(tmp_path / "src")
    store, _ = compile_store([source], tmp_path / "lines.arrow", height=48)
    said = []
    assert open_lines([store.path], 48, 512, say=said.append).path == store.path
    assert said == []
    for height in (32, 96):
        other = open_lines([store.path], height, 4096, say=said.append)
        assert (other.height, len(other)) == (height, 8)
        for row in range(8):
            assert np.array_equal(other.line(row), scale_line(Image.fromarray(store.line(row)), height))
            mine, theirs = store.record(row), other.record(row)
            assert [mine[name] for name in ("id", "text", "split")] == [
                theirs[name] for name in ("id", "text", "split")
            ]
        assert said.pop() == (
            f"{store.path} holds lines 48 pixels high, scaled to {height} here from that, not from the images; "
            f"`spikehtr data compile --height {height}` does it from the images"
        )
    assert open_lines([store.path, source], 32, say=said.append).height == 32  # one of several, too
    assert len(said) == 1
    assert store.path.stat().st_size == (tmp_path / "lines.arrow").stat().st_size


def test_lines_fitted_to_a_width_serve_that_width_alone(tmp_path, monkeypatch):
    """Scaled to another height, the same width in proportion."""
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    store, _ = compile_store([write_folder(tmp_path / "src")], tmp_path / "lines.arrow", height=32, max_width=64)
    assert open_lines([store.path], 64, 128).widths.max() == 128
    with pytest.raises(StoreError, match=r"a width of 64 at 32 pixels of height, not for 96 at 64"):
        open_lines([store.path], 64, 96)
    with pytest.raises(StoreError, match="without --max-width"):
        open_lines([store.path], 32, 96, straighten=True)


@pytest.mark.slow
def test_programs_that_compile_the_same_at_once_do_not_collide(tmp_path):
    source = write_folder(tmp_path / "src", words=[f"{word} {i}" for i in range(30) for word in WORDS])
    code = "import sys; from spikehtr.data.compiling import open_lines; print(len(open_lines([sys.argv[1]])))"
    environment = os.environ | {"SPIKEHTR_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(source)]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in both] == [str(30 * len(WORDS))] * 3


def test_a_store_that_another_makes_is_waited_for(tmp_path, monkeypatch):
    """Threads stand for the programs here: their locks keep each other out as well."""
    source, target = write_folder(tmp_path / "src"), tmp_path / "s.arrow"
    inside, most = [], []

    def slow(*arguments):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)
        made = plain(*arguments)
        inside.pop()
        return made

    plain = compiling._compile
    monkeypatch.setattr(compiling, "_compile", slow)
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: compile_store([source], target)[0], range(6)))
    assert [len(store) for store in stores] == [8] * 6
    assert max(most) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_store_can_be_read_like_any_source(tmp_path):
    store, _ = compile_store([write_folder(tmp_path / "src")], tmp_path / "one.arrow")
    again, report = compile_store([store.path], tmp_path / "two.arrow")
    assert report.counts == {}
    assert all(np.array_equal(store.line(row), again.line(row)) for row in range(8))
    assert [s.id for s in read_store(store.path, ImportReport())] == [store.record(row)["id"] for row in range(8)]


def test_damage_is_noticed_and_named(tmp_path):
    store, _ = compile_store([write_folder(tmp_path / "src")], tmp_path / "s.arrow")
    content = bytearray(store.path.read_bytes())
    place = content.find(encode(store.line(2))[20:60])
    content[place] ^= 0xFF
    damaged = tmp_path / "damaged.arrow"
    damaged.write_bytes(bytes(content))
    with pytest.raises(StoreError, match=r"row 2\) is damaged"):
        LineStore(damaged).line(2)
    report = ImportReport()
    assert len(list(read_store(damaged, report))) == 7
    assert report.counts == {("error", "damaged line"): 1}


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"", "not a line store"), (b"ARROW1 nonsense", "not a line store")],
)
def test_files_that_are_no_stores(content, says, tmp_path):
    path = tmp_path / "x.arrow"
    if content is not None:
        path.write_bytes(content)
    assert not is_store(path)
    with pytest.raises(StoreError, match=says):
        LineStore(path)


def test_an_arrow_file_of_somebody_else(tmp_path):
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("a", pa.int8())])):
        pass
    assert not is_store(path)
    with pytest.raises(StoreError, match="data compile"):
        LineStore(path)


def test_nothing_to_compile(tmp_path):
    (tmp_path / "src").mkdir()
    Image.new("L", (30, 30)).save(tmp_path / "src" / "lonely.png")
    with pytest.raises(SpikeHTRError, match="no line found"):
        compile_store([f"folder:{tmp_path / 'src'}"], tmp_path / "s.arrow")
    with pytest.raises(SpikeHTRError, match="make it first"):
        compile_store([tmp_path / "src"], tmp_path / "nowhere" / "s.arrow")


def test_whoever_opens_lines_is_told_what_was_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    source = write_folder(tmp_path / "my lines")
    (source / "train" / "000.png").write_bytes(b"")
    (source / "train" / "001.gt.txt").write_bytes(b"caf\xe9")
    remark = f"2 lines or files of {source} left out; `spikehtr data check '{source}'` lists them"
    assert len(open_lines([source])) == 6
    open_lines([source], height=32)  # as two models would, one of another height
    assert capsys.readouterr().err == remark + "\n"
    remarks = []
    compile_store([source], tmp_path / "s.arrow")
    for spec in (source, tmp_path / "s.arrow"):  # from the cache, and from a store
        open_lines([spec], say=remarks.append)
    assert remarks == [remark, remark]
