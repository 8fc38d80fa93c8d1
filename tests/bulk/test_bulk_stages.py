"""A bulk run's list of pages, its three stages, its report and its files: without Ray, which only calls them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bulk_help import FITTING, StubReader, find, options, page_image, write_pages
from PIL import Image

from iiif_help import IIIFServer, iiif_server
from spikehtr.bulk.plan import SCHEMA, write_plan
from spikehtr.bulk.report import summarise
from spikehtr.bulk.stages import OpenPages, ReadLines, Rows, Settings, finish_rows
from spikehtr.bulk.unpack import unpack
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.iiif import ClientOptions
from spikehtr.pages.inputs import find_sources
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.pages.read_pages import read_pages
from spikehtr.pages.result_names import ResultNames
from spikehtr.results import Character, Line, Page
from spikehtr.results.expected_error import ErrorEstimate

SETTINGS = Settings(StubReader, FITTING, options(), PageFormat("page"), ClientOptions())


@pytest.fixture
def server() -> Iterator[IIIFServer]:
    with iiif_server() as about:
        yield about


@pytest.fixture(scope="module")
def stages() -> Iterator[Any]:
    """All three stages, one after the other."""
    opener = OpenPages(SETTINGS)
    reader = ReadLines(SETTINGS)
    yield lambda rows: finish_rows(reader(opener(rows)), SETTINGS)
    opener._pool.__exit__(None, None, None)


def planned(folder: Path, *inputs: object, client: ClientOptions | None = None) -> list[dict[str, Any]]:
    write_plan(map(str, inputs), folder / "pages.parquet", client or ClientOptions(folder / "cache", 1000.0))
    rows: list[dict[str, Any]] = pq.read_table(folder / "pages.parquet").to_pylist()
    return rows


def columns(rows: list[dict[str, Any]]) -> Rows:
    """As Ray hands rows to a stage."""
    return {name: np.array([row[name] for row in rows], object) for name in SCHEMA.names}


def as_rows(found: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def keep(found: pa.Table, folder: Path) -> None:
    (folder / "results").mkdir(parents=True, exist_ok=True)
    pq.write_table(found, folder / "results" / f"{len(list((folder / 'results').iterdir()))}.parquet")


def one_by_one(files: list[Path]) -> dict[str, Page]:
    jobs = [job for source in find_sources(map(str, files)).sources for job in ResultNames().jobs(source)]
    done = {}
    for job in jobs:
        (result,) = read_pages(StubReader(), [job], ReadOptions(find, "page"))  # type: ignore[arg-type]
        assert isinstance(result.result, Page)
        done[job.name] = result.result
    return done


def test_results_are_those_of_one_page_at_a_time_and_errors_are_rows(
    tmp_path: Path, stages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    folder = write_pages(tmp_path / "scans", 5, poisoned=(2,))
    (folder / "p0009.png").write_bytes(b"no image")
    keep(stages(columns(planned(tmp_path, folder))), tmp_path / "run")
    report = summarise(tmp_path / "run" / "results", tmp_path / "pages.parquet")
    assert (report.pages, report.lines, report.missing, report.twice) == (4, 8, 0, 0)
    assert report.errors == {"crash": 1, "page": 1}
    assert "p0002: the process that worked on it ended (exit code 7)" in report.examples["crash"]
    assert report.expected_error is None  # the reader knows nothing of it
    assert "such as p0002" in report.to_text()
    done = unpack(tmp_path / "run", tmp_path / "files")
    assert (done.written, len(done.failed), done.left) == (4, 2, [])
    good = [folder / f"p{number:04d}.png" for number in (0, 1, 3, 4)]
    for name, page in one_by_one(good).items():
        text = (tmp_path / "files" / f"{name}.xml").read_text(encoding="utf-8")
        assert text.startswith(page.to_page())
        assert text.removeprefix(page.to_page()).startswith("<!-- spikehtr:digest=")


def test_a_row_has_the_estimate_that_the_model_gives_of_its_page_or_none(tmp_path: Path, stages: Any) -> None:
    class Knowing(StubReader):
        estimate = ErrorEstimate(0.9, -0.5)

        def _line(self, line: Any) -> Line:
            characters = [Character("a", 0.5 if place % 4 == 0 else 0.99, place, place + 1) for place in range(60)]
            return Line("a" * 60, 0.87, characters)

    rows = planned(tmp_path, write_pages(tmp_path / "scans", 3))
    opener = OpenPages(SETTINGS)
    settings = Settings(Knowing, FITTING, options(), PageFormat("page"), ClientOptions())
    found = finish_rows(ReadLines(settings)(opener(columns(rows[:2]))), settings)
    opener._pool.__exit__(None, None, None)
    expected = ErrorEstimate(0.9, -0.5).of_share(0.25)
    assert [row["expected_error"] for row in as_rows(found)] == pytest.approx([expected] * 2)
    unknown = stages(columns(rows[2:]))  # by a reader that tells nothing
    assert [row["expected_error"] for row in as_rows(unknown)] == [None]
    assert unknown.schema == found.schema
    keep(found, tmp_path / "run")
    keep(unknown, tmp_path / "run")
    report = summarise(tmp_path / "run" / "results", tmp_path / "pages.parquet")
    assert report.pages == 3
    assert report.expected_error == pytest.approx(expected)  # of the pages of which it can be told
    assert [name for name, _ in report.worst] == ["p0000", "p0001"]
    assert "expected character error" in report.to_text()


def test_files_that_somebody_changed_are_left(tmp_path: Path, stages: Any) -> None:
    keep(stages(columns(planned(tmp_path, write_pages(tmp_path / "scans", 2)))), tmp_path / "run")
    assert unpack(tmp_path / "run", tmp_path / "files").written == 2
    changed = tmp_path / "files" / "p0001.xml"
    changed.write_text("mine")
    again = unpack(tmp_path / "run", tmp_path / "files")
    assert (again.written, changed.read_text()) == (1, "mine")
    assert "changed since it was written" in again.left[0]


def test_a_page_that_is_there_twice_counts_once(tmp_path: Path, stages: Any) -> None:
    rows = planned(tmp_path, write_pages(tmp_path / "scans", 3))
    keep(stages(columns(rows[:2])), tmp_path / "run")
    keep(stages(columns(rows[1:2])), tmp_path / "run")
    report = summarise(tmp_path / "run" / "results", tmp_path / "pages.parquet")
    assert (report.pages, report.twice, report.missing) == (2, 1, 1)
    assert "1 pages are still to be done" in report.to_text()


def test_a_line_that_cannot_be_read_costs_its_page_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Picky(StubReader):
        def read_lines(self, lines: Any, *more: Any) -> Any:
            if any(line.pixels.shape[1] > 200 for line in lines):
                raise RuntimeError("too wide")
            return super().read_lines(lines)

    Image.new("L", (1500, 110), 220).save(write_pages(tmp_path / "scans", 2) / "wide.png")
    opener = OpenPages(SETTINGS)
    found = opener(columns(planned(tmp_path, tmp_path / "scans")))
    opener._pool.__exit__(None, None, None)
    settings = Settings(Picky, FITTING, options(), PageFormat("text"), ClientOptions())
    rows = {row["id"]: row for row in as_rows(finish_rows(ReadLines(settings)(found), settings))}
    assert [rows[name]["error_kind"] for name in ("p0000", "p0001", "wide")] == ["", "", "read"]
    assert rows["wide"]["error"] == "RuntimeError: too wide"
    assert "read" in rows["p0000"]["text"]
    assert "too wide" in caplog.text, "that they were not read together is told"


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_a_manifest_names_ids_and_locations(suffix: str, tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "scans", 2)
    with Image.open(folder / "p0000.png") as image:
        image.save(folder / "two.tif", save_all=True, append_images=[image])
    rows = [("0007", folder / "p0000.png"), ("b/2", folder / "two.tif"), ("c", "s3://bucket/x.jpg"), ("../d", "x.jpg")]
    rows += [("e", tmp_path / "nothing.tif"), ("f", ""), ("g", folder), ("h", "notes.txt")]
    file = tmp_path / f"list{suffix}"
    if suffix == ".parquet":
        names, places = zip(*rows, strict=True)
        pq.write_table(pa.table({"id": names, "uri": list(map(str, places)), "size": [1] * len(rows)}), file)
    else:
        with file.open("w", newline="") as opened:
            writer = csv.writer(opened, delimiter="," if suffix == ".csv" else "\t")
            writer.writerows([("page_id", "url", "size"), *((*row, 1) for row in rows)])
    found = {row["id"]: row for row in planned(tmp_path, file)}
    assert list(found) == ["0007", "b/2-0001", "b/2-0002", "c", "../d", "e", "f", "g", "h"]
    assert [found[name]["index"] for name in ("b/2-0001", "b/2-0002")] == [0, 1]
    assert [name for name, row in found.items() if row["error"]] == ["../d", "e", "f", "g", "h"]
    assert "cannot be a file's name" in found["../d"]["error"]


def test_ids_are_unique_by_themselves_or_that_is_told(tmp_path: Path) -> None:
    for box in ("a", "b"):
        write_pages(tmp_path / box, 1)
    assert [row["id"] for row in planned(tmp_path, tmp_path / "a", tmp_path / "b")] == ["p0000", "p0000~2"]
    file = tmp_path / "list.csv"
    file.write_text("id,location\nx,1.png\nx,2.png\n")
    with pytest.raises(SpikeHTRError, match=r"1 ids are there more than once \(x\)"):
        planned(tmp_path, file)
    file.write_text("id,where\nx,1.png\n")
    with pytest.raises(SpikeHTRError, match=r"name it 'location' \(found: id, where\)"):
        planned(tmp_path, file)
    file.write_bytes(b"PAR1")
    with pytest.raises(SpikeHTRError, match="cannot be read as a manifest"):
        planned(tmp_path, file.rename(tmp_path / "list.parquet"))


def test_pages_of_manifests_are_read_onto_their_canvases(server: IIIFServer, tmp_path: Path) -> None:
    address = server.add_manifest("book", [page_image(1), page_image(2)], scale=2.0)
    gone = f"{server.address}/gone/manifest.json"
    client = ClientOptions(tmp_path / "cache", 1000.0, attempts=1)
    rows = planned(tmp_path, address, gone, client=client)
    assert [row["id"] for row in rows][:2] == ["book-0001", "book-0002"]
    del server.images["book-2"]
    settings = Settings(StubReader, FITTING, options(), PageFormat("iiif"), client)
    opener = OpenPages(settings)
    found = as_rows(finish_rows(ReadLines(settings)(opener(columns(rows))), settings))
    opener._pool.__exit__(None, None, None)
    assert [row["error_kind"] for row in found] == ["", "page", "location"]
    (item, _) = json.loads(found[0]["document"])["items"]
    assert item["target"]["source"]["id"] == f"{server.address}/book/canvas/1"
    assert item["target"]["selector"][0]["value"] == "xywh=10,40,380,60"
    assert "404" in found[1]["error"]


def test_pages_come_by_any_protocol_of_fsspec(tmp_path: Path, stages: Any) -> None:
    folder = write_pages(tmp_path / "scans", 1)
    file = tmp_path / "list.csv"
    rows = [
        ("near", f"local://{folder / 'p0000.png'}"),
        ("far", "nosuch://x/1.png"),
        ("gone", f"local://{folder}/2.png"),
    ]
    file.write_text("id,location\n" + "".join(f"{name},{place}\n" for name, place in rows))
    found = {row["id"]: row for row in as_rows(stages(columns(planned(tmp_path, file))))}
    assert [found[name]["error_kind"] for name, _ in rows] == ["", "fetch", "fetch"]
    assert found["near"]["lines"] == 2
    assert "nosuch" in found["far"]["error"]
