"""What the tests of the workbench share: a folder with drawn pages, a small model, and clients."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from editing_help import ADA, boxes
from PIL import Image

from conftest import draw_line, micro

pytest.importorskip("starlette", reason="the extra `web` is not installed")
from starlette.testclient import TestClient

from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.serve.app import make_app
from spikehtr.serve.limits import Limits
from spikehtr.serve.project import Project
from spikehtr.serve.security import Access
from spikehtr.serve.workbench import Workbench
from spikehtr.text import Charset
from spikehtr.weights import save_model

TEXTS = ("some words on a", "page of paper", "written by hand", "and read again")


@cache
def small_model() -> Path:
    """The file of a network that knows letters and has learned nothing."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    torch.manual_seed(0)
    charset = Charset.from_texts(["abcdefghijklmnopqrstuvwxyz "])
    config = micro()
    save_model(folder / "small.safetensors", SpikeHTR(config.model, len(charset)), config, charset)
    return folder / "small.safetensors"


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Project]:
    project = Project(folder)
    project.log.db.execute("PRAGMA synchronous = OFF")  # no test here pulls the plug
    try:
        yield project
    finally:
        project.close()


def draw_page(file: Path, texts: tuple[str, ...] = TEXTS, seed: int = 0) -> None:
    """A page of 400 x 300 pixels, a line every 60."""
    page = np.full((300, 400), 230, np.uint8)
    for number, text in enumerate(texts):
        line = draw_line(text, 40, seed + number)
        page[30 + 60 * number : 70 + 60 * number, 20 : 20 + line.shape[1]] = line[:, : 400 - 20]
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(page).save(file)


def page_with_lines(project: Project) -> tuple[int, list[str]]:
    """A page's number and the ids of its four lines, drawn by a person."""
    file = project.folder / "page.png"
    if not file.exists():
        draw_page(file)
    page = project.add_page(file, None)
    assert page is not None
    *_, draft = project.edit(page, boxes(), ADA)
    return page, [draft.created[str(number)] for number in range(4)]


class Browser:
    """A tab of the workbench: it sends what a browser sends."""

    def __init__(self, client: TestClient, name: str = "tab") -> None:
        self.client = client
        self.headers = {"X-CSRF": client.get("/api/session").json()["csrf"], "X-Client": name}

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def send(self, path: str, body: dict[str, Any], status: int = 200, method: str = "POST") -> Any:
        answer = self.client.request(method, path, json=body, headers=self.headers)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def edit(self, page: int, *ops: dict[str, Any], status: int = 200) -> Any:
        return self.send(f"/api/pages/{page}/edits", {"ops": list(ops)}, status)

    def page(self, page: int) -> Any:
        return self.get(f"/api/pages/{page}")

    def line(self, page: int, place: int = 0) -> Any:
        return self.page(page)["lines"][place]

    def wait_for_job(self, number: int, seconds: float = 60.0) -> Any:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            job = self.get(f"/api/jobs/{number}")["job"]
            if job["state"] not in ("queued", "running"):
                return job
            time.sleep(0.02)
        raise AssertionError(f"job {number} goes on: {job}")

    def wait_for_all(self) -> None:
        """Until no job is left, those that a job began included."""
        while unfinished := [j["id"] for j in self.get("/api/jobs")["jobs"] if j["state"] in ("queued", "running")]:
            self.wait_for_job(unfinished[-1])


@contextlib.contextmanager
def served(
    folder: Path,
    limits: Limits | None = None,
    access: Access | None = None,
    address: str = "http://localhost",
    model: Path | None = None,
) -> Iterator[Browser]:
    """A workbench of a folder, started and at rest."""
    bench = Workbench(folder, model or small_model())
    with TestClient(make_app(bench, access, limits), base_url=address, raise_server_exceptions=False) as client:
        if access is not None and access.token is not None:
            client.headers["Authorization"] = f"Bearer {access.token}"
        browser = Browser(client)
        browser.wait_for_all()
        yield browser
