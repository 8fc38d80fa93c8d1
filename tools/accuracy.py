"""Puts the tables of the runs that are kept in docs/results/main into docs/results/accuracy.md.

    spikehtr study main ... -o RUNS --keep docs/results/main
    python tools/accuracy.py

A data set's tables stand between `<!-- tables: DATA -->` and `<!-- end -->`: rows that ran, and pairs on test lines.
All rows, the paper's beside them, are in docs/results/main/table.md, which `study` itself writes.
"""

import re
from dataclasses import replace
from pathlib import Path

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.studies.study_plan import StudyPlan
from spikehtr.studies.study_runs import gather
from spikehtr.studies.study_tables import Table, tables, to_markdown

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGE, KEPT = RESULTS / "accuracy.md", RESULTS / "main"
PLACE = re.compile(r"(<!-- tables: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLES = {
    "Orderings": "GELU minus spikes, and reduced minus whole, paired",
    "Line by line": "Beside the baselines, line by line",
}


def filled(page: str, plan: StudyPlan) -> str:
    """The page with its tables made anew."""
    made = {block.data: _tables(tables(plan.study, [block])) for block in gather(plan)}

    def put(found: re.Match[str]) -> str:
        if found[2] not in made:
            raise SpikeHTRError(f"{PAGE.name} has a place for tables of {found[2]}: no runs of it are in {plan.folder}")
        return f"{found[1]}\n{made[found[2]]}\n{found[3]}"

    return PLACE.sub(put, page)


def _tables(made: list[Table]) -> str:
    main, *compared = made
    ran = [row for row in main.rows if row[2]]  # of the others one cell says why not
    parts = [_markdown(replace(main, rows=ran, notes=main.notes[:1]), ("training", "paper"))]
    for table in compared:
        rows = [row for row in table.rows if row[2].startswith("test")]
        told = TITLES[table.title.split(":")[0]]
        parts.append(f"{told}:\n\n{_markdown(replace(table, rows=rows), ('paper', 'verdict'))}")
    return "\n".join(parts)


def _markdown(table: Table, without: tuple[str, ...]) -> str:
    places = [place for place, name in enumerate(table.head) if not name.startswith(without)]
    head, *rows = ([row[place] for place in places] for row in (table.head, *table.rows))
    return to_markdown([replace(table, head=head, rows=rows)]).split("\n", 2)[2]  # the page has its own titles


def main() -> None:
    page = filled(PAGE.read_text(encoding="utf-8"), StudyPlan.read(KEPT))
    with whole_file(PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
