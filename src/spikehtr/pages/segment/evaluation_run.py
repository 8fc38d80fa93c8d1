"""An evaluation from folders of pages to a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder
from spikehtr.pages.found import Segmenter
from spikehtr.pages.segment.photographed import View
from spikehtr.pages.segment.report_pages import (
    ROWS,
    WorstPages,
    add_scores,
    add_worst,
    finish_report,
    start_report,
    write_rows,
)
from spikehtr.pages.segment.score_pages import Row, evaluate, known_pages, left_out


def run_evaluation(
    find: Segmenter,
    sources: Sequence[Path],
    fold: int | None,
    only: Sequence[str] | None,
    view: View,
    problems: list[str],
    folder: Path | None,
    worst: int,
    command: str,
    device: str,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """The row of each page; written to `folder` where one is given. What cannot be used is noted in `problems`."""
    pages = list(known_pages(sources, None, problems))
    chosen = left_out(pages, fold, only or []) if fold is not None or only else None
    pages = [page for page in pages if chosen is None or page.collection in chosen]
    if not pages:
        raise SpikeHTRError(f"{', '.join(map(str, sources))}: no page that could be used")
    if folder:
        make_folder(folder)
    rows, kept = [], WorstPages(worst if folder else 0)
    for result in evaluate(find, pages, view):
        rows.append(result.row)
        kept.add(result)
        tell(len(rows))
    if folder:
        write_rows(folder / ROWS, rows)
        report = start_report("Lines found on pages", command, {"pages": len(pages), "shown": view})
        add_scores(report, rows, "How lines were found")
        add_worst(report, kept)
        finish_report(report, folder, device)
    return rows
