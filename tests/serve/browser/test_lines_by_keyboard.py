"""Lines on the image without a mouse: one without text is split, several are chosen, joined, made a region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .browser_help import ask, edit, lines_of, open_line, send, settled, until, wait_until_read


def to_image(tab: Any) -> None:
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".viewer:focus")


@pytest.mark.slow
def test_a_line_without_text_is_split_at_a_mark_that_keys_move(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    page = wait_until_read(url)[0]
    send(url, "/api/settings", {"reread": False}, "PATCH")
    right, bottom = page["width"] - 40, page["height"] - 20
    outline = [[40, bottom - 60], [right, bottom - 60], [right, bottom], [40, bottom]]
    made = edit(url, 1, [{"op": "add_line", "ref": "new", "baseline": [], "polygon": outline}])["created"]["new"]
    before = {line["id"] for line in lines_of(url)}
    tab = new_page()
    open_line(tab, url, made)

    # From the text, where there is none: the mark waits in the middle of the line.
    tab.keyboard.press("Alt+s")
    tab.wait_for_selector(".viewer:focus")
    tab.wait_for_selector(".marks .cut", state="attached")
    tab.wait_for_selector(".tool-hint:has-text('Enter cuts')")
    for key in ["Shift+ArrowLeft"] * 3 + ["ArrowRight"]:
        tab.keyboard.press(key)
    place = float(tab.get_attribute(".marks .cut", "d").removeprefix("M").split(" ")[0])
    assert 40 < place < (40 + right) / 2 - 20
    tab.keyboard.press("Enter")
    until(lambda: len(lines_of(url)) == len(before) + 1, "the line split")
    lines = {line["id"]: line for line in lines_of(url)}
    (other,) = lines.keys() - before
    assert abs(max(x for x, _ in lines[made]["polygon"]) - place) <= 1
    assert abs(min(x for x, _ in lines[other]["polygon"]) - place) <= 1
    settled(tab)

    # The mark never leaves the line; Esc leaves the tool, and undo joins the parts again.
    for _ in range(60):
        tab.keyboard.press("Shift+ArrowRight")
    place = float(tab.get_attribute(".marks .cut", "d").removeprefix("M").split(" ")[0])
    assert place <= max(x for x, _ in lines[made]["polygon"]) - 1
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".marks .cut", state="detached")
    tab.keyboard.press("Control+z")
    until(lambda: len(lines_of(url)) == len(before), "the split undone")


@pytest.mark.slow
def test_several_lines_are_chosen_by_shift_and_arrows_then_joined_or_made_a_region(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    lines = [line["id"] for line in lines_of(url)]
    regions = [region["lines"] for region in ask(f"{url}/api/pages/1")["regions"]]
    assert len(lines) >= 6
    tab = new_page()
    keys = tab.keyboard

    def chosen() -> list[str]:
        return list(tab.eval_on_selector_all(".row.chosen, .row.active", "rows => rows.map(row => row.dataset.line)"))

    open_line(tab, url, lines[1])
    to_image(tab)
    for _ in range(3):
        keys.press("Shift+ArrowDown")
    assert chosen() == lines[1:5]
    keys.press("Shift+ArrowUp")
    assert chosen() == lines[1:4]
    tab.wait_for_selector(".tool-hint:has-text('3 lines selected')")
    keys.press("Escape")
    assert chosen() == lines[1:2]
    tab.wait_for_selector(".tool-hint", state="hidden")

    # Upwards from the active line, and into a region of their own.
    keys.press("n")
    keys.press("Shift+ArrowUp")
    assert chosen() == lines[1:3]
    keys.press("Shift+g")
    until(lambda: [r["lines"] for r in ask(f"{url}/api/pages/1")["regions"]] != regions, "a region of the lines")
    assert lines[1:3] in [region["lines"] for region in ask(f"{url}/api/pages/1")["regions"]]
    settled(tab)
    keys.press("Control+z")
    until(lambda: [r["lines"] for r in ask(f"{url}/api/pages/1")["regions"]] == regions, "the region undone")
    settled(tab)

    # Two lines move together: up into the region before, and down again.
    second = next(place for place, line in enumerate(lines) if line == regions[1][0])
    open_line(tab, url, lines[second])
    to_image(tab)
    keys.press("Shift+ArrowDown")
    keys.press("Alt+Shift+ArrowUp")
    until(lambda: ask(f"{url}/api/pages/1")["regions"][0]["lines"] == [*regions[0], *regions[1][:2]], "moved up")
    assert [line["id"] for line in lines_of(url)] == lines
    settled(tab)
    keys.press("Alt+Shift+ArrowDown")
    until(lambda: [r["lines"] for r in ask(f"{url}/api/pages/1")["regions"]] == regions, "moved down")
    settled(tab)

    tab.reload()
    open_line(tab, url, lines[2])
    to_image(tab)
    keys.press("Shift+ArrowDown")
    keys.press("Shift+ArrowDown")
    keys.press("j")
    until(lambda: len(lines_of(url)) == len(lines) - 2, "three lines made one")
    assert lines_of(url)[2]["id"] == lines[2]
    settled(tab)


def test_what_the_list_of_keys_says_of_both(workbench: Callable[..., Any], new_page: Callable[..., Any]) -> None:
    url = workbench(pages=0).url
    for locale, words in {
        "en-US": ("Split a line: click, or arrows and Enter", "Select more or fewer lines"),
        "fr-FR": ("Couper une ligne : clic, ou flèches et Entrée", "Sélectionner plus ou moins de lignes"),
        "de-DE": ("Zeile teilen: Klick, oder Pfeile und Enter", "Mehr oder weniger Zeilen auswählen"),
    }.items():
        tab = new_page(locale=locale)
        tab.goto(url)
        tab.wait_for_selector(".empty")
        tab.keyboard.press("F1")
        said = tab.inner_text('dialog[data-name="keys"]')
        assert all(one in said for one in words), (locale, said)
