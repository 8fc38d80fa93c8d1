"""What an import shows while it runs, and a folder that is dropped."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from .browser_help import ask, until
from .conftest import ASSETS

WATCH = """() => {
    window.told = [];
    const look = () => {
        const status = document.querySelector(".pages > .status");
        if (status) window.told.push([status.innerText, status.querySelector("progress").position]);
        requestAnimationFrame(look);
    };
    look();
}"""


@pytest.mark.slow
def test_an_import_shows_how_far_it_is_and_how_long_it_takes(
    workbench: Callable[..., Any], new_page: Callable[..., Any], tmp_path: Path
) -> None:
    url = workbench(pages=0).url
    frames = [Image.open(ASSETS / "sample-page.jpg").convert("L").resize((1200, 1600)) for _ in range(12)]
    frames[0].save(tmp_path / "book.tif", save_all=True, append_images=frames[1:], compression="tiff_deflate")
    shutil.copy(ASSETS / "sample-page.jpg", tmp_path / "letter.jpg")
    tab = new_page()
    tab.goto(url)
    tab.wait_for_selector(".empty")
    size = sum((tmp_path / name).stat().st_size for name in ("book.tif", "letter.jpg"))
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": size / 4}
    tab.context.new_cdp_session(tab).send("Network.emulateNetworkConditions", slow)
    tab.evaluate(WATCH)
    with tab.expect_file_chooser() as chooser:
        tab.click(".empty .primary")
    chooser.value.set_files([tmp_path / "book.tif", tmp_path / "letter.jpg"])
    tab.wait_for_selector(".card:nth-child(13)", timeout=120_000)

    told = tab.evaluate("window.told")
    sent = [(text, share) for text, share in told if text.startswith("Sending 2 files")]
    worked = [(text, share) for text, share in told if text.startswith("Importing")]
    for phase in (sent, worked):
        shares = [share for _, share in phase if share >= 0]
        assert any(0 < share < 1 for share in shares), phase[:5]
        assert any(re.search(r"About \d+ s left\.", text) for text, _ in phase), phase[-5:]
    shares = [share for _, share in sent]
    assert shares == sorted(shares)
    assert any(re.search(r"book\.tif, page \d+ of 12", text) for text, _ in worked)
    until(lambda: not tab.query_selector(".pages > .status"), "nothing is on its way any more")


def test_a_dropped_folder_comes_with_the_folders_in_it(
    workbench: Callable[..., Any], new_page: Callable[..., Any], tmp_path: Path
) -> None:
    server = workbench(pages=0)
    folder = tmp_path / "letters"
    for name in ("one.jpg", "1789/two.jpg", "1789/march/three.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ASSETS / "sample-page.jpg", folder / name)
    tab = new_page()
    tab.goto(server.url)
    tab.wait_for_selector(".empty")
    session = tab.context.new_cdp_session(tab)
    for kind in ("dragEnter", "dragOver", "drop"):
        data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 600, "y": 400, "data": data})
        if kind == "dragOver":
            tab.wait_for_selector(".drop-hint")
    tab.wait_for_selector(".card:nth-child(3)")
    assert not tab.query_selector(".drop-hint")
    names = {page["name"] for page in ask(f"{server.url}/api/pages")["pages"]}
    assert names == {"letters/one", "letters/1789/two", "letters/1789/march/three"}
    assert (server.folder / "letters" / "1789" / "march" / "three.jpg").is_file()
