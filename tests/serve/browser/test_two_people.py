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

    # What is typed while the server is away is kept by the browser, through a reload too.
    open_line(first, url, line["id"])
    first.context.set_offline(True)
    first.keyboard.press("End")
    first.keyboard.type(" kept")
    first.wait_for_selector('.save-state[data-state="failed"]')
    assert not any(text.endswith(" kept") for text in texts(url))
    first.context.set_offline(False)
    until(lambda: any(text.endswith(" two kept") for text in texts(url)), "what was typed offline saved")


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
