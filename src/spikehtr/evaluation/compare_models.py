"""Two models on the same lines: is the difference real, and where is it?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import Evaluation
from spikehtr.evaluation.intervals import paired_bootstrap
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rate_tables import columns, interval_note, percent
from spikehtr.evaluation.rates import character_edits, finite, total
from spikehtr.evaluation.summary import MAIN, clusters_of, resampling
from spikehtr.evaluation.write_report import show_line, write_evaluation, write_json, write_table
from spikehtr.files import make_folder
from spikehtr.report import HtmlReport, environment

A, B = "A", "B"
_HEAD = ["", A, B, "B minus A, points", "95 % interval", "p", "real"]


def match_lines(a: Evaluation, b: Evaluation) -> tuple[Evaluation, Evaluation]:
    """Both reduced to the lines that both have, matched by set and id, in a's order.

    Ids are unique within a source. Where a store mixes sources it cannot tell apart, the same id's first line is
    matched with the other's first, and so on.
    """
    ours, theirs = _keys(a.predictions), _keys(b.predictions)
    places = {key: place for place, key in enumerate(theirs)}
    common = [(here, places[key]) for here, key in enumerate(ours) if key in places]
    if not common:
        raise SpikeHTRError("the two have no line in common: nothing can be compared")
    for here, there in common:
        if a.predictions[here].reference != b.predictions[there].reference:
            name = a.predictions[here].id
            raise SpikeHTRError(f"line {name!r} has another reference for each model: give both the same data")
    return a.keep([here for here, _ in common]), b.keep([there for _, there in common])


def _keys(predictions: Sequence[Prediction]) -> list[tuple[str, str, int]]:
    seen: Counter[tuple[str, str]] = Counter()
    keys = []
    for p in predictions:
        keys.append((p.set, p.id, seen[p.set, p.id]))
        seen[p.set, p.id] += 1
    return keys


def compare(a: Evaluation, b: Evaluation) -> dict[str, Any]:
    """Everything about two matched evaluations (`match_lines`), ready for JSON, without the single lines."""
    names = list(dict.fromkeys(p.set for p in a.predictions))
    sets = {}
    for name in names if len(names) > 1 else []:
        rows = [i for i, p in enumerate(a.predictions) if p.set == name]
        sets[name] = _comparison(a.keep(rows).predictions, b.keep(rows).predictions)
    return {
        "models": {A: a.about.get("model"), B: b.about.get("model")},
        **_comparison(a.predictions, b.predictions),
        "sets": sets,
        A: a.summary,
        B: b.summary,
    }


def _comparison(a: Sequence[Prediction], b: Sequence[Prediction]) -> dict[str, Any]:
    return resampling(a) | {"lines": len(a), "comparisons": _compared(a, b)}


def _compared(a: Sequence[Prediction], b: Sequence[Prediction]) -> dict[str, Any]:
    """The paired bootstrap of each main rate."""
    found: dict[str, Any] = {}
    clusters = clusters_of(a)
    for name, counted in MAIN.items():
        ours = [counted(p.reference, p.text) for p in a]
        theirs = [counted(p.reference, p.text) for p in b]
        result = paired_bootstrap(ours, theirs, clusters, names=(A, B))
        found[name] = {
            A: finite(total(ours).rate),
            B: finite(total(theirs).rate),
            "difference": finite(result.difference),
            "interval": [result.interval.low, result.interval.high] if result.interval.possible else None,
            "p_value": finite(result.p_value),
            "real": result.real,
            "verdict": result.verdict,
        }
    return found


def comparison_rows(comparisons: dict[str, Any]) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, c in comparisons.items():
        low_high = "to".join(f" {points(end)} " for end in c["interval"]).strip() if c["interval"] else "-"
        p = "-" if c["p_value"] is None else f"{c['p_value']:.2g}"
        real = "yes" if c["real"] else "no"
        rows.append([name, percent(c[A]), percent(c[B]), points(c["difference"]), low_high, p, real])
    return rows


def points(difference: float | None) -> str:
    return "-" if difference is None else f"{100 * difference:+.2f}"


def comparison_lines(result: dict[str, Any]) -> Iterator[str]:
    """What a terminal shows of a comparison."""
    yield f"{A}: {result['models'][A]}"
    yield f"{B}: {result['models'][B]}"
    yield f"on the same {result['lines']} lines:"
    yield from columns(_HEAD, comparison_rows(result["comparisons"]))
    yield ""
    for name, c in result["comparisons"].items():
        yield f"  {name}: {c['verdict']}"
    yield f"  {interval_note(result)}"
    for name, part in result["sets"].items():
        yield from columns([_set_title(name, part), *_HEAD[1:]], comparison_rows(part["comparisons"]))
    yield ""
    for letter in (A, B):
        speed, ratio = result[letter]["lines_per_second"], result[letter]["keep_ratio"]
        if speed is not None:
            yield f"  {letter}: {speed:.1f} lines/s on {result[letter]['device']}, reduction ratio r {ratio:.3f}"


def _set_title(name: str, part: dict[str, Any]) -> str:
    documents = f", {part['units']} documents" if part["resampled"] == "documents" else ""
    return f"{name} ({part['lines']} lines{documents}{': few' if part['too_few'] else ''})"


def most_different(a: Evaluation, b: Evaluation) -> list[int]:
    """The places of the lines that one model reads with more errors than the other, largest difference first."""
    errors = [[character_edits(p.reference, p.text).errors for p in evaluation.predictions] for evaluation in (a, b)]
    gaps = [abs(ours - theirs) for ours, theirs in zip(*errors, strict=True)]
    return sorted((i for i, gap in enumerate(gaps) if gap), key=lambda i: (-gaps[i], i))


def line_rows(a: Evaluation, b: Evaluation) -> list[dict[str, Any]]:
    """Each line with both readings, for JSON and tables."""
    rows = []
    for ours, theirs in zip(a.predictions, b.predictions, strict=True):
        row: dict[str, Any] = {name: getattr(ours, name) for name in ("set", "id", "document", "reference")}
        for letter, p in ((A, ours), (B, theirs)):
            errors = character_edits(p.reference, p.text).errors
            row |= {f"text_{letter}": p.text, f"confidence_{letter}": finite(p.confidence), f"errors_{letter}": errors}
        rows.append(row | {"length": len(ours.reference)})
    return rows


def write_comparison(
    folder: Path, a: Evaluation, b: Evaluation, result: dict[str, Any], worst: int = 20, command: str | None = None
) -> list[Path]:
    """Write a comparison into `folder`, and each model's own evaluation into its `A` and `B`; the files, page first."""
    made_by = environment(a.about.get("device", b.about.get("device", "cpu")))
    files = [folder / name for name in ("report.html", "evaluation.json", "lines.tsv")]
    make_folder(folder)
    _page(a, b, result, worst, made_by, command).save(files[0])
    rows = line_rows(a, b)
    write_json(files[1], result | {"environment": made_by, "predictions": rows})
    write_table(files[2], list(rows[0]), (list(row.values()) for row in rows))
    for letter, evaluation in ((A, a), (B, b)):
        files += write_evaluation(folder / letter, evaluation, worst, command)
    return files


def _page(
    a: Evaluation, b: Evaluation, result: dict[str, Any], worst: int, made_by: dict[str, str], command: str | None
) -> HtmlReport:
    report = HtmlReport("Two models compared")
    if command:
        report.code(command)
    report.table([], [(A, result["models"][A]), (B, result["models"][B]), ("lines", result["lines"])])
    report.heading("Error rates")
    report.table(_HEAD, comparison_rows(result["comparisons"]), "lrrrrrl")
    for name, c in result["comparisons"].items():
        report.text(f"{name}: {c['verdict']}")
    report.text(interval_note(result))
    if result["sets"]:
        report.heading("By set")
        report.text("The more sets are looked at, the more likely one of them shows a difference by chance.")
    for name, part in result["sets"].items():
        report.table([_set_title(name, part), *_HEAD[1:]], comparison_rows(part["comparisons"]), "lrrrrrl")
    different = most_different(a, b)
    report.heading("Where they differ most")
    report.text(f"{len(different)} of {result['lines']} lines have more character errors with one of the two.")
    for index in different[:worst]:
        show_line(report, a.picture(index), a.predictions[index], b.predictions[index], names=(A, B))
    report.foot(made_by)
    return report
