"""An evaluation's numbers as rows of text, for the page and the terminal alike. `result` is what `summarise` gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from spikehtr.evaluation.summary import MAIN, visible

_TOLD = 8  # rows of a table that a terminal gets; files have them all


def about_rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """What was read, and what was measured beside the rates."""
    rows = [(name, result[name]) for name in ("model", "data", "split", "precision", "set") if name in result]
    told = [(name, ", ".join(value) if isinstance(value, list) else str(value)) for name, value in rows]
    documents = f" of {result['documents']} documents" if result["documents"] else ""
    return [*told, ("lines", f"{result['lines']}{documents}"), *_measured(result)]


def _measured(result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("lines read without an error", f"{result['whole_lines_right']:.1%}")]
    if result["keep_ratio"] is not None:
        rows.append(("reduction ratio r (tokens kept)", f"{result['keep_ratio']:.3f}"))
    if result["lines_per_second"] is not None:
        rows.append(("speed", f"{result['lines_per_second']:.1f} lines/s on {result['device']}"))
    unknown = result.get("unknown_characters", {"lines": 0})
    if unknown["lines"]:
        shown = ", ".join(map(visible, unknown["characters"][:_TOLD]))
        more = ", ..." if len(unknown["characters"]) > _TOLD else ""
        rows.append(("characters the model does not know", f"{shown}{more} in {unknown['lines']} lines"))
    return rows


def percent(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.2%}"


def interval_text(interval: Sequence[float] | None) -> str:
    return f"{interval[0]:.2%} to {interval[1]:.2%}" if interval else "-"


def interval_note(result: dict[str, Any]) -> str:
    """How the intervals were made, and whether to trust them."""
    few = ": with so few, intervals are too narrow" if result["too_few"] else ""
    times = f"{result['resamples']} times"
    return f"Intervals by resampling {result['resampled']}, {times}; there are {result['units']}{few}."


def rate_rows(result: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (name, percent(r["rate"]), interval_text(r["interval"]), r["errors"], r["length"])
        for name, r in result["rates"].items()
    ]


def set_table(result: dict[str, Any]) -> tuple[list[str], list[list[object]]]:
    """Head and rows: a row a set, and one for all."""
    first_rate, *other_rates = MAIN
    head = ["set", "lines", first_rate, "95 % interval", "resampled", *other_rates, "lines right", "r"]
    rows: list[list[object]] = []
    for name, part in [*result["sets"].items(), ("all", result)]:
        first, *others = (part["rates"][rate] for rate in MAIN)
        resampled = f"{part['units']} {part['resampled']}{' (few)' if part['too_few'] else ''}"
        rates = [
            percent(first["rate"]),
            interval_text(first["interval"]),
            resampled,
            *(percent(o["rate"]) for o in others),
        ]
        ratio = "-" if part["keep_ratio"] is None else f"{part['keep_ratio']:.3f}"
        rows.append([name, part["lines"], *rates, f"{part['whole_lines_right']:.1%}", ratio])
    return head, rows


def confusion_rows(result: dict[str, Any], kind: str) -> list[tuple[object, ...]]:
    return [
        (_shown(c["reference"]), _shown(c["read"]), c["count"], f"{c['share']:.1%}") for c in result["confusions"][kind]
    ]


def character_rows(result: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(visible(c["character"]), c["count"], c["errors"], percent(c["rate"])) for c in result["characters"]]


def length_rows(result: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (
            f"{b['low']} up" if b["high"] is None else f"{b['low']} to {b['high']}",
            b["lines"],
            b["errors"],
            percent(b["rate"]),
        )
        for b in result["lengths"]
    ]


CALIBRATION_HEAD = ["", "written", "right", "mean confidence", "ECE", "after calibration", "ECE after"]


def calibration_rows(calibration: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for name in ("characters", "words"):
        part = calibration[name]
        measured = [
            value
            for kind in ("raw", "calibrated")
            for value in (percent(part[kind]["mean_confidence"]), percent(part[kind]["ece"]))
        ]
        rows.append((name, part["count"], percent(part["right"]), *measured))
    return rows


def calibration_note(result: dict[str, Any]) -> str:
    """What the confidences are calibrated by."""
    if "language_model" in result:
        if result["language_model"]["calibrated"]:
            return "Calibrated with the language model, by what `spikehtr lm tune` fitted."
        return "Not calibrated: no fit for this language model, so the usual values stand in; `spikehtr lm tune` fits."
    temperature, fitted = result["calibration"]["temperature"], result.get("fitted")
    if fitted and fitted["problem"]:
        return f"Not calibrated: {fitted['problem']}."
    if fitted:
        return f"Temperature {temperature:.3f}, fitted on these very lines: on others expect somewhat more error after."
    if temperature == 1.0:
        return "The model is not calibrated: `spikehtr evaluate MODEL --data DATA --calibrate` does it."
    return f"Temperature {temperature:.3f}, from the model's file."


def least_sure_note(result: dict[str, Any]) -> str:
    """What correcting the lines of which the model is least sure would find."""
    found = result["calibration"]["lines"]["errors_in_least_sure"]
    if not found:
        return ""
    shares = ", ".join(f"{share:.0%} in the {name}" for name, share in found.items())
    return f"Of all character errors, in the part of the lines that the model is least sure of: {shares}."


def summary_lines(result: dict[str, Any]) -> Iterator[str]:
    """What a terminal shows of an evaluation."""
    split = f" ({result['split']})" if "split" in result else ""
    changed = f", {', '.join(result['set'])}" if "set" in result else ""
    yield f"{result.get('model', 'the model')} on {result['lines']} lines{split}{changed}:"
    for name, rate, interval, *_ in rate_rows(result):
        yield f"  {name:54} {rate:>8}   95 % interval {interval}"
    yield f"  {interval_note(result)}"
    for name, value in _measured(result):
        yield f"  {name}: {value}"
    if result["sets"]:
        yield from columns(*set_table(result))
    if "calibration" in result:
        yield from columns(["confidence", *CALIBRATION_HEAD[1:]], calibration_rows(result["calibration"]))
        yield f"  {calibration_note(result)}"
        if note := least_sure_note(result):
            yield f"  {note}"
    frequent = [row for kind in result["confusions"] for row in confusion_rows(result, kind)]
    frequent.sort(key=lambda row: -int(str(row[2])))  # of equals, substitutions first
    if frequent:
        yield from columns(["most frequent errors", "read as", "times", "share"], frequent[:_TOLD])
        wrong = [row for row in character_rows(result) if row[2]]
        yield from columns(["hardest characters", "occurs", "wrong", "share"], wrong[:_TOLD])
    yield from columns(["characters in the line", "lines", "errors", "CER"], length_rows(result))


def columns(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """A table in plain text: a free line above, first column to the left, the others to the right."""
    yield ""
    table = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *others in table:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        yield "  " + "   ".join(cells).rstrip()


def _shown(character: str | None) -> str:
    return "nothing" if character is None else visible(character)
