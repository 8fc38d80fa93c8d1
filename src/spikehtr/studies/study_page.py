"""A study's results as files: table.md, table.tex, results.json, plot.png and one page. Made from run folders alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from spikehtr.evaluation.write_report import write_json, write_text
from spikehtr.files import make_folder
from spikehtr.plotting import save_figure
from spikehtr.report import HtmlReport, environment
from spikehtr.studies.comparisons import orderings, pairs
from spikehtr.studies.study_overlay import Fact, Study
from spikehtr.studies.study_plan import StudyPlan
from spikehtr.studies.study_plot import study_figure
from spikehtr.studies.study_runs import RATE, SPLITS, Block, StudyRow, gather
from spikehtr.studies.study_tables import Table, tables, to_latex, to_markdown

PAGE, MARKDOWN, LATEX, JSON, PLOT = "report.html", "table.md", "table.tex", "results.json", "plot.png"


def render(plan: StudyPlan) -> list[Path]:
    """Write everything that the finished runs have to tell; the files, the page first."""
    make_folder(plan.folder)
    blocks = gather(plan)
    made = tables(plan.study, blocks)
    page, markdown, latex, numbers, plot = (plan.folder / name for name in (PAGE, MARKDOWN, LATEX, JSON, PLOT))
    write_text(markdown, f"# {plan.study.title}\n\n```sh\n{_commands(plan, blocks)}\n```\n\n{to_markdown(made)}")
    write_text(latex, to_latex(made))
    write_json(numbers, to_json(plan, blocks))
    save_figure(study_figure(plan.study, blocks), plot)
    _page(plan, made, blocks, plot).save(page)
    return [page, markdown, latex, numbers, plot]


def _commands(plan: StudyPlan, blocks: Sequence[Block]) -> str:
    """Every command that made one of the runs, a line each."""
    made = [run.made.get("command") for block in blocks for row in block.rows for run in row.runs]
    known = dict.fromkeys(command for command in made if command)
    return "\n".join(known) or shlex.join(["spikehtr", *plan.command])


def _page(plan: StudyPlan, made: Sequence[Table], blocks: Sequence[Block], plot: Path) -> HtmlReport:
    page = HtmlReport(f"Study {plan.study.name}: {plan.study.title}")
    page.code(_commands(plan, blocks))
    page.table((), _about(plan, blocks))
    for table in made:
        page.heading(table.title)
        page.table(table.head, table.rows, "l" + "r" * (len(table.head) - 1))
        for note in table.notes:
            page.text(note)
    page.heading("Plot")
    beside = ", ours and the paper's" if plan.study.paper.rates else ""
    several = "; crosses are single seeds" if plan.seeds > 1 else ""
    page.figure(plot.read_bytes(), f"{plan.study.title}: error rates of every variant{beside}{several}")
    with page.details("Settings of every variant"):
        shown = {row.variant.name for block in blocks for row in block.rows if row.shown}
        for variant, why in ((variant, why) for variant, why in plan.variants() if variant.name in shown):
            settings = ", ".join(f"{key}={value}" for key, value in variant.set.items()) or "as the preset"
            told = why if variant.why else settings
            page.text(f"{variant.label}: {variant.preset or plan.preset or plan.study.preset}; {told}")
    page.foot(made_with(blocks))
    return page


def _about(plan: StudyPlan, blocks: Sequence[Block]) -> list[tuple[str, str]]:
    runs = [run for block in blocks for row in block.rows for run in row.runs]
    limit = f"{plan.budget:g} minutes of training" if plan.budget else f"{plan.epochs} epochs" if plan.epochs else ""
    devices = ", ".join(sorted({str(run.facts["device"]) for run in runs}))
    return [
        ("data", ", ".join(plan.data)),
        ("preset", plan.preset or plan.study.preset or "each variant's own"),
        ("set for all", ", ".join(plan.overrides) or "nothing"),
        ("each run", limit or "the preset's number of epochs"),
        ("runs", f"{len(runs)} finished, {sum(run.facts['minutes'] for run in runs):.1f} minutes of training in all"),
        ("device", devices or "none yet"),
    ]


def made_with(blocks: Sequence[Block]) -> dict[str, str]:
    """What the runs were trained with, which is not always what the page is made with; all of it where they differ."""
    runs = [run.made for block in blocks for row in block.rows for run in row.runs if run.made]
    if not runs:
        return environment()
    known = {name: sorted({str(made[name]) for made in runs if name in made}) for name in environment()}
    return {name: " / ".join(values) for name, values in known.items() if values}


def to_json(plan: StudyPlan, blocks: Sequence[Block]) -> dict[str, Any]:
    """Every number of the tables, and those behind them."""
    study = plan.study
    return {
        "study": study.name,
        "title": study.title,
        "paper": study.paper.model_dump(mode="json"),
        "command": _commands(plan, blocks),
        "budget": plan.budget,
        "epochs": plan.epochs,
        "set": list(plan.overrides),
        "data": {block.data: _block_json(study, block) for block in blocks},
    }


def _block_json(study: Study, block: Block) -> dict[str, Any]:
    return {
        "intervals": block.how(study.paper.split),
        "rows": [_row_json(study, block, row) for row in block.rows],
        "orderings": [asdict(o) | {"text": o.sentence()} for o in orderings(study, block)],
        "pairs": [asdict(o) | {"text": o.sentence()} for o in pairs(study, block)],
    }


def _row_json(study: Study, block: Block, row: StudyRow) -> dict[str, Any]:
    rates: dict[str, Any] = {}
    for split in SPLITS:
        for metric in RATE:
            found = block.estimate(row, split, metric)
            if found is not None:
                values = {"mean": found.mean, "interval": found.interval, "by_seed": found.values}
                rates.setdefault(split, {})[metric] = values
    return {
        "variant": row.variant.name,
        "label": row.variant.label,
        "set": row.variant.set,
        "why": row.why,
        "rates": rates,
        "facts": {name: row.fact(name) for name in get_args(Fact)} if row.runs else {},
        "runs": [run.facts for run in row.runs],
        "paper": dict(zip(study.paper.columns, row.variant.paper, strict=False)),
    }
