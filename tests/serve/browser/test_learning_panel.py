"""Learning from corrections, in the browser: start, curve, comparison, the new model, and reading again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from serve_help import small_model

from .browser_help import ask, edit, lines_of, until, wait_until_read

pytestmark = pytest.mark.slow


def test_a_model_learns_and_is_compared_and_corrected_text_stays(
    workbench: Callable[..., Any], new_page: Callable[..., Any]
) -> None:
    url = workbench(pages=3, model=small_model()).url  # it knows letters and has learned nothing: a step takes no time
    wait_until_read(url, pages=3)
    for page in (1, 2):
        edit(
            url,
            page,
            [
                {"op": "set_text", "line": line["id"], "version": line["version"], "text": "some words by hand"}
                for line in lines_of(url, page)
            ],
        )
    corrected = {page: [line["text"] for line in lines_of(url, page)] for page in (1, 2)}
    tab = new_page()
    tab.goto(f"{url}/p/learn")
    tab.wait_for_function("() => document.querySelector('.figure strong')?.textContent === '34'")
    tab.fill("input[type=number]", "0.2")
    tab.fill("form input:not([type])", "ours")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => /Step [1-9]/.test(document.querySelector('.learn')?.innerText)", timeout=120_000)
    tab.click("text=Cancel")
    tab.click("text=Resume", timeout=120_000)
    tab.wait_for_selector(".comparison", timeout=240_000)
    result = next(job for job in ask(f"{url}/api/jobs")["jobs"] if job["kind"] == "finetune")["result"]
    assert tab.inner_text(".scores th:last-child") == "New model"
    assert tab.locator(".curve circle").count() == len(result["curve"]) + 1, "the old model, then the new one's course"
    tab.wait_for_function("() => document.querySelector('.models').innerText.includes('ours')")
    assert tab.locator(".examples tbody tr").count() == len(result["examples"])

    if difference := result["comparison"]["difference"]:
        count = f"{100 * abs(difference):.2f}".rstrip("0").rstrip(".")
        assert f"{count} {'fewer' if difference < 0 else 'more'} characters in a hundred" in tab.inner_text(".verdict")

    assert ask(f"{url}/api/settings")["model"] != "ours"
    # Nothing changes until the person says so; corrected lines never.
    tab.click("text=Use this model")
    until(lambda: ask(f"{url}/api/settings")["model"] == "ours", "the model in use")
    tab.press("button:has-text('Read uncorrected lines again')", "Enter")
    until(
        lambda: all(line["reading"]["model"] == "ours" for line in lines_of(url, 3)),
        "page 3 read by the new model",
        120,
    )
    assert {page: [line["text"] for line in lines_of(url, page)] for page in (1, 2)} == corrected
