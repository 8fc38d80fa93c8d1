"""The page at the end of an evaluation or a training: figures for each collection, and the worst pages as pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from spikehtr.files import whole_file
from spikehtr.pages.score_lines import score
from spikehtr.pages.segment.score_pages import SCORES, Result, Row, by_collection
from spikehtr.report import HtmlReport, environment

REPORT, ROWS = "report.html", "pages.jsonl"
LONGEST = 900  # pixels of a page in the report
FOUND, TRUE, MISSED = (0, 114, 178), (0, 158, 115), (213, 60, 0)
MEANING = (
    "Recall and precision of baselines as in the cBAD competitions. Whole: neither split, nor merged, nor cut short. "
    "Disorder: pairs of lines read in the other order. Jumps: lines after which another one is read than in the file."
)


class WorstPages:
    """The pages with the lowest F, with what was found on them; images of the others are not kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[float, int, Result]] = []
        self._seen = 0

    def add(self, result: Result) -> None:
        self._seen += 1
        self._kept.append((result.row["f"], self._seen, result))
        self._kept = sorted(self._kept, key=lambda one: one[:2])[: self._most]

    def __iter__(self) -> Any:
        return (result for _, _, result in self._kept)


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    with whole_file(path) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def start_report(title: str, command: str, facts: Mapping[str, object]) -> HtmlReport:
    report = HtmlReport(title)
    report.code(command)
    if facts:
        report.table((), list(facts.items()))
    return report


def add_scores(report: HtmlReport, rows: Sequence[Row], heading: str) -> None:
    report.heading(heading)
    names = (*SCORES, "lies right", "seconds")
    body = [
        [name, count, *(f"{mean[score_name]:.3f}" for score_name in names)] for name, count, mean in by_collection(rows)
    ]
    report.table(["collection", "pages", *names], body, "l" + "r" * (len(names) + 1))
    report.text(MEANING)


def add_worst(report: HtmlReport, worst: WorstPages) -> None:
    shown = list(worst)
    if shown:
        report.heading("Worst pages")
        report.text("Green: lines of the file that were found whole. Red: those that were not. Blue: what was found.")
    for result in shown:
        row = result.row
        told = f"{row['page']}: recall {row['recall']:.3f}, precision {row['precision']:.3f}, whole {row['whole']:.3f}"
        report.figure(picture(result), f"Lines found and true on {row['page']}", told)


def finish_report(report: HtmlReport, folder: Path, device: str) -> Path:
    report.foot(environment(device))
    report.save(folder / REPORT)
    return folder / REPORT


def picture(result: Result) -> bytes:
    """A page, pale, with its lines and those found, as a PNG of few colours."""
    image = result.page.image
    scale = min(1.0, LONGEST / max(image.shape))
    size = tuple(max(1, round(side * scale)) for side in image.shape[::-1])
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    canvas = cv2.cvtColor((110 + small.astype(np.float32) * 145 / 255).astype(np.uint8), cv2.COLOR_GRAY2RGB)
    whole = {place for place, _ in score(result.page.lines, result.found).matches}
    for number, line in enumerate(result.page.lines):
        _draw(canvas, line * scale, TRUE if number in whole else MISSED, 3)
    for line in result.found:
        _draw(canvas, line * scale, FOUND, 1)
    png = io.BytesIO()
    Image.fromarray(canvas).quantize(96, dither=Image.Dither.NONE).save(png, "PNG", optimize=True)
    return png.getvalue()


def _draw(canvas: Any, line: Any, colour: tuple[int, int, int], thickness: int) -> None:
    points = np.round(line).astype(np.int32)
    cv2.polylines(canvas, [points], False, colour, thickness, cv2.LINE_AA)
    cv2.circle(canvas, tuple(int(value) for value in points[0]), 3, colour, -1, cv2.LINE_AA)
