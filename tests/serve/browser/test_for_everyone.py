"""Names for screen readers, and room on small screens, in every language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .browser_help import lines_of, open_line, wait_until_read

pytestmark = pytest.mark.slow

NAMELESS = """() => [...document.querySelectorAll("button, a, input, select, textarea, [role], img")].filter((part) => {
    if (["presentation", "group", "alert", "status"].includes(part.role) || part.tagName === "SVG") return false;
    if (part.closest("[aria-hidden=true]") || part.type === "hidden") return false;
    if (part.tagName === "IMG") return !part.hasAttribute("alt");
    const labels = [...(part.labels ?? [])].map((one) => one.textContent);
    const words = [part.ariaLabel, part.textContent, part.title, ...labels];
    return !words.some((one) => one?.trim());
}).map((part) => part.outerHTML.slice(0, 120))"""
BARS = ".top, .editor-bar, .pages-bar, .toolbar, .row-tools, dialog, .dialog-actions"
CUT_OFF = """(bars) => [...document.querySelectorAll(bars)]
    .filter((part) => part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > innerWidth + 1)
    .map((part) => part.className || part.tagName)"""
BELOW = """(parts) => [...document.querySelectorAll(parts)]
    .filter((part) => part.getBoundingClientRect().bottom > innerHeight + 1).map((part) => part.className)"""
SQUEEZED = """() => [...document.querySelectorAll("input[placeholder]")].filter((field) => {
    const paper = document.createElement("canvas").getContext("2d");
    const style = getComputedStyle(field);
    paper.font = style.font;
    const room = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return paper.measureText(field.placeholder).width > room;
}).map((field) => field.placeholder)"""


SCREENS = [("en-US", 1280, 720), ("de-DE", 1280, 720), ("fr-FR", 820, 1180)]


def test_every_control_has_a_name_and_nothing_is_cut_off(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    for language, width, height in SCREENS:
        tab = new_page(width, height, locale=language)

        def look(where: str, tab: Any = tab, language: str = language) -> None:
            assert tab.evaluate(NAMELESS) == [], (where, language)
            assert tab.evaluate(CUT_OFF, BARS) == [], (where, language)
            assert tab.evaluate(SQUEEZED) == [], (where, language)

        tab.goto(url)
        tab.wait_for_selector(".card")
        assert tab.evaluate("() => document.documentElement.lang") == language[:2]
        tab.click(".card-choose input")
        look("pages")
        for number, name in enumerate(["find", "export", "settings", "keys"]):
            tab.click(f"header .icon-only:nth-last-of-type({4 - number})")
            tab.wait_for_selector(f'dialog[data-name="{name}"]')
            look(name)
            tab.keyboard.press("Escape")
            tab.wait_for_selector("dialog", state="detached")
        open_line(tab, url, lines_of(url)[3]["id"])
        look("editor")
        assert tab.evaluate(BELOW, ".palette button, .toolbar, .zoombar") == [], (width, height)
        tab.goto(f"{url}/p/learn")
        tab.wait_for_selector(".figure")
        look("learn")
