"""The front end's files: under addresses that change with them, and all named in the page that loads them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from serve_help import served

from spikehtr.serve import app
from spikehtr.serve.app import STATIC, front_page


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the front end, served instead of the package's."""
    copy = tmp_path / "static"
    shutil.copytree(STATIC, copy)
    monkeypatch.setattr(app, "STATIC", copy)
    return copy


def addresses(page: str) -> list[str]:
    return re.findall(r'(?:src|href)="([^"]+)"', page)


def test_all_that_the_page_names_is_kept_for_good_and_else_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    with served(folder) as browser:
        page = browser.client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        named = addresses(page.text)
        assert {Path(name).name for name in named} >= {path.name for path in STATIC.rglob("*.js")} | {"base.css"}
        for address in named:
            answer = browser.client.get(address)
            assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True), address
            assert browser.client.get(address, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        plain = browser.client.get("/static/app.js")
        assert (plain.status_code, plain.headers["cache-control"]) == (200, "no-cache")
        missing = browser.client.get(named[0].replace("icon", "nothing"))
        assert (missing.status_code, "immutable" in missing.headers.get("cache-control", "")) == (404, False)


def test_every_module_is_named_that_another_imports() -> None:
    """Else the browser learns of it only by reading the other."""
    named = {Path(re.sub(r"^/static/\w{16}/", "", one)) for one in addresses(front_page(STATIC))}
    for module in STATIC.rglob("*.js"):
        for other in re.findall(r'from\s*"(\.[^"]+)"', module.read_text(encoding="utf-8")):
            wanted = Path(os.path.normpath(module.parent / other)).relative_to(STATIC)
            assert wanted in named, f"{module}: {other}"


@pytest.mark.parametrize("change", ["other text", "a new file", "a file less"])
def test_a_changed_file_has_another_address(change: str, static: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    with served(folder) as browser:
        (before,) = [one for one in addresses(browser.client.get("/").text) if one.endswith("/text.js")]
        if change == "other text":
            (static / "text.js").write_text("export const other = 1;", encoding="utf-8")
        elif change == "a new file":
            (static / "new.js").write_text("", encoding="utf-8")
        else:
            (static / "app.js").unlink()
        (after,) = [one for one in addresses(browser.client.get("/").text) if one.endswith("/text.js")]
        assert before != after
        assert browser.client.get(before).headers["cache-control"] == "no-cache"  # an open tab's; never kept for good
        assert "immutable" in browser.client.get(after).headers["cache-control"]
        for address in (before, after):
            assert browser.client.get(address).content == (static / "text.js").read_bytes()


def test_an_address_says_what_the_files_hold_not_when_they_were_written_or_where(static: Path, tmp_path: Path) -> None:
    shutil.copytree(static, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "text.js").touch()
    assert front_page(tmp_path / "elsewhere") == front_page(static)
