"""The grid without a mouse: pages moved and removed, settings; undo and redo of it all, after a reload and a kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import Server

from .browser_help import ask, send, until, wait_until_read


@pytest.mark.slow
def test_the_grid_undoes_and_redoes_what_was_done_to_the_project(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    server = workbench(pages=3)
    url = server.url
    wait_until_read(url, pages=3)
    tab = new_page()
    keys = tab.keyboard

    def listed() -> list[int]:
        return [page["id"] for page in ask(f"{url}/api/pages")["pages"]]

    def shown() -> list[int]:
        return list(tab.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.page))"))

    tab.goto(url)
    tab.wait_for_selector(".card:nth-child(3)")
    one, two, three = listed()
    assert tab.is_disabled('.pages-bar button[aria-label="Undo"]')

    # One page later, then two of them removed in one step.
    tab.focus(f'.card[data-page="{one}"] .card-link')
    keys.press("Alt+Shift+ArrowRight")
    until(lambda: listed() == [two, one, three], "the page moved")
    until(lambda: shown() == [two, one, three], "shown")
    tab.wait_for_selector(f'.card[data-page="{one}"] .card-link:focus')
    keys.press(" ")
    keys.press("ArrowRight")
    keys.press(" ")
    tab.wait_for_selector(".chosen-count:has-text('2 pages')")
    keys.press("Delete")
    until(lambda: listed() == [two], "two pages removed")
    tab.wait_for_selector('.pages-bar button[title^="Undo: pages removed"]')

    # A setting from the dialog.
    tab.click('header button[aria-label="Settings"]')
    tab.select_option("dialog .settings label:has-text('Direction') select", "rtl")
    until(lambda: ask(f"{url}/api/settings")["direction"] == "rtl", "the setting kept")
    keys.press("Escape")
    tab.wait_for_selector('.pages-bar button[title^="Undo: settings"]')

    # A reload, then undo by keys, the last first.
    tab.reload()
    tab.wait_for_selector('.pages-bar button[title^="Undo: settings"]')
    keys.press("Control+z")
    until(lambda: ask(f"{url}/api/settings")["direction"] == "auto", "the setting undone")
    tab.wait_for_selector('.pages-bar button[title^="Undo: pages removed"]')
    keys.press("Control+z")
    until(lambda: shown() == [two, one, three], "the pages are back")
    tab.wait_for_selector('.pages-bar button[title^="Undo: order of pages"]')
    tab.click('.pages-bar button[aria-label="Undo"]')
    until(lambda: shown() == [one, two, three], "the order undone")
    keys.press("Control+y")
    until(lambda: shown() == [two, one, three], "the order again")

    # In the field that looks for names the keys are the field's.
    tab.fill("input[type=search]", "page")
    tab.wait_for_selector('.pages-bar button[title^="Redo: pages removed"]')
    keys.press("Control+y")
    assert listed() == [two, one, three]

    # A kill: what can be undone and redone is as before.
    server.kill()
    again = Server(Path(server.folder), None)
    try:
        url = again.url
        assert listed() == [two, one, three]
        steps = ask(f"{url}/api/project")
        assert (steps["undo"]["label"], steps["redo"]["label"]) == ("order_pages", "remove_pages")
        send(url, "/api/project/redo", {"expect": steps["redo"]["seq"]})
        assert listed() == [two]
    finally:
        again.stop()


@pytest.mark.slow
def test_moves_that_follow_each_other_fast_are_made_one_after_the_other(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench(pages=3).url
    wait_until_read(url, pages=3)
    tab = new_page()
    held: list[Any] = []
    tab.route("**/api/pages/order", lambda route: held.append(route))
    tab.goto(url)
    tab.wait_for_selector(".card:nth-child(3)")
    one, two, three = (page["id"] for page in ask(f"{url}/api/pages")["pages"])
    tab.focus(f'.card[data-page="{one}"] .card-link')
    for key in ("Right", "Right", "Left"):
        tab.keyboard.press(f"Alt+Shift+Arrow{key}")
    for moved in ([two, one, three], [two, three, one], [two, one, three]):
        tab.wait_for_timeout(300)
        (request,) = held  # the next is worked out when this one is answered
        held.clear()
        request.continue_()
        until(lambda moved=moved: [p["id"] for p in ask(f"{url}/api/pages")["pages"]] == moved, "the page moved")
    shown = "cards => cards.map(card => Number(card.dataset.page))"
    until(lambda: tab.eval_on_selector_all(".card", shown) == [two, one, three], "shown")
