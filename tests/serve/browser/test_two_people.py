"""Two people on one page: what the other does appears, and nobody's text is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .browser_help import edit, lines_of, open_line, settled, texts, until, wait_until_read

pytestmark = pytest.mark.slow


def test_a_conflict_is_shown_and_merged_and_another_tab_follows(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    server = workbench()
    url = server.url
    wait_until_read(url)
    first, second = new_page(), new_page()
    line = max(lines_of(url), key=lambda one: len(one["text"]))
    open_line(first, url, line["id"])
    open_line(second, url, line["id"])

    # What one saves, the other sees.
    first.keyboard.press("End")
    first.keyboard.type(" one")
    first.keyboard.press("Enter")
    settled(first)
    second.wait_for_function("() => document.querySelector('.row.active .typing-field').value.endsWith(' one')")

    # Both write: the second to save sees both, and merges.
    second.keyboard.press("Home")
    second.keyboard.type("X")
    now = next(one for one in lines_of(url) if one["id"] == line["id"])
    edit(url, 1, [{"op": "set_text", "line": line["id"], "version": now["version"], "text": now["text"] + " two"}])
    second.keyboard.press("Enter")
    second.wait_for_selector('dialog[data-name="merge"]')
    assert second.input_value("dialog textarea") == "X" + now["text"] + " two"
    assert texts(url).count(now["text"] + " two") == 1, "nothing was overwritten"
    second.click("dialog .primary")
    until(lambda: "X" + now["text"] + " two" in texts(url), "the merged text saved")

    # Who writes what stands there already, or a text over a shape that moved, is asked nothing.
    open_line(second, url, line["id"])
    moved = {"op": "reshape", "polygon": [[x, y + 1] for x, y in line["polygon"]]}
    for text, change in (("the same", {"op": "set_text", "text": "the same"}), ("over the shape", moved)):
        second.fill(".row.active .typing-field", text)
        now = next(one for one in lines_of(url) if one["id"] == line["id"])
        edit(url, 1, [change | {"line": line["id"], "version": now["version"]}])
        second.keyboard.press("Enter")
        settled(second)
        assert text in texts(url)
        assert second.query_selector("dialog") is None
        second.keyboard.press("Alt+ArrowUp")

    # What is typed while the server is away is kept by the browser, through a reload too.
    open_line(first, url, line["id"])
    first.context.set_offline(True)
    first.keyboard.press("End")
    first.keyboard.type(" kept")
    first.wait_for_selector('.save-state[data-state="failed"]')
    assert not any(text.endswith(" kept") for text in texts(url))
    first.context.set_offline(False)
    until(lambda: any(text.endswith("shape kept") for text in texts(url)), "what was typed offline saved")


def test_right_to_left_text_is_set_and_corrected_as_it_is_written(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    line = lines_of(url)[5]
    text = "שלום (1789) abc עולם"
    edit(url, 1, [{"op": "set_text", "line": line["id"], "version": line["version"], "text": text}])
    tab = new_page()
    open_line(tab, url, line["id"])
    assert tab.eval_on_selector(".typing-field", "(field) => getComputedStyle(field).direction") == "rtl"
    same = """(field) => ["font", "width", "padding", "textAlign", "direction"].every(
        (name) => getComputedStyle(field)[name] === getComputedStyle(field.previousElementSibling)[name])"""
    assert tab.eval_on_selector(".typing-field", same), "field and coloured text lie on each other"
    tab.keyboard.press("Control+End")
    tab.keyboard.type("!")
    tab.keyboard.press("Enter")
    until(lambda: text + "!" in texts(url), "saved as typed")
    row = f'.row[data-line="{line["id"]}"] .row-open'
    tab.wait_for_selector(row)
    assert tab.eval_on_selector(row, "(row) => getComputedStyle(row).direction") == "rtl"


def test_what_another_program_did_to_the_file_is_told_on_the_page_until_it_was_seen(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    server = workbench()
    wait_until_read(server.url)
    until((server.folder / "page-1.xml").is_file, "written")
    (server.folder / "page-1.xml").write_text("<PcGts", encoding="utf-8")
    tab = new_page()
    open_line(tab, server.url)
    assert "cannot be used" in tab.inner_text(".page-problem")
    tab.click(".page-problem button")
    tab.wait_for_selector(".page-problem", state="detached")
