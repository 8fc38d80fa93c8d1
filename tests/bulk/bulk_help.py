"""A reader that needs no network, a segmenter that some pages crash, and a run of them: for tests of bulk runs.

As a program: `python bulk_help.py FOLDER PAGES...` does a run, which tests then kill.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from functools import partial
from pathlib import Path

from PIL import Image, ImageDraw

from spikehtr.data.geometry import FittedLine, LineFitting
from spikehtr.pages.found import FoundLine, FoundRegion
from spikehtr.pages.page_format import PageFormat
from spikehtr.pages.page_lines import ReadOptions
from spikehtr.results import Character, Line

HERE = Path(__file__).parent
POISON = 13  # grey level of the first pixel of a page that takes its process down
FITTING = LineFitting(16, 256, False)


class StubReader:
    """Reads what a checksum of the pixels says."""

    name, precision, estimate = "stub", "fp32", None
    fitting = FITTING

    def __init__(self, delay: float = 0.0) -> None:
        self.delay = delay

    def read_lines(self, lines: list[FittedLine], batch_size: int | None = None, progress: object = None) -> list[Line]:
        time.sleep(self.delay * len(lines))
        return [self._line(line) for line in lines]

    def _line(self, line: FittedLine) -> Line:
        text = f"{zlib.crc32(line.pixels.tobytes()):08x} read"
        step = line.original_width / len(text)
        characters = [Character(c, 0.9, number * step, (number + 1) * step) for number, c in enumerate(text)]
        return Line(text, 0.9, characters)


def find(page: Image.Image) -> list[FoundRegion]:
    """Two bands of every page; a poisoned one ends the process."""
    if page.getpixel((0, 0)) == POISON:
        os._exit(7)
    lines = []
    for top in (20.0, 60.0):
        points = ((5.0, top), (page.width - 5.0, top), (page.width - 5.0, top + 30), (5.0, top + 30))
        lines.append(FoundLine(((5.0, top + 25), (page.width - 5.0, top + 25)), points))
    return [FoundRegion(lines)]


def page_image(number: int, poison: bool = False) -> Image.Image:
    image = Image.new("L", (200, 110), 230)
    pen = ImageDraw.Draw(image)
    for top in (20, 60):
        for x in range(10, 180, 12):
            pen.line((x, top + 5, x + number % 7 + 2, top + 24 - number % 11), fill=40, width=2)
    image.putpixel((100, 100), number % 256)
    image.putpixel((101, 100), number // 256)
    if poison:
        image.putpixel((0, 0), POISON)
    return image


def write_pages(folder: Path, count: int, poisoned: tuple[int, ...] = ()) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        page_image(number, number in poisoned).save(folder / f"p{number:04d}.png")
    return folder


def options() -> ReadOptions:
    return ReadOptions(find, "page")


def go(inputs: list[str], folder: Path, delay: float = 0.0) -> object:
    from spikehtr.bulk.run import BulkOptions, run_bulk

    paths = os.pathsep.join([str(HERE), str(HERE.parents[1] / "src")])
    own = BulkOptions(workers=2, environment={"PYTHONPATH": paths})
    load = partial(StubReader, delay)
    return run_bulk(inputs, folder, load, FITTING, options(), PageFormat("page"), options=own)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    import bulk_help  # by this name, so that other processes find what is sent to them

    report = bulk_help.go([sys.argv[2]], Path(sys.argv[1]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
    print(report.to_text())  # type: ignore[attr-defined]
