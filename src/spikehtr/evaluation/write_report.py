"""An evaluation as files: `report.html`, `evaluation.json` and `lines.tsv`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rapidfuzz.distance import Levenshtein

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.evaluation import Evaluation, line_facts, worst_first
from spikehtr.evaluation.predict import Prediction
from spikehtr.evaluation.rate_tables import (
    CALIBRATION_HEAD,
    about_rows,
    calibration_note,
    calibration_rows,
    character_rows,
    confusion_rows,
    interval_note,
    least_sure_note,
    length_rows,
    percent,
    rate_rows,
    set_table,
)
from spikehtr.evaluation.reliability import draw_reliability
from spikehtr.files import make_folder, whole_file
from spikehtr.report import HtmlReport, environment, marked

_OPEN = 5  # worst lines that the page shows before the rest folds away
_SHOWN = 20  # rows of a table, likewise
_RATE_HEAD = ["", "rate", "95 % interval", "errors", "of"]
_COLUMNS = ("set", "id", "document", "reference", "text", "confidence", "errors", "length", "rate")


def write_evaluation(folder: Path, evaluation: Evaluation, worst: int = 20, command: str | None = None) -> list[Path]:
    """Write everything about an evaluation into `folder`, made where it is missing; the files, the page first.

    `worst` lines at most are drawn on the page. `command` is shown there, too.
    """
    chosen = worst_first(evaluation.predictions)[:worst]
    made_by = environment(evaluation.about.get("device", "cpu"))
    files = [folder / name for name in ("report.html", "evaluation.json", "lines.tsv")]
    make_folder(folder)
    page(evaluation, chosen, made_by, command).save(files[0])
    write_json(files[1], whole_result(evaluation) | {"environment": made_by})
    facts = [line_facts(p) for p in evaluation.predictions]
    write_table(files[2], _COLUMNS, ([line[name] for name in _COLUMNS] for line in facts))
    return files


def whole_result(evaluation: Evaluation) -> dict[str, Any]:
    """Every number and every line, ready for JSON."""
    return evaluation.summary | {"predictions": [line_facts(p) for p in evaluation.predictions]}


def page(
    evaluation: Evaluation, worst: Sequence[int], made_by: dict[str, str], command: str | None = None
) -> HtmlReport:
    """The HTML report: two rates and the worst lines to see at once, everything else folded away below them."""
    result = evaluation.summary
    report = HtmlReport(f"Evaluation of {evaluation.about.get('model', 'a model')}")
    report.table(_RATE_HEAD, rate_rows(result)[:2], "lrrrr")
    right = f"{result['whole_lines_right']:.1%} of {result['lines']} lines were read without an error."
    report.text(f"{right} {interval_note(result)}")
    if worst:
        report.heading("Worst lines")
        show_worst(report, evaluation, worst)
    report.heading("More")
    with report.details(f"Error rates counted in {len(result['rates'])} ways"):
        report.table(_RATE_HEAD, rate_rows(result), "lrrrr")
    if result["sets"]:
        with report.details(f"By set ({len(result['sets'])})"):
            report.table(*set_table(result), "lrrrrrrrr")
    with report.details("Which characters go wrong"):
        _confusions(report, result)
    with report.details("By character"):
        _long_table(report, ["character", "occurs", "wrong", "share"], character_rows(result), "lrrr")
    with report.details("By length of the line"):
        report.table(["characters", "lines", "errors", "CER"], length_rows(result), "lrrr")
    if "calibration" in result:
        with report.details("Confidence"):
            _confidence(report, result)
    with report.details("Model, data and command"):
        report.table([], about_rows(result))
        if command:
            report.code(command)
    report.foot(made_by)
    return report


def show_worst(report: HtmlReport, evaluation: Evaluation, places: Sequence[int]) -> None:
    """These lines one below the other, all but the first few folded away."""
    report.text("Highest character error rate first. Marked: what has to change in one text to get the other.")
    for index in places[:_OPEN]:
        show_line(report, evaluation.picture(index), evaluation.predictions[index])
    if rest := places[_OPEN:]:
        with report.details(f"{len(rest)} more"):
            for index in rest:
                show_line(report, evaluation.picture(index), evaluation.predictions[index])


def _confusions(report: HtmlReport, result: dict[str, Any]) -> None:
    head = ["in the line", "read as", "times", "share of all errors"]
    for kind, title in (("substitutions", "Taken for another"), ("deletions", "Left out"), ("insertions", "Put in")):
        report.heading(title, 3)
        _long_table(report, head, confusion_rows(result, kind), "llrr")


def _confidence(report: HtmlReport, result: dict[str, Any]) -> None:
    report.table(CALIBRATION_HEAD, calibration_rows(result["calibration"]), "lrrrrrr")
    report.text(
        f"{calibration_note(result)} ECE, expected calibration error (in {result['calibration']['bins']} bins), is by "
        "how much confidence and the share that is right differ. What was missed has no confidence and does not count. "
        f"{least_sure_note(result)}"
    )
    caption = "On the dashed line confidences are what they say; below it the model is too sure of itself."
    report.figure(draw_reliability(result["calibration"]), "Share right against confidence, by bin", caption)


def show_line(
    report: HtmlReport, pixels: NDArray[np.uint8], *readings: Prediction, names: Sequence[str] = ("read",)
) -> None:
    """A line's picture, its reference and what was read, by one model or several, marked where they differ."""
    reference = readings[0].reference
    rows: list[tuple[object, ...]] = []
    for name, reading in zip(names, readings, strict=True):
        operations = Levenshtein.editops(reference, reading.text)
        missed = [o.src_pos for o in operations if o.tag != "insert"]
        added = [o.dest_pos for o in operations if o.tag != "delete"]
        if not rows:
            # With two readings each would mark the reference in its own way.
            rows.append(("true", marked(reference, missed if len(readings) == 1 else []), ""))
        facts = line_facts(reading)
        sure = "" if facts["confidence"] is None else f", confidence {facts['confidence']:.2f}"
        rows.append((name, marked(reading.text, added), f"{percent(facts['rate'])}{sure}"))
    first = readings[0]
    report.figure(_png(pixels), f"the line {first.id}", f"{first.set}: {first.id}")
    report.table([], rows)


def write_json(path: Path, result: dict[str, Any]) -> None:
    write_text(path, json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))


def write_table(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table for spreadsheets: UTF-8, tabs between columns, quoted where a value needs it."""
    text = StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """The whole file or none; a surrogate that came with odd data is shown as what it is."""
    try:
        with whole_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None


def _long_table(report: HtmlReport, head: Sequence[str], rows: Sequence[Sequence[object]], align: str) -> None:
    if not rows:
        report.text("None.")
        return
    report.table(head, rows[:_SHOWN], align)
    if len(rows) > _SHOWN:
        with report.details(f"{len(rows) - _SHOWN} more"):
            report.table(head, rows[_SHOWN:], align)


def _png(pixels: NDArray[np.uint8]) -> bytes:
    packed = BytesIO()
    Image.fromarray(pixels).save(packed, "PNG")
    return packed.getvalue()
