"""A tab outlives its server, and another project is served at the same address."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import Server

from .browser_help import lines_of, open_line, texts, until, wait_until_read

pytestmark = pytest.mark.slow


def test_what_was_typed_for_one_project_never_reaches_another(
    workbench: Callable[..., Any], new_page: Callable[..., Any], tmp_path: Path
) -> None:
    server = workbench()
    url = server.url
    wait_until_read(url)
    line = lines_of(url)[3]["id"]
    tab = new_page()
    open_line(tab, url, line)
    server.stop()
    tab.keyboard.press("End")
    tab.keyboard.type(" kept")
    tab.wait_for_selector('.save-state[data-state="failed"]')

    (tmp_path / "other").mkdir()
    shutil.copy(server.folder / "page-1.jpg", tmp_path / "other")
    port = ("--port", url.rpartition(":")[2])
    other = Server(tmp_path / "other", None, *port)
    try:
        wait_until_read(url)
        assert lines_of(url)[3]["id"] == line, "both have a line of that name"
        tab.wait_for_selector(".empty[role=alert]")
        tab.click(".empty .primary")
        tab.click(".card-link")
        tab.wait_for_selector(".typing-field")
        tab.wait_for_timeout(500)
        assert not any("kept" in text for text in texts(url))
    finally:
        other.stop()

    again = Server(server.folder, None, *port)
    try:
        open_line(tab, url, line)
        until(lambda: any(text.endswith(" kept") for text in texts(url)), "sent to its own project")
    finally:
        again.stop()
