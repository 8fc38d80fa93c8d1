"""What a person does in the workbench, as the browser tests do it."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spikehtr

STATIC = Path(spikehtr.__file__).parent / "serve" / "static"


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def until(true: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """What `true` gives as soon as it is true of anything."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"did not happen in {seconds} s: {what}")


def wait_until_read(url: str, pages: int = 1) -> list[dict[str, Any]]:
    """The pages, when all have been found and read."""

    def read() -> list[dict[str, Any]]:
        listed = ask(f"{url}/api/pages")["pages"]
        done = len(listed) >= pages and all(page["lines"] and page["lines_read"] == page["lines"] for page in listed)
        return listed if done else []

    return until(read, "all pages read", 120)


def lines_of(url: str, page: int = 1) -> list[dict[str, Any]]:
    return ask(f"{url}/api/pages/{page}")["lines"]


def texts(url: str, page: int = 1) -> list[str]:
    return [line["text"] for line in lines_of(url, page)]


def open_line(tab: Any, url: str, line: str | None = None, page: int = 1) -> None:
    """Opens a page at a line, its text field in focus."""
    tab.goto(f"{url}/p/page/{page}" + (f"/{line}" if line else ""))
    tab.wait_for_selector(".typing-field:focus")
    tab.wait_for_selector(".viewer-picture")


def settled(tab: Any) -> None:
    """Waits until nothing that was typed or done is on its way any more."""
    tab.wait_for_selector('.save-state[data-state="saved"]')


def middle(line: dict[str, Any], share: float = 0.5) -> tuple[float, float]:
    """A place of the page within a line."""
    xs = [x for x, _ in line["polygon"]]
    ys = [y for _, y in line["polygon"]]
    return min(xs) + (max(xs) - min(xs)) * share, (min(ys) + max(ys)) / 2


def on_screen(tab: Any, place: tuple[float, float]) -> tuple[float, float]:
    """A place of the page as a place of the window."""
    x, y = place
    found = tab.evaluate(
        """([x, y]) => {
            const at = new DOMPoint(x, y).matrixTransform(document.querySelector(".shapes > g").getScreenCTM());
            return [at.x, at.y];
        }""",
        [x, y],
    )
    return found[0], found[1]


def send(url: str, path: str, body: dict[str, Any], method: str = "POST") -> Any:
    """A change by another program, without the browser."""
    csrf = ask(f"{url}/api/session")["csrf"]
    headers = {"Content-Type": "application/json", "X-CSRF": csrf, "X-Client": "another"}
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def edit(url: str, page: int, ops: list[dict[str, Any]]) -> Any:
    return send(url, f"/api/pages/{page}/edits", {"ops": ops})


def words(language: str) -> dict[str, str]:
    """What the workbench says in a language: the pairs of that file."""
    source = (STATIC / "i18n" / f"{language}.js").read_text(encoding="utf-8")
    pairs = re.findall(r'^  ("(?:[^"\\]|\\.)*"): ("(?:[^"\\]|\\.)*"),$', source, re.MULTILINE)
    found = {json.loads(key): json.loads(value) for key, value in pairs}
    assert len(found) == len(pairs) == source.count("\n  "), "a line of the words is not a pair, or a key stands twice"
    return found
