"""Files of every kind come in by the browser's upload, pages of IIIF manifests by their address; all are read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from serve_help import Browser, draw_page, served

from iiif_help import iiif_server
from spikehtr.serve.limits import Limits


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setattr("spikehtr.pages.iiif.limiter.RateLimiter.wait", lambda *_: None)
    (tmp_path / "project").mkdir()
    with served(tmp_path / "project", Limits(allow_private_iiif=True)) as opened:
        yield opened


def drawn(folder: Path, seed: int = 0) -> Image.Image:
    draw_page(folder / "drawn.png", seed=seed)
    with Image.open(folder / "drawn.png") as image:
        return image.copy()


def several(folder: Path, form: str, count: int) -> bytes:
    data = io.BytesIO()
    first, *others = (drawn(folder, 10 * number) for number in range(count))
    options = {"resolution": 150} if form == "PDF" else {}
    first.save(data, form, save_all=True, append_images=others, **options)
    return data.getvalue()


def import_files(browser: Browser, files: dict[str, bytes], folder: str = "") -> dict[str, str]:
    """Uploads, waits until all are read; what was wrong with which."""
    parts = [("files", (name, data)) for name, data in files.items()]
    answer = browser.client.post("/api/uploads", files=parts, data={"folder": folder}, headers=browser.headers)
    assert answer.status_code == 202, answer.text
    job = browser.wait_for_job(answer.json()["job"]["id"])
    assert job["state"] == "done", job
    browser.wait_for_all()
    return {problem["title"]: problem["reason"] for problem in job["problems"]}


def check_read(browser: Browser, names: list[str]) -> None:
    pages = browser.get("/api/pages")["pages"]
    assert sorted(page["name"] for page in pages) == names
    for page in pages:
        assert page["state"] == "read", page
        assert page["lines_read"] == page["lines"] >= 3, page
        assert browser.client.get(page["image_url"]).status_code == 200


def test_the_pages_of_pdf_and_tiff_files_become_images_and_are_read(browser: Browser, tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2", reason="the extra `pdf` is not installed")
    pdf, tiff = several(tmp_path, "PDF", 2), several(tmp_path, "TIFF", 3)
    assert import_files(browser, {"letter.pdf": pdf, "scan.tif": tiff, "broken.pdf": pdf[:300]}).keys() == {
        "broken.pdf"
    }
    check_read(browser, ["letter-0001", "letter-0002", "scan-0001", "scan-0002", "scan-0003"])
    browser.client.app.state.bench.files.flush()  # type: ignore[attr-defined]
    assert (tmp_path / "project" / "letter-0001.xml").exists()
    import_files(browser, {"letter.pdf": pdf})  # again: nothing twice
    assert len(browser.get("/api/pages")["pages"]) == 5


@pytest.mark.parametrize("form", ["page", "alto"])
def test_page_and_alto_files_bring_their_lines_and_texts_along(form: str, browser: Browser, tmp_path: Path) -> None:
    image = io.BytesIO()
    drawn(tmp_path).save(image, "PNG")
    assert import_files(browser, {"one.png": image.getvalue()}) == {}
    line = browser.line(1)
    browser.edit(1, {"op": "set_text", "line": line["id"], "version": line["version"], "text": "brought along"})
    data = browser.client.get(f"/api/export?format={form}&pages=1").content
    (tmp_path / "second").mkdir()
    with served(tmp_path / "second") as second:
        assert import_files(second, {"one.png": image.getvalue(), "one.xml": data}, "box/7") == {}
        (page,) = second.get("/api/pages")["pages"]
        assert page["name"] == "box/7/one"
        lines = second.page(page["id"])["lines"]
        assert lines[0]["text"] == "brought along"
        assert [one["text"] for one in lines] == [one["text"] for one in browser.page(1)["lines"]]


@pytest.mark.parametrize("version", [2, 3])
def test_the_pages_of_a_iiif_manifest_are_fetched_and_read(version: int, browser: Browser, tmp_path: Path) -> None:
    with iiif_server() as server:
        address = server.add_manifest("book", [drawn(tmp_path, 0), drawn(tmp_path, 10)], version)
        job = browser.send("/api/jobs", {"kind": "import", "url": address}, 202)["job"]
        done = browser.wait_for_job(job["id"])
        assert (done["state"], done["problems"]) == ("done", [])
        browser.wait_for_all()
        names = sorted(page["name"] for page in browser.get("/api/pages")["pages"])
        check_read(browser, names)
        assert [name.rpartition("/")[2] for name in names] == ["0001", "0002"]


def test_a_manifest_with_faults_brings_what_is_sound_and_names_the_rest(browser: Browser, tmp_path: Path) -> None:
    with iiif_server() as server:
        address = server.add_manifest("book", [drawn(tmp_path, 0), drawn(tmp_path, 10)])
        del server.images["book-1"]
        job = browser.send("/api/jobs", {"kind": "import", "url": address}, 202)["job"]
        done = browser.wait_for_job(job["id"])
        assert done["state"] == "done"
        assert [problem["title"].rpartition(", ")[2] for problem in done["problems"]] == ["page 1"]
        assert len(browser.get("/api/pages")["pages"]) == 1
        server.documents["/none.json"] = b"<html>no manifest</html>"
        for wrong in ("/none.json", "/nothing.json"):
            job = browser.send("/api/jobs", {"kind": "import", "url": server.address + wrong}, 202)["job"]
            failed = browser.wait_for_job(job["id"])
            assert failed["state"] == "failed"
            assert wrong in failed["error"]["message"]


def test_a_file_for_a_page_that_is_there_already_is_told_and_its_lines_stay(browser: Browser, tmp_path: Path) -> None:
    image = io.BytesIO()
    drawn(tmp_path).save(image, "PNG")
    import_files(browser, {"one.png": image.getvalue()})
    before = browser.page(1)["lines"]
    own = browser.client.get("/api/export?format=page&pages=1").content
    problems = import_files(browser, {"late.xml": own.replace(b"some words", b"other words")})
    assert "one.png is a page already" in problems["late.xml"]
    assert "in the place of one.xml" in problems["late.xml"]
    assert browser.page(1)["lines"] == before
    (tmp_path / "project" / "late.xml").unlink()
    assert import_files(browser, {"one.png": image.getvalue()}) == {}


def test_an_image_that_is_gone_or_another_is_told_until_it_is_back(browser: Browser, tmp_path: Path) -> None:
    def scan() -> str | None:
        job = browser.send("/api/jobs", {"kind": "scan"}, 202)["job"]["id"]
        told = [problem["reason"] for problem in browser.wait_for_job(job)["problems"]]
        (page,) = browser.get("/api/pages")["pages"]
        assert told == [page["problem"]] * bool(page["problem"])
        return page["problem"]  # type: ignore[no-any-return]

    file = tmp_path / "project" / "one.png"
    draw_page(file)
    assert scan() is None
    browser.wait_for_all()
    assert browser.client.app.state.bench.files.flush()  # type: ignore[attr-defined]
    kept = file.rename(tmp_path / "one.png")
    assert "not there" in (scan() or "")
    Image.new("L", (410, 300)).save(file)
    assert "410 x 300 pixels now, its lines were drawn on 400 x 300" in (scan() or "")
    file.write_bytes(b"nothing")
    assert "cannot be read" in (scan() or "")
    kept.replace(file)
    assert scan() is None
