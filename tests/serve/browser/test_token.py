"""Who has no token is asked for it, also by a link to a page, and comes in with the right one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import Server

from .conftest import ASSETS

pytestmark = pytest.mark.slow
TOKEN = "a token of some length"


def test_the_token_is_asked_for_and_the_page_opens_with_it(
    new_page: Callable[..., Any], chromium: Any, tmp_path: Path
) -> None:
    shutil.copy(ASSETS / "sample-page.jpg", tmp_path)
    server = Server(tmp_path, None, "--token", TOKEN)
    try:
        tab = new_page()
        tab.goto(f"{server.url}/p/page/1")
        for token in ("a wrong one", TOKEN):
            tab.fill("input[type=password]", token)
            tab.keyboard.press("Enter")
            if token != TOKEN:
                assert "not right" in tab.inner_text(".login [role=alert]")
        tab.wait_for_selector(".viewer-picture")
        tab.reload()
        tab.wait_for_selector(".viewer-picture")
    finally:
        server.stop()
