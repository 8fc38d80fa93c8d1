"""The whole loop without a mouse: import, correct, reload, undo, split, join, export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lxml import etree
from rapidfuzz.distance import Levenshtein

from .browser_help import lines_of, open_line, settled, texts, until, wait_until_read
from .conftest import ASSETS


def test_the_loop_by_keyboard(workbench: Callable[..., Any], new_page: Callable[..., Any], tmp_path: Path) -> None:
    url = workbench(pages=0).url
    tab = new_page()
    keys = tab.keyboard

    # Import: the button is reached and pressed by keys.
    tab.goto(url)
    tab.wait_for_selector(".empty")
    with tab.expect_file_chooser() as chooser:
        tab.focus(".empty .primary")
        keys.press("Enter")
    chooser.value.set_files(ASSETS / "sample-page.jpg")
    wait_until_read(url)
    tab.wait_for_selector('.card .badge[data-state="read"]')
    tab.focus(".card-link")
    keys.press("Enter")
    tab.wait_for_selector(".typing-field:focus")

    # Correct: Enter accepts and goes on.
    keys.press("Control+a")
    keys.type("Answered")
    keys.press("Enter")
    tab.wait_for_function("() => document.activeElement.ariaLabel === 'Text of line 2'")
    keys.press("Enter")
    settled(tab)
    lines = lines_of(url)
    assert lines[0]["text"] == "Answered"
    assert [line["corrected"] for line in lines[:3]] == [True, True, False]
    assert lines[1]["text"] == lines[1]["reading"]["text"]

    # Undo and redo, also after a reload.
    tab.reload()
    tab.wait_for_selector(".typing-field:focus")
    keys.press("Control+z")
    until(lambda: not lines_of(url)[1]["corrected"], "the confirmation taken back")
    settled(tab)
    keys.press("Control+z")
    until(lambda: lines_of(url)[0]["text"] == lines[0]["reading"]["text"], "the text taken back")
    settled(tab)
    keys.press("Control+y")
    until(lambda: texts(url)[0] == "Answered", "the text brought again")

    # Split at the cursor and join again.
    line = next(line for line in lines_of(url) if " " in line["text"] and len(line["text"]) > 15)
    at = line["text"].index(" ", 5) + 1
    open_line(tab, url, line["id"])
    keys.press("Home")
    for _ in range(at):
        keys.press("ArrowRight")
    keys.press("Alt+s")
    until(lambda: len(lines_of(url)) == len(lines) + 1, "the line split")
    parts = [
        one["text"] for one in lines_of(url) if one["id"] not in {old["id"] for old in lines} or one["id"] == line["id"]
    ]
    # As they were cut or, once they have been read again, nearly so.
    halves = line["text"][:at].strip(), line["text"][at:].strip()
    assert len(parts) == 2
    assert all(Levenshtein.distance(part.strip(), half) <= 3 for part, half in zip(parts, halves, strict=True)), parts
    keys.press("Alt+j")
    until(lambda: line["text"] in texts(url), "the line joined")
    assert len(lines_of(url)) == len(lines)
    settled(tab)

    # Draw a line: arrows go to its ends.
    keys.press("Escape")
    tab.wait_for_selector(".viewer:focus")
    keys.press("b")
    for key in ["ArrowLeft"] * 3 + ["i"] + ["ArrowRight"] * 6:
        keys.press(f"Shift+{key}" if key != "i" else key)
    assert tab.locator(".marks .dot").count() == 2
    keys.press("Enter")
    until(lambda: len(lines_of(url)) == len(lines) + 1, "a line drawn")
    (drawn,) = [one for one in lines_of(url) if one["id"] not in {old["id"] for old in lines}]
    (left, top), (right, bottom) = drawn["baseline"]
    assert right - left > 200
    assert abs(bottom - top) <= 1
    settled(tab)
    keys.press("Escape")
    keys.press("Control+z")
    until(lambda: len(lines_of(url)) == len(lines), "the drawing undone")
    settled(tab)
    tab.wait_for_selector(f'.row[data-line="{drawn["id"]}"]', state="detached")
    keys.press("Enter")
    tab.wait_for_selector(".typing-field:focus")

    # The list of keys, and export.
    keys.press("F1")
    tab.wait_for_selector('dialog[data-name="keys"]')
    keys.press("Escape")
    tab.wait_for_selector("dialog", state="detached")
    tab.wait_for_selector(".typing-field:focus")
    keys.press("Escape")
    keys.press("?")
    tab.wait_for_selector('dialog[data-name="keys"]')
    keys.press("Escape")
    tab.wait_for_selector("dialog", state="detached")
    tab.focus('.editor-bar button[aria-label="Export"]')
    keys.press("Enter")
    tab.wait_for_selector('dialog[data-name="export"]')
    with tab.expect_download() as download:
        tab.focus("dialog a.primary")
        keys.press("Enter")
    download.value.save_as(tmp_path / "page.xml")
    found = etree.parse(tmp_path / "page.xml").findall(".//{*}TextLine/{*}TextEquiv/{*}Unicode")
    assert [one.text for one in found] == texts(url)
