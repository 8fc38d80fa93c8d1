"""What the mouse does: dropping files, choosing, moving, drawing, cutting, joining, ordering, replacing."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .browser_help import ask, edit, lines_of, middle, on_screen, open_line, settled, texts, until, wait_until_read
from .conftest import ASSETS

pytestmark = pytest.mark.slow


def press(tab: Any, place: tuple[float, float], **options: Any) -> None:
    tab.mouse.click(*on_screen(tab, place), **options)


def drag(tab: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    tab.mouse.move(*on_screen(tab, start))
    tab.mouse.down()
    for step in range(1, 6):
        place = tuple(a + (b - a) * step / 5 for a, b in zip(start, end, strict=True))
        tab.mouse.move(*on_screen(tab, place))
    tab.mouse.up()


def tool(tab: Any, name: str) -> None:
    tab.click(f'.toolbar button[aria-label="{name}"]')


def line_now(url: str, line: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in lines_of(url) if one["id"] == line["id"])


def test_dropped_files_become_pages(workbench: Callable[..., Any], new_page: Callable[..., Any]) -> None:
    url = workbench(pages=0).url
    tab = new_page()
    tab.goto(url)
    tab.wait_for_selector(".empty")
    tab.evaluate(
        """(data) => {
            const bytes = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], "letter.jpg", { type: "image/jpeg" }));
            files.items.add(new File(["<script>alert(1)</script>"], "no picture.png", { type: "image/png" }));
            window.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
        }""",
        base64.b64encode((ASSETS / "sample-page.jpg").read_bytes()).decode(),
    )
    pages = wait_until_read(url)
    assert [page["name"] for page in pages] == ["letter"]
    tab.wait_for_selector(".card")
    # The bad one is named, as text, and did not stop the other.
    tab.click(".button.jobs")
    tab.click("dialog details summary")
    assert "no picture.png" in tab.inner_text("dialog details")
    assert tab.query_selector("dialog script") is None


def test_removed_pages_are_put_back_long_after(workbench: Callable[..., Any], new_page: Callable[..., Any]) -> None:
    url = workbench(pages=2).url
    wait_until_read(url)
    tab = new_page()
    tab.goto(url)
    tab.wait_for_selector(".card:nth-child(2)")
    for box in tab.query_selector_all(".card-choose input"):
        box.check()
    tab.click('.actions button:has-text("Remove")')
    tab.wait_for_selector('.tab:has-text("Removed") .count:has-text("2")')
    tab.reload()  # the message that offers Undo is gone
    tab.click('.tab:has-text("Removed")')
    tab.wait_for_selector(".card:nth-child(2)")
    assert not tab.query_selector('.actions button:has-text("Read")')
    for box in tab.query_selector_all(".card-choose input"):
        box.check()
    tab.click('.actions button:has-text("Put back")')
    tab.wait_for_selector('.tab[aria-pressed="true"]:has-text("All") .count:has-text("2")')
    tab.wait_for_selector(".card:nth-child(2)")
    assert len(ask(f"{url}/api/pages")["pages"]) == 2
    assert not tab.query_selector('.tab:has-text("Removed")')


def test_a_correction_is_undone_after_a_reload_and_the_page_saved(
    workbench: Callable[..., Any], new_page: Callable[..., Any], tmp_path: Path
) -> None:
    url = workbench().url
    wait_until_read(url)
    first = lines_of(url)[0]
    tab = new_page()
    tab.goto(url)
    tab.click(".card-link")
    tab.fill(".typing-field", "By hand")
    tab.click(".row-tools .primary")
    settled(tab)
    assert texts(url)[0] == "By hand"
    tab.reload()
    tab.click('.editor-bar button[aria-label="Undo"]')
    until(lambda: texts(url)[0] == first["text"], "undone")
    tab.click('.editor-bar button[aria-label="Redo"]:not([disabled])')
    until(lambda: texts(url)[0] == "By hand", "done again")
    tab.click('.editor-bar button[aria-label="Export"]')
    tab.click('dialog input[value="text"]')
    with tab.expect_download() as download:
        tab.click("dialog a.primary")
    download.value.save_as(tmp_path / "page.txt")
    assert [line for line in (tmp_path / "page.txt").read_text(encoding="utf-8").split("\n") if line] == texts(url)


def test_lines_are_chosen_moved_cut_joined_drawn_and_deleted(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    tab = new_page()
    open_line(tab, url)
    lines = lines_of(url)
    line = max(lines, key=lambda one: len(one["text"]))

    # A press on the image goes to the text, at the character under it.
    press(tab, middle(line, 0.5))
    number = lines.index(line) + 1
    tab.wait_for_function(f"() => document.activeElement.ariaLabel === 'Text of line {number}'")
    caret = tab.evaluate("document.activeElement.selectionStart")
    assert 0.3 < caret / len(line["text"]) < 0.7
    # And a press on the text goes to the line on the image.
    other = next(one for one in lines if one["id"] != line["id"])
    tab.click(f'.row[data-line="{other["id"]}"] .row-open')
    tab.wait_for_selector(f'.line.active[data-line="{other["id"]}"]', state="attached")

    # Moved: it is read again, the text field follows.
    press(tab, middle(line))
    tool(tab, "Change shapes")
    drag(tab, middle(line), (middle(line)[0] + 12, middle(line)[1] + 6))
    until(lambda: line_now(url, line)["version"] != line["version"], "the line moved")
    moved = line_now(url, line)
    shifts = [(x - a, y - b) for (x, y), (a, b) in zip(moved["baseline"], line["baseline"], strict=True)]
    assert len(set(shifts)) == 1, "all points by as much"
    assert abs(shifts[0][0] - 12) <= 2
    assert abs(shifts[0][1] - 6) <= 2
    until(lambda: not line_now(url, line)["stale"], "the line read again")
    tab.click('.editor-bar button[aria-label="Undo"]')
    until(lambda: line_now(url, line)["baseline"] == line["baseline"], "moved back")
    # One point of it.
    corner = line["polygon"][0]
    drag(tab, tuple(corner), (corner[0] + 9, corner[1] - 12))

    def corner_moved() -> bool:
        points = line_now(url, line)["polygon"]
        near = any(abs(x - corner[0] - 9) <= 3 and abs(y - corner[1] + 12) <= 3 for x, y in points)
        return near and corner not in points

    until(corner_moved, "the point moved")
    tab.keyboard.press("Escape")
    settled(tab)

    # Cut by a click, joined by a button.
    tool(tab, "Split a line")
    press(tab, middle(line))
    until(lambda: len(lines_of(url)) == len(lines) + 1, "the line cut")
    tool(tab, "Select")
    now = lines_of(url)
    at = next(index for index, one in enumerate(now) if one["id"] == line["id"])
    press(tab, middle(now[at]))
    tab.keyboard.down("Shift")
    press(tab, middle(now[at + 1]))
    tab.keyboard.up("Shift")
    tool(tab, "Join lines")
    until(lambda: len(lines_of(url)) == len(lines), "the lines joined")

    # Drawn along a new baseline; deleted; brought back by the message's button.
    tool(tab, "Draw a line")
    drag(tab, (500, 1500), (1200, 1496))
    until(lambda: len(lines_of(url)) == len(lines) + 1, "the line drawn")
    tool(tab, "Select")
    drawn = next(one for one in lines_of(url) if one["id"] not in {old["id"] for old in lines})
    assert abs(drawn["baseline"][0][0] - 500) < 6
    tab.wait_for_selector(f'.row.active[data-line="{drawn["id"]}"]')
    tool(tab, "Delete")
    until(lambda: len(lines_of(url)) == len(lines), "the line deleted")
    tab.click(".message button:has-text('Undo')")
    until(lambda: len(lines_of(url)) == len(lines) + 1, "the line back")
    # That button takes back nothing else that was done meanwhile.
    settled(tab)
    tool(tab, "Delete")
    tab.wait_for_selector(".message button:has-text('Undo')")
    now = line_now(url, other)
    edit(url, 1, [{"op": "set_text", "line": other["id"], "version": now["version"], "text": "meanwhile"}])
    tab.click(".message button:has-text('Undo')")
    tab.wait_for_selector(".message:has-text('nothing was undone')")
    assert line_now(url, other)["text"] == "meanwhile"
    assert len(lines_of(url)) == len(lines)
    tab.click('.editor-bar button[aria-label="Undo"]')
    until(lambda: line_now(url, other)["text"] == other["text"], "the other change taken back")

    # Another place in the reading order.
    settled(tab)
    ids = [one["id"] for one in lines_of(url)]
    tab.click(f'.row[data-line="{ids[4]}"] .row-open')
    tab.click('.row-tools button[aria-label="Later in the reading order"]')
    until(lambda: [one["id"] for one in lines_of(url)][4:6] == [ids[5], ids[4]], "the line placed later")


def test_doubtful_characters_have_alternatives_and_words_are_replaced(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    tab = new_page()
    open_line(tab, url)
    # Least sure first.
    tab.click("button:has-text('Least sure first')")
    unsure = sorted((one for one in lines_of(url)), key=lambda one: one["confidence"])
    tab.wait_for_selector(f'.row.active[data-line="{unsure[0]["id"]}"]')
    order = tab.eval_on_selector_all(".row", "(rows) => rows.map((row) => row.dataset.line)")
    sureness = {one["id"]: one["confidence"] for one in unsure}
    assert [sureness[line] for line in order] == sorted(sureness.values())
    # Another reading of the least sure character, by its number.
    tab.keyboard.press("Home")
    tab.keyboard.press("F8")
    tab.keyboard.press("Alt+a")
    tab.wait_for_selector(".alternatives button:focus")
    sign = tab.inner_text(".alternatives button:nth-of-type(1) .sign")
    before = tab.input_value(".typing-field")
    tab.keyboard.press("1")
    tab.wait_for_selector(".alternatives", state="detached")
    after = tab.input_value(".typing-field")
    assert after != before
    assert sign in after
    tab.keyboard.press("Enter")
    settled(tab)
    assert next(one for one in lines_of(url) if one["id"] == unsure[0]["id"])["text"] == after

    # Find and replace.
    word = next(word for text in texts(url) for word in text.split() if len(word) > 4 and word.isalpha())
    tab.click('header button[aria-label="Find and replace"]')
    tab.fill("dialog input:not([type])", word)
    tab.wait_for_selector(".hits mark")
    tab.fill("dialog label:nth-of-type(2) input", "<b>new</b>")
    tab.click("dialog .primary")
    until(lambda: any("<b>new</b>" in text for text in texts(url)), "the word replaced")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("text=<b>new</b>")
    assert tab.query_selector("#app b") is None, "text is text"
    assert ask(f"{url}/api/pages/1")["undo"]["label"] == "replace"


def test_regions_are_drawn_split_ordered_and_deleted(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench().url
    wait_until_read(url)
    tab = new_page()
    open_line(tab, url)

    def regions() -> list[dict[str, Any]]:
        return ask(f"{url}/api/pages/1")["regions"]

    def around(line: str) -> list[str]:
        return next(one["lines"] for one in regions() if line in one["lines"])

    before = regions()
    whole = max((one["lines"] for one in before), key=len)
    by_id = {line["id"]: line for line in lines_of(url)}
    tool(tab, "Draw a region")
    xs, ys = zip(*(point for one in whole[:2] for point in by_id[one]["polygon"]), strict=True)
    left, top, right, bottom = min(xs) - 9, min(ys) - 9, max(xs) + 9, max(ys) - 9
    for corner in ((left, top), (right, top), (right, bottom), (left, bottom)):
        press(tab, corner)
    tab.keyboard.press("Enter")
    until(lambda: len(regions()) == len(before) + 1, "the region drawn")
    assert (around(whole[0]), around(whole[2])) == (whole[:2], whole[2:])
    assert [line["id"] for line in lines_of(url)] == list(by_id), "the reading order stays"
    tab.keyboard.press("Escape")

    # The rest of a region, from a line on; by keys.
    tab.click(f'.row[data-line="{whole[4]}"] .row-open')
    tab.keyboard.press("Escape")
    tab.keyboard.press("Shift+G")
    until(lambda: len(regions()) == len(before) + 2, "a region begins with the line")
    assert (around(whole[2]), around(whole[4])) == (whole[2:4], whole[4:])

    # Its place among the others, its kind, and its end.
    settled(tab)
    at = next(number for number, one in enumerate(regions()) if whole[4] in one["lines"])
    last = regions()[at]["id"]
    head = tab.locator(f'.region-head[data-region="{last}"]')
    head.hover()
    head.locator('button[aria-label="Region earlier in the reading order"]').click()
    until(lambda: regions()[at - 1]["id"] == last, "the region earlier")
    head.locator(".region-kind").select_option("marginalia")
    until(lambda: regions()[at - 1]["kind"] == "marginalia", "the kind of the region")
    head.hover()
    head.locator('button[aria-label="Delete the region and its lines"]').click()
    until(lambda: len(regions()) == len(before) + 1, "the region deleted")
    assert len(lines_of(url)) == len(by_id) - len(whole[4:])
    tab.click(".message button:has-text('Undo')")
    until(lambda: len(regions()) == len(before) + 2, "the region back")
    assert len(lines_of(url)) == len(by_id)
