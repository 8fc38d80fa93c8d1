"""The workbench by its endpoints: the loop of an archivist, two people on one page, and everything after a restart."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from editing_help import boxes
from lxml import etree
from PIL import Image
from serve_help import Browser, draw_page, served, small_model
from starlette.testclient import TestClient

from spikehtr.assets import LANGUAGE_MODEL, SEGMENTER
from spikehtr.data.formats.page_xml import parse
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import Segmenter
from spikehtr.recognizer import Recognizer
from spikehtr.serve.alternatives import as_kept
from spikehtr.serve.app import make_app
from spikehtr.serve.backup import write_backup
from spikehtr.serve.models import Models, check_file
from spikehtr.serve.page_parsing import parse_file
from spikehtr.serve.project import Project
from spikehtr.serve.workbench import Workbench


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    draw_page(tmp_path / "page.png")
    with served(tmp_path) as opened:
        yield opened


def test_pages_of_a_folder_are_found_read_and_written_beside_their_images(browser: Browser, tmp_path: Path) -> None:
    pages = browser.get("/api/pages")
    assert [page["name"] for page in pages["pages"]] == ["page"]
    assert pages["counts"]["read"] == 1
    page = browser.page(1)
    assert len(page["lines"]) >= 3
    assert all(line["by"] == "machine" and not line["corrected"] for line in page["lines"])
    browser.client.app.state.bench.files.flush()  # type: ignore[attr-defined]
    found = parse(etree.parse(tmp_path / "page.xml").getroot())
    assert [line.text for line in found.lines] == [line["text"] for line in page["lines"]]
    assert all(line.by == "machine" for line in found.lines if line.text)


def test_a_reading_is_the_direct_reader_s_with_a_box_for_each_character(browser: Browser, tmp_path: Path) -> None:
    direct = Recognizer.load(small_model()).transcribe_page(tmp_path / "page.png")
    page = browser.page(1)
    assert [line["text"] for line in page["lines"]] == [line.text for line in direct.lines]
    for line in page["lines"]:
        reading = line["reading"]
        assert "".join(character[0] for character in reading["characters"]) == reading["text"] == line["text"]
        assert all(
            0 <= c[1] <= 1 and 0 <= c[2] <= c[4] <= 400 and 0 <= c[3] <= c[5] <= 300 for c in reading["characters"]
        )


def test_an_edit_is_there_after_a_restart_and_so_is_its_undo(tmp_path: Path) -> None:
    draw_page(tmp_path / "page.png")
    with served(tmp_path) as browser:
        line = browser.line(1)
        browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "corrected"})
    with served(tmp_path) as browser:
        page = browser.page(1)
        assert page["lines"][0]["text"] == "corrected"
        assert page["lines"][0]["corrected"]
        assert page["undo"]["label"] == "set_text"
        change = browser.send("/api/pages/1/undo", {"expect": page["undo"]["seq"]})
        assert change["lines"][0]["text"] == line["text"]
        change = browser.send("/api/pages/1/redo", {"expect": change["redo"]["seq"]})
        assert change["lines"][0]["text"] == "corrected"


def test_of_two_people_on_one_line_the_second_gets_a_409_with_what_to_merge(browser: Browser) -> None:
    other = Browser(browser.client, "other")
    line = browser.line(1)
    op = {"op": "set_text", "line": line["id"], "version": line["version"]}
    browser.edit(1, op | {"text": "first"})
    answer = other.edit(1, op | {"text": "second"}, status=409)
    assert answer["error"]["code"] == "conflict"
    (conflict,) = answer["conflicts"]
    assert conflict["current"]["text"] == "first"
    assert conflict["base"]["text"] == line["text"]
    assert browser.line(1)["text"] == "first"
    merged = other.edit(1, op | {"text": "both", "version": conflict["current"]["version"]})
    assert merged["lines"][0]["text"] == "both"


def test_different_lines_of_a_page_are_no_conflict(browser: Browser) -> None:
    other = Browser(browser.client, "other")
    first, second = browser.page(1)["lines"][:2]
    for tab, line in ((browser, first), (other, second)):
        tab.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": f"of {line['id']}"})
    assert [line["text"] for line in browser.page(1)["lines"][:2]] == [f"of {first['id']}", f"of {second['id']}"]


def test_a_machine_s_reading_is_no_conflict_and_never_replaces_a_person_s_text(browser: Browser) -> None:
    page = browser.page(1)
    line, other = page["lines"][:2]
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "by hand"})
    job = browser.send("/api/jobs", {"kind": "read", "pages": "all", "again": True}, 202)["job"]
    assert browser.wait_for_job(job["id"])["state"] == "done"
    browser.edit(1, {"op": "set_text", "line": other["id"], "version": other["version"], "text": "also"})
    assert browser.line(1)["text"] == "by hand"


def test_a_line_is_read_again_when_its_outline_moved_and_both_are_one_step(browser: Browser) -> None:
    line = browser.line(1)
    xs, ys = zip(*line["polygon"], strict=True)
    half = [[min(xs), min(ys)], [sum(xs) // len(xs), min(ys)], [sum(xs) // len(xs), max(ys)], [min(xs), max(ys)]]
    change = browser.edit(1, {"op": "reshape", "line": line["id"], "version": line["version"], "polygon": half})
    assert change["lines"][0]["stale"]
    browser.client.app.state.bench.rest()  # type: ignore[attr-defined]
    page = browser.page(1)
    assert not page["lines"][0]["stale"]
    assert page["lines"][0]["text"] != line["text"]
    assert page["seq"] > change["seq"]
    back = browser.send("/api/pages/1/undo", {"expect": page["undo"]["seq"]})
    assert back["lines"][0]["text"] == line["text"]
    assert back["lines"][0]["polygon"] == line["polygon"]


def test_split_and_join_share_out_text_and_outline(browser: Browser) -> None:
    line = browser.line(1)
    edit = {"op": "set_text", "line": line["id"], "version": line["version"], "text": "left right"}
    version = browser.edit(1, edit)["lines"][0]["version"]
    xs = [x for x, _ in line["polygon"]]
    split = {"op": "split", "line": line["id"], "version": version, "x": (min(xs) + max(xs)) / 2, "ref": "right"}
    change = browser.edit(1, split)
    lines = {one["id"]: one for one in change["lines"]}
    left, right = lines[line["id"]], lines[change["created"]["right"]]
    assert (left["text"], right["text"]) == ("left", "right")
    assert max(x for x, _ in left["polygon"]) <= split["x"] + 1 <= min(x for x, _ in right["polygon"]) + 2
    join = {"op": "join", "lines": [left["id"], right["id"]], "versions": [left["version"], right["version"]]}
    joined = browser.edit(1, join)
    assert joined["deleted"] == [right["id"]]
    assert joined["lines"][0]["text"] == "left right"
    baseline = joined["lines"][0]["baseline"]
    assert all(a != b for a, b in pairwise(baseline))  # where it was cut it has one point: a file keeps no more


def test_lines_and_regions_are_drawn_moved_and_deleted(tmp_path: Path) -> None:
    draw_page(tmp_path / "page.png")
    with served(tmp_path) as browser:
        browser.send("/api/settings", {"reread": False}, method="PATCH")
        page = browser.page(1)
        region = page["regions"][0]
        delete = {"op": "delete_region", "region": region["id"], "version": region["version"], "seq": page["seq"]}
        browser.edit(1, *(delete | {"region": r["id"], "version": r["version"]} for r in page["regions"]))
        change = browser.edit(
            1, *boxes(), {"op": "add_region", "ref": "r", "kind": "heading", "lines": ["@2"], "before": None}
        )
        ids = change["created"]
        assert [len(r["lines"]) for r in change["regions"]] == [3, 1]
        lines = {line["id"]: line for line in change["lines"]}
        place = {"op": "place", "line": ids["3"], "version": lines[ids["3"]]["version"], "region": ids["r"]}
        change = browser.edit(1, place | {"before": ids["2"]})
        assert change["regions"][1]["lines"] == [ids["3"], ids["2"]]
        order = [region["id"] for region in change["regions"]][::-1]
        change = browser.edit(1, {"op": "order_regions", "version": change["order_version"], "regions": order})
        assert [line["id"] for line in browser.page(1)["lines"]] == [ids["3"], ids["2"], ids["0"], ids["1"]]


def test_images_come_whole_halved_and_as_lines(browser: Browser, tmp_path: Path) -> None:
    Image.new("RGB", (3000, 2000), "white").save(tmp_path / "large.tif")
    browser.wait_for_job(browser.send("/api/jobs", {"kind": "scan"}, 202)["job"]["id"])
    page = browser.get("/api/pages")["pages"][1]
    assert page["levels"] == 3
    sizes = []
    for level in range(3):
        answer = browser.client.get(f"{page['image_url']}&level={level}")
        assert "immutable" in answer.headers["cache-control"]
        sizes.append(Image.open(io.BytesIO(answer.content)).size)
    assert sizes == [(3000, 2000), (1500, 1000), (750, 500)]
    assert max(Image.open(io.BytesIO(browser.client.get(page["thumbnail_url"]).content)).size) == 320
    line = browser.line(1)
    data = browser.client.get(f"/api/pages/1/lines/{line['id']}/image?height=32").content
    assert Image.open(io.BytesIO(data)).height == 32
    browser.get("/api/pages/1/image?level=7", 404)


def test_alternatives_stand_beside_each_character_that_is_read(browser: Browser) -> None:
    line = browser.line(1)
    found = browser.get(f"/api/pages/1/lines/{line['id']}/alternatives")
    assert found["text"].split() == line["text"].split()
    assert any(others for _, others in found["characters"])
    assert all(0 < share < 1 for _, others in found["characters"] for _, share in others)


def test_alternatives_belong_to_the_characters_that_the_reading_keeps(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelled = [[sign, [["x", 0.1]]] for sign in " ae\u0301  b "]
    assert as_kept(spelled) == [["a", [["x", 0.1]]], ["é", []], [" ", [["x", 0.1]]], ["b", [["x", 0.1]]]]
    bench = browser.client.app.state.bench  # type: ignore[attr-defined]
    line = browser.line(1)
    assert browser.get(f"/api/pages/1/lines/{line['id']}/alternatives")["characters"]
    model = bench.model()
    monkeypatch.setattr(bench, "model", lambda: model)
    fit = model.fit
    monkeypatch.setattr(model, "fit", lambda image: fit(Image.new("L", (600, 40), 255)))  # it reads otherwise by now
    assert browser.get(f"/api/pages/1/lines/{line['id']}/alternatives")["characters"] == []


def test_find_and_replace_is_one_step_a_page_and_leaves_what_changed_meanwhile(browser: Browser) -> None:
    first, second = browser.page(1)["lines"][:2]
    for line in (first, second):
        browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "Haus und Haus"})
    hits = browser.get("/api/search?q=haus")["hits"]
    assert [hit["spans"] for hit in hits] == [[[0, 4], [9, 13]]] * 2
    assert browser.get("/api/search?q=haus&case=1")["total"] == 0
    assert browser.get("/api/search?q=H(a|u)*s%20und&regex=1")["total"] == 2
    lines = [{"page": 1, "line": hit["line"], "version": hit["version"]} for hit in hits]
    lines[1]["version"] += 1000
    done = browser.send("/api/replace", {"q": "Haus", "replacement": "Hof", "lines": lines})
    assert done["replaced"] == 1
    assert [conflict["line"] for conflict in done["conflicts"]] == [second["id"]]
    page = browser.page(1)
    assert [line["text"] for line in page["lines"][:2]] == ["Hof und Hof", "Haus und Haus"]
    assert page["undo"]["label"] == "replace"


def test_an_expression_that_takes_for_ever_is_ended(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spikehtr.serve.safe_regex._SECONDS", 0.5)
    line = browser.line(1)
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "a" * 60})
    answer = browser.get("/api/search?q=(a|aa)%2Bb&regex=1", 422)
    assert "simpler" in answer["error"]["remedy"]


def test_the_least_sure_lines_come_first_and_corrected_ones_not(browser: Browser) -> None:
    queue = browser.get("/api/queue")
    confidences = [line["confidence"] for line in queue["lines"]]
    assert confidences == sorted(confidences)
    first = queue["lines"][0]
    browser.edit(1, {"op": "confirm", "line": first["line"], "version": first["version"]})
    after = browser.get("/api/queue")
    assert after["total"] == queue["total"] - 1
    assert first["line"] not in [line["line"] for line in after["lines"]]


def test_pages_go_out_in_every_format(browser: Browser, tmp_path: Path) -> None:
    line = browser.line(1)
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "Straße <b>"})
    for form, mark in (
        ("page", b"PcGts"),
        ("alto", b"<alto"),
        ("hocr", b"ocr_page"),
        ("tei", b"tei-c.org"),
        ("text", "Straße <b>".encode()),
        ("json", b"spikehtr-page-1"),
    ):
        answer = browser.client.get(f"/api/export?format={form}&pages=1")
        assert mark in answer.content
        assert answer.headers["content-disposition"].startswith("attachment")
        if form in ("page", "hocr", "tei"):
            assert "Straße <b>" in " ".join(etree.fromstring(answer.content).itertext())
    draw_page(tmp_path / "box" / "two.png", seed=9)
    browser.send("/api/jobs", {"kind": "scan"}, 202)
    browser.wait_for_all()
    archive = zipfile.ZipFile(io.BytesIO(browser.client.get("/api/export?format=text&images=1").content))
    assert sorted(archive.namelist()) == ["box/two.png", "box/two.txt", "page.png", "page.txt"]
    table = pq.read_table(io.BytesIO(browser.client.get("/api/export?format=parquet").content))
    assert table["text"].to_pylist() == ["Straße <b>"]
    assert not list(tmp_path.glob(".spikehtr/export-*"))


@pytest.mark.parametrize("fault", ["a read-only folder", "a broken file"])
def test_a_page_goes_out_also_where_its_file_cannot_be_written(
    fault: str, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = browser.client.app.state.bench  # type: ignore[attr-defined]
    bench.files.flush()
    if fault == "a broken file":
        (tmp_path / "page.xml").write_text("<PcGts", encoding="utf-8")
    else:

        def refuse(_: object) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(bench.project.results, "writing", refuse)
    line = browser.line(1)
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "goes out"})
    out = browser.client.get("/api/export?format=page&pages=1")
    assert out.status_code == 200, out.text
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "page.xml").write_bytes(out.content)
    assert (
        parse_file(tmp_path / "out" / "page.xml", tmp_path / "page.png").state.lines[line["id"]]["text"] == "goes out"
    )
    archive = browser.client.get("/api/export?format=page&images=1")
    assert zipfile.ZipFile(io.BytesIO(archive.content)).namelist() == ["page.xml", "page.png"]


def test_uploads_are_taken_by_their_content_and_nothing_is_replaced(browser: Browser, tmp_path: Path) -> None:
    image = io.BytesIO()
    Image.new("L", (300, 200), 255).save(image, "PNG")
    files = [
        ("files", ("page.png", image.getvalue(), "image/png")),
        ("files", ("../../etc/evil.png", image.getvalue(), "image/png")),
        ("files", ("script.png", b"<script>alert(1)</script>", "image/png")),
        ("files", ("archive.zip", b"PK\x03\x04....", "application/zip")),
        ("files", ("wrong.jpg", image.getvalue(), "image/jpeg")),
        ("files", ("empty.png", b"", "image/png")),
    ]
    before = (tmp_path / "page.png").read_bytes()
    answer = browser.client.post("/api/uploads", files=files, headers=browser.headers)
    assert answer.status_code == 202, answer.text
    job = browser.wait_for_job(answer.json()["job"]["id"])
    assert sorted(problem["title"] for problem in job["problems"]) == ["archive.zip", "empty.png", "script.png"]
    assert (tmp_path / "page.png").read_bytes() == before
    names = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.png")} | {
        f.name for f in tmp_path.glob("*.jpg")
    }
    assert names >= {"page.png", "page~2.png", "etc/evil.png", "wrong.png"}
    assert len(browser.get("/api/pages")["pages"]) == 4
    again = browser.client.post("/api/uploads", files=files[:1], headers=browser.headers).json()["job"]["id"]
    browser.wait_for_job(again)
    assert not (tmp_path / "page~3.png").exists()


def test_settings_are_checked_and_kept(tmp_path: Path) -> None:
    with served(tmp_path) as browser:
        changed = browser.send("/api/settings", {"language": "de", "ui.zoom": {"x": 1}}, method="PATCH")
        assert (changed["language"], changed["ui.zoom"]) == ("de", {"x": 1})
        for wrong in ({"language": "xx"}, {"threshold": 2}, {"colour": 1}, {"ui.a": "x" * 20_000}, {"reread": 1}):
            assert browser.send("/api/settings", wrong, 422, "PATCH")["error"]["code"] == "invalid"
        browser.send("/api/settings", {"model": "../secret"}, 404, "PATCH")
    with served(tmp_path) as browser:
        assert browser.get("/api/settings")["language"] == "de"


def test_the_model_that_the_server_was_started_with_is_in_use_until_another_is_chosen(browser: Browser) -> None:
    def in_use() -> list[str]:
        return [model["name"] for model in browser.get("/api/models")["models"] if model["current"]]

    assert browser.get("/api/session")["settings"]["model"] == "small"
    assert in_use() == ["small"]
    for name in ("bundled", "small"):
        assert browser.send("/api/settings", {"model": name}, method="PATCH")["model"] == name
        assert in_use() == [name]


def test_events_tell_every_browser_of_a_change(browser: Browser) -> None:
    told: list[tuple[str, object]] = []
    bench = browser.client.app.state.bench  # type: ignore[attr-defined]
    bench.project.broadcast.tell = lambda event, data: told.append((event, data))
    line = browser.line(1)
    browser.edit(1, {"op": "confirm", "line": line["id"], "version": line["version"]})
    (event, change), *_ = told
    assert event == "change"
    assert change["client"] == "tab"  # type: ignore[index]
    assert change["lines"][0]["corrected"]  # type: ignore[index]


def test_a_page_is_taken_out_and_put_back(browser: Browser, tmp_path: Path) -> None:
    browser.send("/api/pages/1", {"removed": True}, method="PATCH")
    assert browser.get("/api/pages")["pages"] == []
    assert [page["id"] for page in browser.get("/api/pages?removed=1")["pages"]] == [1]
    assert (tmp_path / "page.png").exists()
    browser.send("/api/pages/1", {"removed": False}, method="PATCH")
    assert len(browser.get("/api/pages")["pages"]) == 1


def test_a_backup_of_a_running_project_restores_all_of_it(browser: Browser, tmp_path: Path) -> None:
    line = browser.line(1)
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "kept"})
    job = browser.wait_for_job(browser.send("/api/jobs", {"kind": "backup"}, 202)["job"]["id"])
    assert browser.client.get(job["result"]["url"]).content.startswith(b"PK")
    file = write_backup(tmp_path, tmp_path / "out" / "backup.zip", images=True)
    zipfile.ZipFile(file).extractall(tmp_path / "restored")
    project = Project(tmp_path / "restored")
    assert project.log.state(1).lines[line["id"]]["text"] == "kept"
    project.close()


def test_the_server_is_there_before_pytorch_is() -> None:
    code = "import sys, spikehtr.cli.serve, spikehtr.serve.server; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_browser_that_comes_is_shown_a_page_before_the_reader_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spikehtr.serve.workbench._SHOWING", 60.0)
    draw_page(tmp_path / "page.png")
    bench = Workbench(tmp_path, small_model())
    bench.load_reader_soon(browser_comes=True)
    with TestClient(make_app(bench), base_url="http://localhost") as client:
        browser = Browser(client)
        while not (pages := browser.get("/api/pages")["pages"]):
            time.sleep(0.02)
        assert bench.models._loaded == {}
        assert (pages[0]["state"], bench.shown.is_set()) == ("new", False)
        assert client.get(pages[0]["thumbnail_url"]).status_code == 200
        browser.wait_for_all()
        assert browser.get("/api/pages")["pages"][0]["state"] == "read"
        assert list(bench.models._loaded) == ["small"]


def test_lines_are_found_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line network gets the reader's device, in the workbench and in the service beside it."""
    devices = []

    def noted(name: str, device: str = "cpu") -> Segmenter:
        devices.append((name, device))
        return lambda page: []

    for module in ("page_reading", "transcribe_service"):
        monkeypatch.setattr(f"spikehtr.serve.{module}.segmenter", noted)
    monkeypatch.setattr(Models, "get", lambda self, name: model)
    monkeypatch.setattr(Models, "device", "cuda:1")
    model = Recognizer.load(small_model(), "cpu")
    draw_page(tmp_path / "page.png")
    with served(tmp_path) as browser:
        image = (tmp_path / "page.png").read_bytes()
        assert browser.client.post("/v1/transcribe?as=page", content=image).status_code == 200
    assert devices == [("builtin", "cuda:1")] * 2


def test_a_model_file_that_is_none_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "text.safetensors").write_text("no model")
    for file, fault in (
        (tmp_path, "a folder"),
        (tmp_path / "none", "no such file"),
        (tmp_path / "text.safetensors", "not"),
        (LANGUAGE_MODEL, "spikehtr-1 .found spikehtr-lm-1"),
        (SEGMENTER, "not a recogniser's file"),
    ):
        with pytest.raises(SpikeHTRError, match=fault):
            check_file(file)
    check_file(small_model())
    check_file(Path("bundled"))
