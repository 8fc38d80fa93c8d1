"""A browser and a workbench to drive with it: the real server on the sample page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from server_process import Server

import spikehtr

STATIC = Path(spikehtr.__file__).parent / "serve" / "static"
ASSETS = Path(spikehtr.__file__).parent / "assets"
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra `dev`)")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no browser here: apt-get install chromium-headless-shell")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs, each with a profile of its own; a fault of a script, or a refusal of the policy, fails the test."""
    contexts: list[Any] = []
    faults: list[str] = []

    def open_page(width: int = 1280, height: int = 720, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, **{"locale": "en-US", **options})
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts workbenches on a new folder with `pages` copies of the sample page; `model`: None is the bundled one."""
    servers: list[Server] = []

    def start(pages: int = 1, model: Path | None = None) -> Server:
        folder = tmp_path / f"project-{len(servers)}"
        folder.mkdir()
        for number in range(pages):
            shutil.copy(ASSETS / "sample-page.jpg", folder / f"page-{number + 1}.jpg")
        servers.append(Server(folder, model))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def modules(new_page: Callable[..., Any]) -> Any:
    """A tab that can import the front end's files; no server: they come from the package."""
    page = new_page()

    def serve(route: Any) -> None:
        path = route.request.url.split("/static/")[-1]
        file = STATIC / path
        if path.endswith(".js"):
            route.fulfill(body=file.read_bytes(), content_type="text/javascript")
        else:
            route.fulfill(body="<!doctype html><title>empty</title>", content_type="text/html")

    page.route("**/*", serve)
    page.goto("http://front.end/")
    return page
