import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from formats_help import draw, gather, kinds, real, write

from spikehtr.data.formats import ln
from spikehtr.data.samples import ImportReport


def make(root, **lists):
    for name, entries in lists.items():
        write(root / f"{name}.ln", "\n".join(entries))
        for entry in entries:
            draw(root / "lines" / entry)
            write((root / "lines" / entry).with_suffix(".txt"), f"text of {entry}\n")
    return root


def test_the_lists_of_a_folder_give_the_splits(tmp_path):
    samples, report = gather(ln.read, make(tmp_path, test=["c.png"], train=["a-00.png", "a.b.png"], val=["d.jpg"]))
    assert [(s.id, s.split, s.text) for s in samples] == [
        ("a-00", "train", "text of a-00.png"),
        ("a.b", "train", "text of a.b.png"),
        ("d", "validation", "text of d.jpg"),
        ("c", "test", "text of c.png"),
    ]
    assert not report.counts


def test_one_list_may_be_given_and_images_may_lie_beside_it(tmp_path):
    make(tmp_path, train=["a.png"], test=["b.png"])
    assert [sample.id for sample in gather(ln.read, tmp_path / "train.ln")[0]] == ["a"]
    for file in (tmp_path / "lines").iterdir():
        file.rename(tmp_path / file.name)
    (tmp_path / "lines").rmdir()
    assert [sample.id for sample in gather(ln.read, tmp_path)[0]] == ["a", "b"]


def test_rows_may_name_a_folder(tmp_path):
    make(tmp_path, train=["a.png"])
    write(tmp_path / "train.ln", "lines/a.png\n./lines/none.png\n")
    samples, report = gather(ln.read, tmp_path)
    assert [sample.id for sample in samples] == ["lines/a"]
    assert kinds(report) == {"image missing": 1}


def test_what_is_missing_is_reported_entry_by_entry(tmp_path):
    make(tmp_path, train=["a.png", "b.png", "c.png"])
    (tmp_path / "lines/a.png").unlink()
    (tmp_path / "lines/b.txt").unlink()
    samples, report = gather(ln.read, tmp_path)
    assert [sample.id for sample in samples] == ["c"]
    assert kinds(report) == {"image missing": 1, "text missing": 1}
    assert report.problems[0].where == f"{tmp_path / 'train.ln'}, row 1"


def test_an_image_listed_twice_is_told_apart(tmp_path):
    make(tmp_path, train=["a.png"], test=["a.png"])
    samples, report = gather(ln.read, tmp_path)
    assert [sample.id for sample in samples] == ["a", "a~2"]
    assert kinds(report) == {"name used twice": 1}


def test_names_that_cannot_be_files_are_missing_images(tmp_path):
    make(tmp_path, train=["a.png"])
    with (tmp_path / "train.ln").open("ab") as file:
        file.write(b"\n" + b"x" * 70_000 + b"\nnul\0.png\n..\n\xff.png\n")
    samples, report = gather(ln.read, tmp_path)
    assert len(samples) == 1
    assert kinds(report) == {"image missing": 4, "wrong encoding": 1}


def resident() -> int:
    """This process's memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured by /proc")
def test_a_list_of_a_million_lines_is_streamed(tmp_path):
    make(tmp_path, train=["a.png"])
    with (tmp_path / "train.ln").open("w") as file:
        file.writelines(f"missing-{number}.png\n" for number in range(999_999))
        file.write("a.png\n")
    report = ImportReport(keep=10)
    before, start = resident(), time.perf_counter()
    used = sum(1 for _ in ln.read(tmp_path, report))
    seconds, grown = time.perf_counter() - start, resident() - before
    print(f"a million rows in {seconds:.1f} s, {grown / 2**20:.0f} MiB more")
    assert (used, report.counts) == (1, {("error", "image missing"): 999_999})
    assert len(report.problems) == 10
    assert grown < 50 * 2**20  # the list alone is 19 MB, its names as strings over 60


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("iam", (6482, 976, 2915)),
        pytest.param("lam", (19830, 2470, 3523), marks=pytest.mark.slow),
        pytest.param("read2016", (8349, 1040, 1138), marks=pytest.mark.slow),
    ],
)
def test_the_papers_lists_give_the_papers_counts(tmp_path, name, counts):
    lists = real(f"splits/{name}")
    (tmp_path / "lines").mkdir()
    image = draw(tmp_path / "one.png", (1, 1))
    text = write(tmp_path / "one.txt", "x")
    for file in lists.glob("*.ln"):
        shutil.copy(file, tmp_path)
        for entry in file.read_text().split():
            target = tmp_path / "lines" / entry
            os.link(image, target)
            os.link(text, target.with_suffix(".txt"))
    report = ImportReport()
    found = Counter(sample.split for sample in ln.read(tmp_path, report))
    shutil.rmtree(tmp_path / "lines")
    assert (found["train"], found["validation"], found["test"]) == counts
    assert not report.counts
