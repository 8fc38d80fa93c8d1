"""A study's table as rows of text, and those as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spikehtr.studies.comparisons import Ordering, orderings, pairs
from spikehtr.studies.study_overlay import Fact, Study
from spikehtr.studies.study_runs import SPLITS, Block, Estimate, StudyRow

_FACTS: dict[Fact, tuple[str, str, float]] = {  # head, format, factor
    "r": ("r", ".2f", 1),
    "parameters": ("params, M", ".1f", 1e-6),
    "macs": ("MACs, G", ".2f", 1e-9),
    "firing": ("mean firing rate", ".4f", 1),
    "minutes": ("training, min", ".1f", 1),
    "epochs": ("epochs", ".0f", 1),
    "speed": ("lines/s", ".0f", 1),
}
_PAIR_HEAD = ["A", "B", "measured", "B minus A, points", "95 % interval", "p", "paper", "verdict"]


@dataclass(frozen=True)
class Table:
    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]


def tables(study: Study, blocks: Sequence[Block]) -> list[Table]:
    """For each data set: the paper's table with our numbers, and what it says about the paper's orderings."""
    made = []
    for block in blocks:
        made.append(_main(study, block))
        for title, found in (("Orderings", orderings(study, block)), ("Line by line", pairs(study, block))):
            if found:
                made.append(Table(f"{title}: {block.data}", _PAIR_HEAD, [_ordering_cells(o) for o in found], []))
    return made


def _main(study: Study, block: Block) -> Table:
    ours = [(split, metric) for split in SPLITS for metric in study.metrics]
    head = ["variant", *(f"{split} {metric.upper()}, %" for split, metric in ours)]
    head += [_FACTS[name][0] for name in study.show] + [f"paper: {name}" for name in study.paper.columns]
    rows = []
    for row in (row for row in block.rows if row.shown):
        if row.runs:
            cells = [_estimate(block.estimate(row, split, metric)) for split, metric in ours]
            cells += [_fact(row, name) for name in study.show]
        else:
            cells = [row.why] + [""] * (len(ours) + len(study.show) - 1)
        rows.append([row.variant.label, *cells, *(row.variant.paper or ["--"] * len(study.paper.columns))])
    notes = [f"{block.how(study.paper.split)}."]
    if study.paper.table:
        notes.append(f"Paper: {study.paper.table}, {study.paper.caption}.")
    if hidden := len(block.rows) - len(rows):
        notes.append(f"Not asked for and not shown: {hidden} other variants of the study.")
    return Table(f"{study.title}: {block.data}", head, rows, notes)


def _estimate(found: Estimate | None) -> str:
    if found is None:
        return "--"
    shown, marks = (found.interval, "[]") if found.interval else (found.values, "()")
    between = ", ".join(f"{100 * value:.2f}" for value in shown)
    bounds = f" {marks[0]}{between}{marks[1]}" if len(shown) > 1 else ""
    return f"{100 * found.mean:.2f}{bounds}"


def _fact(row: StudyRow, name: Fact) -> str:
    value = row.fact(name)
    _, form, factor = _FACTS[name]
    return "--" if value is None else format(value * factor, form)


def _ordering_cells(o: Ordering) -> list[str]:
    interval = "--" if o.interval is None else f"{o.interval[0]:+.2f} to {o.interval[1]:+.2f}"
    p = "--" if o.p_value is None else f"{o.p_value:.2g}"
    paper = ", ".join(f"{d:+.2f}" for d in o.published) or "--"
    return [o.a, o.b, f"{o.split}, {o.metric.upper()}", f"{o.difference:+.2f}", interval, p, paper, o.verdict]


def to_markdown(made: Sequence[Table]) -> str:
    return "\n\n".join(map(_markdown, made)) + "\n"


def _markdown(table: Table) -> str:
    head, *rows = ([cell.replace("|", "\\|") for cell in row] for row in (table.head, *table.rows))
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    return "\n".join([f"## {table.title}", "", *lines, *(f"\n{note}" for note in table.notes)])


_TEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
)


def tex(text: str) -> str:
    return text.translate(_TEX)


def to_latex(made: Sequence[Table]) -> str:
    """A table environment each; needs booktabs."""
    return "\n\n".join(map(_latex, made)) + "\n"


def _latex(table: Table) -> str:
    head, *rows = (" & ".join(map(tex, row)) + r" \\" for row in (table.head, *table.rows))
    caption = tex(" ".join([f"{table.title}.", *table.notes]))
    columns = "l" + "c" * (len(table.head) - 1)
    top = [r"\begin{table}[t]", r"\centering\small", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}"]
    body = [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*top, *body, r"\end{tabular}", r"\end{table}"])
