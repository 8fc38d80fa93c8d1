"""A training from folders of pages to a weight file with its card, and a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.network_segmenter import NetworkSegmenter
from spikehtr.pages.segment import network_weights as weights
from spikehtr.pages.segment.firing import firing
from spikehtr.pages.segment.line_network import parameters
from spikehtr.pages.segment.packed_pages import COMPOSED, INDEX, PackedPage, pack, unpack
from spikehtr.pages.segment.report_pages import (
    ROWS,
    WorstPages,
    add_scores,
    add_worst,
    finish_report,
    start_report,
    write_rows,
)
from spikehtr.pages.segment.score_pages import KnownPage, Row, evaluate, left_out, means
from spikehtr.pages.segment.train_network import LOG, WEIGHTS, Trainer
from spikehtr.plotting import BLUE, new_figure, plain_axes
from spikehtr.report import HtmlReport, environment

RESULT = "segmenter.safetensors"
_WATCHED = 16  # pages on which neurons are watched
PACKED = "pages"  # the folder of a run in which pages that came as files are kept


def gathered(sources: Sequence[Path], folder: Path, resume: bool) -> tuple[list[PackedPage], str, list[str]]:
    """Pages of packed folders, and of others, which are packed into the run's folder first; a digest of all they say;
    what was left out."""
    packed = [source for source in sources if (source / INDEX).is_file()]
    loose = [source for source in sources if source not in packed]
    problems: list[str] = []
    if loose:
        own = folder / PACKED
        if not (resume and (own / INDEX).is_file()):
            problems = pack(loose, own)
        packed.append(own)
    digest = hashlib.sha256(b"".join((one / INDEX).read_bytes() for one in packed)).hexdigest()
    pages = [page for one in packed for page in unpack(one)]
    if not pages:
        raise SpikeHTRError(f"{', '.join(map(str, sources))}: no page that could be used")
    return pages, digest, problems


def divided(pages: Sequence[PackedPage], fold: int | None, named: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Pages to train on, and pages of collections that are left out. Composed ones are never left out."""
    out = left_out([page for page in pages if page.group != COMPOSED], fold, named)
    kept = [page for page in pages if page.collection not in out]
    if not any(page.labels.lines for page in kept):
        raise SpikeHTRError("no page with lines is left to train on: leave fewer collections out")
    return kept, [page for page in pages if page.collection in out]


def finish(
    folder: Path,
    trainer: Trainer,
    others: Sequence[PackedPage],
    command: str,
    worst: int,
    tell: Callable[[int], None] = lambda done: None,
) -> list[Row]:
    """Scores the averaged network on pages it was not trained on; writes the file that travels, its card, a report."""
    file, device = folder / WEIGHTS, str(trainer.device)
    find = NetworkSegmenter(file.absolute(), device)
    pages = (KnownPage(p.name, p.collection, p.image, [line.points for line in p.labels.lines]) for p in others)
    rows, kept = [], WorstPages(worst)
    for result in evaluate(find, pages):
        rows.append(result.row)
        kept.add(result)
        tell(len(rows))
    about = weights.line_network_header(file)
    card = {key: value for key, value in about.items() if key not in ("kind", "shape")}
    card |= {"command": command, "environment": environment(device)}
    if rows:
        scores = {name: round(value, 4) for name, value in means(rows).items()}
        card |= {"scores": scores | {"pages": len(rows), "collections": sorted({row["collection"] for row in rows})}}
    network = weights.load(file)
    if network.shape.burst:
        fired = firing(network.to(trainer.device), (page.image for page in others[:_WATCHED]))
        card |= {"firing": {name: round(value, 5) for name, value in fired.items()}}
    weights.save(folder / RESULT, network.state_dict(), network.shape, card, half=True)
    write_rows(folder / ROWS, rows)
    facts = {
        "parameters": f"{parameters(network):,}",
        "trained on": f"{about['pages']} pages of {len(about['collections'])} collections",
        "data digest": about["data"],
        "trained": f"{about['step']} steps, {about['seconds'] / 60:.1f} minutes",
    }
    if "firing" in card:
        facts |= {name: f"{value:.3f}" for name, value in card["firing"].items()}
    report = start_report(f"Line network {folder.name}", command, facts)
    _curves(report, folder)
    if rows:
        add_scores(report, rows, "On collections that were left out")
        add_worst(report, kept)
    with report.details("All settings"):
        report.code(json.dumps(about["options"], indent=2))
    finish_report(report, folder, device)
    return rows


def _curves(report: HtmlReport, folder: Path) -> None:
    file = folder / LOG
    log = [json.loads(row) for row in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    if len(log) > 1:
        figure = new_figure(6, 3)
        panel = figure.add_subplot()
        panel.semilogy([row["step"] for row in log], [row["total"] for row in log], color=BLUE)
        panel.set(xlabel="step", ylabel="loss")
        plain_axes(panel)
        report.heading("Learning curve")
        report.figure(figure, "The loss against the step")
