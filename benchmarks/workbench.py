"""How fast the workbench is with a page of many lines, measured in a real browser.

    python benchmarks/workbench.py                    # 500 lines on a page of 20 megapixels
    python benchmarks/workbench.py --lines 100 --rounds 9 --json

Opening: from the request of the page's address to the frame in which all lines, all outlines and the picture stand
there (of an open workbench: the server runs, its pictures are made). Key: from the time stamp of a key press in the
text of a line to the end of the frame that shows it. Frame: between two frames while the wheel zooms in and out.
Milliseconds, median and the 95th of 100. Needs a Chromium (Debian: chromium-headless-shell) and the extras web and dev.
A headless browser draws on the processor: with a graphics card frames are faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import Page, sync_playwright

WIDTH, HEIGHT, COLUMNS = 4000, 5000, 5
WORDS = ("I", "have", "read", "your", "letter", "by", "the", "window", "where", "light", "is", "best", "and", "some")
READY = """(count) => document.querySelectorAll(".row").length >= count
    && document.querySelectorAll(".shapes .line").length >= count
    && document.querySelector(".viewer-picture")?.complete"""
OPENED = """() => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(0);
}))"""
WATCH_KEYS = """() => { window.keyTimes = []; addEventListener("keydown", (event) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => window.keyTimes.push(performance.now() - event.timeStamp);
    channel.port2.postMessage(0);
}), true); }"""
WATCH_FRAMES = """() => { window.frameTimes = []; let last = performance.now();
    const frame = (now) => {
        window.frameTimes.push(now - last);
        last = now;
        window.frameId = requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame); }"""


def draw(folder: Path, lines: int) -> None:
    """A page with so many lines in five columns, and its PAGE file with texts and outlines of 32 points."""
    chance = np.random.default_rng(1)
    image = Image.fromarray(chance.normal(225, 6, (HEIGHT, WIDTH)).clip(0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    rows = -(-lines // COLUMNS)
    step, width = (HEIGHT - 100) // rows, (WIDTH - 100) // COLUMNS
    found = []
    for number in range(lines):
        left, top = 50 + number // rows * width, 50 + number % rows * step
        text = " ".join(chance.choice(WORDS, 7))
        pen.text((left + 5, top + step * 0.2), text, fill=40, font_size=step * 0.5)
        xs = np.linspace(left, left + width - 40, 16).round().astype(int)
        wave = chance.integers(0, max(step // 8, 1), (2, 16))
        outline = [*zip(xs, top + wave[0], strict=True), *zip(xs[::-1], top + step - 4 - wave[1], strict=True)]
        base = [(left, top + int(step * 0.7)), (left + width - 40, top + int(step * 0.7))]
        outline_text, base_text = (" ".join(f"{x},{y}" for x, y in points) for points in (outline, base))
        found.append(
            f'<TextLine id="l{number}"><Coords points="{outline_text}"/><Baseline points="{base_text}"/>'
            f"<TextEquiv><Unicode>{escape(text)}</Unicode></TextEquiv></TextLine>"
        )
    image.save(folder / "page.jpg", quality=85)
    (folder / "page.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">'
        "<Metadata><Creator>benchmark</Creator><Created>2000-01-01T00:00:00</Created><LastChange>2000-01-01T00:00:00</LastChange></Metadata>"
        f'<Page imageFilename="page.jpg" imageWidth="{WIDTH}" imageHeight="{HEIGHT}"><TextRegion id="r1">'
        f'<Coords points="0,0 {WIDTH - 1},0 {WIDTH - 1},{HEIGHT - 1} 0,{HEIGHT - 1}"/>'
        f"{''.join(found)}</TextRegion></Page></PcGts>",
        encoding="utf-8",
    )


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "spikehtr", "serve", str(folder), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    url = next(found.group().rstrip("/.") for line in process.stdout if (found := re.search(r"http://\S+", line)))
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    return process, url


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(float(np.percentile(values, 95)), 1),
        "count": len(values),
    }


def measure(tab: Page, url: str, lines: int, rounds: int) -> dict[str, Any]:
    opening = []
    for number in range(rounds + 1):
        tab.goto(f"{url}/p/page/1")
        tab.wait_for_function(READY, arg=lines)
        if number:  # the first makes the pictures
            opening.append(tab.evaluate(OPENED))
    tab.wait_for_selector(".typing-field:focus")
    tab.evaluate(WATCH_KEYS)
    for sign in "the quick brown fox jumps over the lazy dog " * 3:
        tab.keyboard.press("Space" if sign == " " else sign)
        tab.wait_for_timeout(30)
    keys = tab.evaluate("() => window.keyTimes")
    box = tab.locator(".viewer").bounding_box()
    assert box is not None
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.evaluate(WATCH_FRAMES)
    for turn in [-100] * 20 + [100] * 20 + [-100] * 20 + [100] * 20:
        tab.mouse.wheel(0, turn)
    frames = tab.evaluate("() => { cancelAnimationFrame(window.frameId); return window.frameTimes; }")
    return {"lines": lines, "opening_ms": summary(opening), "key_ms": summary(keys), "frame_ms": summary(frames[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    browser_file = next((found for name in names if (found := shutil.which(name))), None)
    if browser_file is None:
        raise SystemExit("no browser found: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as name:
        draw(Path(name), asked.lines)
        process, url = start(Path(name))
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
                tab = browser.new_page(viewport={"width": 1280, "height": 720})
                result = measure(tab, url, asked.lines, asked.rounds)
                browser.close()
        finally:
            process.terminate()
            process.wait(30)
    if asked.json:
        print(json.dumps(result))
        return
    for key in ("opening_ms", "key_ms", "frame_ms"):
        values = result[key]
        print(
            f"{key[:-3]:8} median {values['median']:7.1f} ms, 95th of 100 {values['p95']:7.1f} ms, of {values['count']}"
        )


if __name__ == "__main__":
    main()
