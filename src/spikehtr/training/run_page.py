"""The page at the end of a run: its result, its learning curves, its worst lines as pictures, and how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from spikehtr.data.batching import Lines
from spikehtr.evaluation.calibration import file_notes
from spikehtr.evaluation.evaluation import Evaluation, evaluate_lines, worst_first
from spikehtr.evaluation.rate_tables import CALIBRATION_HEAD, calibration_note, calibration_rows
from spikehtr.evaluation.write_report import show_worst, write_evaluation
from spikehtr.report import HtmlReport
from spikehtr.training.log import read_log
from spikehtr.training.loop import BEST
from spikehtr.training.records import CARD, write_card
from spikehtr.weights import load_model, update_notes

REPORT, VALIDATION, CURVES = "report.html", "validation", "curves.png"
_SHOWN = ("CER, plain", "WER, whitespace words", "WER, punctuation split")


def finish(
    folder: Path, validation: Lines, device: str, data: dict[str, Any], environment: dict[str, Any], worst: int = 20
) -> Path:
    """Read the validation lines with the best model as it lies in its file; write card, evaluation and page.

    The same reading calibrates the model: its file gets the temperature at which its confidences fit these lines.
    """
    model = load_model(folder / BEST)
    rows = read_log(folder)
    page = HtmlReport(f"Training run {folder.name}")
    page.code(environment["command"])
    page.table((), _facts(rows, data, environment, model.notes))
    evaluation = None
    if len(validation):
        about = {"model": BEST, "split": "validation"}
        batch, workers = model.config.training.batch_size, model.config.data.workers
        evaluation = evaluate_lines(
            model.net.to(device), [validation], batch_size=batch, workers=workers, fit=True, about=about
        )
        if not evaluation.about["fitted"]["problem"]:
            notes = file_notes(evaluation.summary, data["sources"], "validation")
            update_notes(folder / BEST, notes)
            model = model._replace(notes=model.notes | notes)
        write_evaluation(folder / VALIDATION, evaluation, worst, environment["command"])
        _add_rates(page, evaluation)
    write_card(folder / CARD, model, BEST)
    figure = draw_curves(rows)
    figure.savefig(folder / CURVES, dpi=110)
    page.heading("Learning curves")
    page.figure((folder / CURVES).read_bytes(), "Loss, validation CER and learning rate against the step")
    if evaluation is not None and (chosen := worst_first(evaluation.predictions)[:worst]):
        page.heading("Worst validation lines")
        show_worst(page, evaluation, chosen)
    with page.details("All settings"):
        page.code((folder / "config.yaml").read_text(encoding="utf-8"))
    page.foot({name: value for name, value in environment.items() if name not in ("command", "seed")})
    page.save(folder / REPORT)
    return folder / REPORT


def _facts(
    rows: list[dict[str, Any]], data: dict[str, Any], environment: dict[str, Any], notes: dict[str, Any]
) -> list[tuple[str, object]]:
    last = rows[-1]
    speeds = sorted(row["lines_per_second"] for row in rows)
    facts: list[tuple[str, object]] = [
        ("data", ", ".join(map(str, data["sources"]))),
        ("lines", f"{data['trained_on']} to train on, {data['validated_on']} to validate"),
        ("data digest", data["digest"]),
        ("trained", f"{last['epoch']} epochs, {last['step']} steps, {last['seconds'] / 60:.1f} minutes"),
        ("speed", f"{speeds[len(speeds) // 2]:.0f} lines/s (median)"),
        ("best model", f"{BEST}, from step {notes['step']} (epoch {notes['epochs']})"),
        ("seed", environment["seed"]),
        ("device", environment["device"]),
    ]
    return facts + [("remark", remark) for remark in data["remarks"]]


def _add_rates(page: HtmlReport, evaluation: Evaluation) -> None:
    summary = evaluation.summary
    rates = summary["rates"]
    page.heading("On the validation lines")
    shown = []
    for name in _SHOWN:
        bounds = rates[name]["interval"]
        shown.append((name, f"{rates[name]['rate']:.2%}", f"{bounds[0]:.2%} to {bounds[1]:.2%}" if bounds else ""))
    page.table(("", "rate", "95 % interval"), shown, "lrr")
    page.table(CALIBRATION_HEAD, calibration_rows(summary["calibration"]), "lrrrrrr")
    page.text(f"Confidence, and its expected calibration error (ECE). {calibration_note(summary)}")
    page.text(
        f"Tokens kept by the reducer: {summary['keep_ratio']:.3f}. The model was chosen on these very lines, so a test "
        f"set reads worse. Confusions, errors by character and every line: {VALIDATION}/report.html."
    )


def draw_curves(rows: list[dict[str, Any]]) -> Figure:
    """Loss and its parts, validation CER, learning rate; one panel each over the steps."""
    figure = Figure(figsize=(9, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    loss, error, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 1.3))
    steps = [row["step"] for row in rows]
    loss.plot(steps, [row["loss"] for row in rows], color="#0072b2", label="loss")
    loss.plot(steps, [row["ctc"] for row in rows], color="#e69f00", linestyle="--", label="CTC")
    _log_scale(loss)
    loss.set_ylabel("training loss")
    loss.legend(frameon=False)
    read = [(row["step"], 100 * row["validation_cer"]) for row in rows if row["validation_cer"] is not None]
    if read:
        error.plot(*zip(*read, strict=True), color="#009e73", marker="o", markersize=3)
        best = min(read, key=lambda point: point[1])
        error.annotate(f"best {best[1]:.2f} %", best, (0, 12), textcoords="offset points", ha="right")
        if best[1] > 0:
            _log_scale(error)
    error.set_ylabel("validation CER, %")
    rate.plot(steps, [row["learning_rate"] for row in rows], color="0.3")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step")
    for panel in (loss, error, rate):
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def _log_scale(panel: Axes) -> None:
    """Plain numbers at 1, 2 and 5 of each power of ten."""
    panel.set_yscale("log")
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())
