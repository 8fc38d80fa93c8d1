"""Puts the tables of the runs that are kept in docs/results/eight-minutes into docs/results/accuracy.md.

    spikehtr study main --budget 8 ... -o RUNS --keep docs/results/eight-minutes
    python tools/write_accuracy.py

A set's rows stand between `<!-- rows: SET -->` and `<!-- end -->`, paired differences of all sets between
`<!-- pairs: -->` and `<!-- end -->`: in that comment stands a line `A | B` for each pair, with the labels of the study.
"""

import re
from pathlib import Path

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file
from spikehtr.studies.study_plan import StudyPlan
from spikehtr.studies.study_runs import gather
from spikehtr.studies.study_tables import Table, tables

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGE, KEPT = RESULTS / "accuracy.md", RESULTS / "eight-minutes"
PLACE = re.compile(r"(<!-- (rows|pairs):\s(.*?)\s-->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS = ("variant", "test CER, %", "test WER, %", "params, M", "MACs, G", "r", "mean firing rate", "epochs")


def filled(page: str, plan: StudyPlan) -> str:
    """The page with its tables made anew."""
    made = {block.data: tables(plan.study, [block]) for block in gather(plan)}

    def put(found: re.Match[str]) -> str:
        start, kind, asked, end = found.groups()
        if kind == "rows" and asked not in made:
            raise SpikeHTRError(f"{PAGE.name} has a place for rows of {asked}: no runs of it are in {plan.folder}")
        table = _rows(made[asked][0]) if kind == "rows" else _pairs(made, asked.splitlines())
        return f"{start}\n{_markdown(table)}\n\n{end}"

    return PLACE.sub(put, page)


def _rows(main: Table) -> list[list[str]]:
    """The variants that ran, with the columns that are published."""
    places = [main.head.index(name) for name in COLUMNS]
    ran = [row for row in main.rows if row[2]]  # of the others one cell says why not
    return [[row[place] for place in places] for row in (main.head, *ran)]


def _pairs(made: dict[str, list[Table]], asked: list[str]) -> list[list[str]]:
    """Differences in test CER, points: a row for each pair, a column for each set."""
    found = {
        (data, a, b): f"{difference} ({interval})"
        for data, (_, *compared) in made.items()
        for table in compared
        for a, b, measured, difference, interval, *_ in table.rows
        if measured == "test, CER"
    }
    rows = [["A", "B", *(f"{data}: B minus A, points of CER" for data in made)]]
    for pair in asked:
        a, b = (part.strip() for part in pair.split("|"))
        if not any((data, a, b) in found for data in made):
            raise SpikeHTRError(f"{PAGE.name} asks for {a} and {b}: the study compares no such pair")
        rows.append([a, b, *(found.get((data, a, b), "--") for data in made)])
    return rows


def _markdown(rows: list[list[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *rest])


def main() -> None:
    page = filled(PAGE.read_text(encoding="utf-8"), StudyPlan.read(KEPT))
    with whole_file(PAGE) as temporary:
        temporary.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
