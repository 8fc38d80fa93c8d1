"""How fast the workbench is, measured in a real browser: a start, and a page of many lines.

    python benchmarks/workbench.py                    # a start, and 500 lines on a page of 20 megapixels
    python benchmarks/workbench.py --lines 100 --rounds 9 --json

Start: from the command to the frame in which the first page's picture stands in the browser, for a folder that is new
(grid) and for one whose page has been read (the page and its texts). What was read from the disk before is forgotten
first (posix_fadvise) for all files of the installed packages, so far as no other program has them open as memory. The
browser runs already, and gets the address as soon as the command has printed it. Told: until then. Processor: what the
command has used of the processors when the page stands there, which other programs on the machine do not change.

Opening: from the request of the page's address to the frame in which all lines, all outlines and the picture stand
there (of an open workbench: the server runs, its pictures are made). Key: from the time stamp of a key press in the
text of a line to the end of the frame that shows it. Frame: between two frames while the wheel zooms in and out.
Milliseconds, median and the 95th of 100. Needs a Chromium (Debian: chromium-headless-shell) and the extras web and dev.
A headless browser draws on the processor: with a graphics card frames are faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, sync_playwright
from served import processor_seconds, start

import spikehtr

SOURCE = Path(spikehtr.__file__).parent
WIDTH, HEIGHT, COLUMNS = 4000, 5000, 5
WORDS = ("I", "have", "read", "your", "letter", "by", "the", "window", "where", "light", "is", "best", "and", "some")
READY = """(count) => document.querySelectorAll(".row").length >= count
    && document.querySelectorAll(".shapes .line").length >= count
    && document.querySelector(".viewer-picture")?.complete"""
GRID = "() => { const one = document.querySelector('.card img'); return one?.complete && one.naturalWidth > 0; }"
PAGE = """() => document.querySelectorAll(".row").length > 0 && document.querySelectorAll(".shapes .line").length > 0
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


def forget_files() -> int:
    """Have the system drop what it keeps of the files of Python and its packages; how many there are."""
    count = 0
    for folder in {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")} | {str(SOURCE)}:
        for name in Path(folder).rglob("*"):
            if name.suffix in (".py", ".pyc", ".so") or "static" in name.parts:
                with contextlib.suppress(OSError), name.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    count += 1
    return count


def measure_start(browser: Browser, rounds: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {"told": [], "grid": [], "page": [], "processor": []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(2 * rounds):
            folder = Path(name) / f"{number // 2}"
            is_new = number % 2 == 0
            if is_new:
                folder.mkdir()
                shutil.copy(SOURCE / "assets" / "sample-page.jpg", folder)
            tab = browser.new_page(viewport={"width": 1280, "height": 720})
            forget_files()
            began = time.perf_counter()
            process, url = start(folder, wait=False)
            found["told"].append((time.perf_counter() - began) * 1000)
            try:
                tab.goto(url if is_new else f"{url}/p/page/1")
                tab.wait_for_function(GRID if is_new else PAGE)
                tab.evaluate(OPENED)
                found["grid" if is_new else "page"].append((time.perf_counter() - began) * 1000)
                found["processor"].append(processor_seconds(process.pid) * 1000)
                if is_new:
                    tab.wait_for_selector('.card .badge[data-state="read"]', timeout=180_000)
            finally:
                tab.close()
                process.terminate()
                process.wait(30)
    return {f"start_{key}_ms": summary(values) for key, values in found.items()}


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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_file, args=["--no-sandbox"])
        result = measure_start(browser, asked.rounds)
        with tempfile.TemporaryDirectory() as name:
            draw(Path(name), asked.lines)
            process, url = start(Path(name))
            try:
                tab = browser.new_page(viewport={"width": 1280, "height": 720})
                result |= measure(tab, url, asked.lines, asked.rounds)
            finally:
                process.terminate()
                process.wait(30)
        browser.close()
    if asked.json:
        print(json.dumps(result))
        return
    for key in (key for key in result if key.endswith("_ms")):
        values = result[key]
        name = key.removesuffix("_ms").replace("_", " ")
        print(f"{name:12} median {values['median']:7.1f} ms, 95th of 100 {values['p95']:7.1f} ms, of {values['count']}")


if __name__ == "__main__":
    main()
