"""`spikehtr evaluate`: how well a model or another program reads, or which of two reads better."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import typer

from spikehtr.cli.options import (
    BatchSize,
    Beam,
    Device,
    LanguageModelFile,
    LMWeight,
    ReadingOverrides,
    pick_device,
    print_json,
    which_split,
    writable,
)
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError
from spikehtr.files import make_folder

if TYPE_CHECKING:
    from spikehtr.config import Config
    from spikehtr.data.batching import Indices
    from spikehtr.data.store import LineStore
    from spikehtr.evaluation.evaluation import Evaluation
    from spikehtr.readers import Precision


def evaluate(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL [OTHER]",
            help="A model file (.safetensors; bundled: the one that comes along), or what another program has read: "
            "a table of ids and texts (.tsv, .txt), or a folder of ID.txt, PAGE or ALTO files. Two to compare them.",
        ),
    ],
    data: Annotated[
        list[str], typer.Option("--data", "-d", help="What to read, any format. Repeatable: one set each.")
    ],
    split: Annotated[
        Optional[str],
        typer.Option(
            "--split",
            callback=which_split,
            help="train, validation, test, or all. (default: test; with --calibrate validation)",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],
        typer.Option("--output", "-o", help="Folder for report.html, evaluation.json and lines.tsv."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Fit the temperature of the model's confidences on these lines; note it in its file."
        ),
    ] = False,
    worst: Annotated[int, typer.Option("--worst", min=0, max=200, help="Worst lines to show in the report.")] = 20,
    overrides: ReadingOverrides = None,
    batch_size: BatchSize = 16,
    lm: LanguageModelFile = None,
    beam: Beam = None,
    lm_weight: LMWeight = None,
    device: Device = "auto",
    precision: Annotated[
        Literal["fp32", "fp64"],
        typer.Option("--precision", help="fp64 is slow, but no text hangs on rounding: others can repeat it."),
    ] = "fp32",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every line, for programs.")] = False,
) -> None:
    """Read every line and compare it with its reference: character and word error rates with 95 % intervals.

    Intervals are by bootstrap over documents where they are known, else over lines. Words are counted both ways, cut at
    white space and with punctuation split off. With two models, both read the same lines, and a paired bootstrap says
    whether their difference is real. What another program has read is counted in the same way, line by line, by the
    lines' ids.

    --calibrate makes confidences mean what they say: 0.9 where nine of ten are right. It changes one note in the model
    file and no weight. Give it validation lines, and look at the calibration error of the test lines afterwards.
    """
    if len(models) > 2:
        raise SpikeHTRError(f"one model, or two to compare, not {len(models)}: compare them in pairs")
    from spikehtr.evaluation.reading_files import are_readings

    if overrides and all(map(are_readings, models)):
        raise SpikeHTRError("-s changes how a model reads; these lines have been read")
    if calibrate:
        _check_calibration(models, split)
        if lm not in (None, "none"):
            raise SpikeHTRError("--calibrate is for the network alone; `spikehtr lm tune` calibrates a language model")
    split = split or ("validation" if calibrate else "test")
    chosen = pick_device(device)
    from spikehtr.evaluation.write_report import whole_result, write_evaluation

    if output:
        from spikehtr.studies.study_plan import STUDY
        from spikehtr.training.log import CSV

        if any((output / name).exists() for name in (CSV, STUDY)):
            raise SpikeHTRError(
                f"{output} holds a training run or a study, whose report.html is another: name another folder"
            )
        make_folder(output)
    read = _evaluations(
        models, data, split, overrides or [], batch_size, chosen, calibrate, precision, (lm, beam, lm_weight)
    )
    command = shlex.join(["spikehtr", *sys.argv[1:]])
    if len(read) == 2:
        _compare(read[0], read[1], output, worst, command, as_json)
        return
    files = write_evaluation(output, read[0], worst, command) if output else []
    if as_json:
        print_json(whole_result(read[0]))
    else:
        from spikehtr.evaluation.rate_tables import summary_lines

        _print(summary_lines(read[0].summary), files)
    if calibrate:
        _note_temperature(models[0], read[0].summary, data, split)


def _check_calibration(models: list[Path], split: str | None) -> None:
    """Wrong use is found out before lines are read."""
    from spikehtr.evaluation.reading_files import are_readings
    from spikehtr.weights import check_changeable

    if len(models) > 1:
        raise SpikeHTRError("--calibrate takes one model: calibrate each by itself, then compare")
    if are_readings(models[0]):
        raise SpikeHTRError(f"{models[0]}: no model file, but what one has read; --calibrate changes a model's file")
    check_changeable(models[0])
    writable(models[0])
    if split == "test":
        typer.echo("calibrating on test lines: their own calibration error will look too good", err=True)


def _note_temperature(model: Path, summary: dict[str, Any], data: list[str], split: str) -> None:
    from spikehtr.evaluation.calibration import file_notes
    from spikehtr.weights import update_notes

    problem = summary["fitted"]["problem"]
    if problem:
        typer.echo(f"{model} is left as it was: {problem}", err=True)
        raise typer.Exit(1)
    notes = file_notes(summary, data, split)
    update_notes(model, notes)
    typer.echo(f"noted in {model}: temperature {notes['temperature']:.3f}", err=True)


def _evaluations(
    models: list[Path],
    data: list[str],
    split: str,
    overrides: list[str],
    batch_size: int,
    device: str,
    fit: bool,
    precision: Precision,
    language: tuple[str | None, int | None, float | None],
) -> list[Evaluation]:
    """What each model reads in the data, each with lines of the size it takes; all are opened before any is read."""
    from spikehtr.data.batching import Lines
    from spikehtr.decoding.decoders import BeamDecoder, decoder_for
    from spikehtr.evaluation.evaluation import evaluate_lines
    from spikehtr.evaluation.reading_files import are_readings
    from spikehtr.evaluation.readings import evaluate_readings
    from spikehtr.readers import make_reader
    from spikehtr.weights import load_model, read_with

    read: dict[Path, Evaluation] = {}
    opened = []
    found: dict[str, tuple[LineStore, Indices]] = {}
    for model in [model for model in models if not are_readings(model)]:
        trained = load_model(model)
        loaded = read_with(trained, overrides)
        if fit and loaded.config.model != trained.config.model:
            raise SpikeHTRError("--calibrate is for the model as its file has it: leave model.* settings out")
        found = _open(data, split, loaded.config)
        learned = trained.notes.get("data", {}).get("digest")
        if split in ("all", "train") and any(store.digest() == learned for store, _ in found.values()):
            typer.echo(f"{model} was trained on lines that are among these: on others it will read worse", err=True)
        wide = loaded.config.data.max_width
        parts = {
            source: Lines(store, rows, loaded.charset, wide, labelled=False) for source, (store, rows) in found.items()
        }
        lm, beam, weight = ("none", None, None) if fit else language
        decoder = decoder_for(loaded.charset, loaded.temperature, lm, loaded.language_model, beam, weight)
        opened.append((model, loaded, parts, decoder))
    for model in [model for model in models if are_readings(model)]:
        found = found or _open(data, split)
        about: dict[str, Any] = {"model": str(model), "data": list(found), "split": split}
        read[model] = evaluate_readings(model, found, about, lambda message: typer.echo(message, err=True))
    for model, loaded, parts, decoder in opened:
        about = {"model": str(model), "data": list(parts), "split": split, "precision": precision}
        about |= {"set": overrides} if overrides else {}
        # Greedy decoding needs no temperature; confidences are worked out at all that are asked for.
        searching = decoder if isinstance(decoder, BeamDecoder) else None
        about |= {"language_model": searching.about} if searching else {}
        net = loaded.net.to(device).eval()
        with counting(f"reading with {model.name}", sum(map(len, parts.values()))) as progress:
            read[model] = evaluate_lines(
                net,
                list(parts.values()),
                list(parts),
                batch_size=batch_size,
                workers=loaded.config.data.workers,
                temperature=loaded.temperature,
                fit=fit,
                about=about,
                progress=progress,
                reader=make_reader(net, precision, recorded=False),
                decoder=searching,
            )
    return [read[model] for model in models]


def _open(data: list[str], split: str, config: Config | None = None) -> dict[str, tuple[LineStore, Indices]]:
    """The lines of the split in each source, as the model with this `config` takes them, if they are to be read.

    A source that has none is named, all sources without one are an error.
    """
    from spikehtr.data.compiling import open_lines
    from spikehtr.data.store import no_line_of

    parts: dict[str, tuple[LineStore, Indices]] = {}
    there: dict[str, int] = {}
    once: dict[str, str] = {}
    for source in data:
        once.setdefault(os.path.realpath(source), source)  # ./b/ is b
    data = list(once.values())
    for source in data:
        with counting(f"opening {source}") as progress:
            if config is None:  # as it is
                store = open_lines([source], None, progress=progress)
            else:
                c = config
                store = open_lines([source], c.model.height, c.data.max_width, progress, straighten=c.data.straighten)
        rows = _rows(store, source, split, alone=len(data) == 1)
        for name, count in store.meta["lines"].items():
            there[name] = there.get(name, 0) + count
        if len(rows):
            parts[source] = store, rows
    if not parts:
        held = split != "validation" and len(data) == 1 and not there.keys() & {"train", "validation"}
        more = "; --split validation for those that `train` holds out of it" if held else ""
        raise no_line_of(split, there, more)
    for source in [source for source in data if source not in parts]:
        typer.echo(f"{source}: no line of split {split!r}, left out", err=True)
    return parts


def _rows(store: LineStore, source: str, split: str, alone: bool) -> Indices:
    """Of data without marks, `alone`, the validation lines are those that `train` holds out of it."""
    found = store.rows(split)
    if split == "validation" and alone and not len(found) and not len(store.rows("train")) and len(store.unmarked()):
        from spikehtr.training.datasets import split_rows

        found, remark = split_rows(store)[1:]
        typer.echo(f"{source}, as a training on it alone has it: {remark}", err=True)
    return found


def _compare(a: Evaluation, b: Evaluation, output: Path | None, worst: int, command: str, as_json: bool) -> None:
    from spikehtr.evaluation.compare_models import compare, comparison_lines, line_rows, match_lines, write_comparison

    read = len(a.predictions), len(b.predictions)
    a, b = match_lines(a, b)
    if read != (len(a.predictions), len(b.predictions)):
        typer.echo(f"A read {read[0]} lines, B {read[1]}: the {len(a.predictions)} that both read count", err=True)
    result = compare(a, b)
    files = write_comparison(output, a, b, result, worst, command) if output else []
    if as_json:
        print_json(result | {"predictions": line_rows(a, b)})
    else:
        _print(comparison_lines(result), files)


def _print(lines: Iterable[str], files: list[Path]) -> None:
    for line in lines:
        typer.echo(line)
    if files:
        typer.echo(f"report: {files[0]}")
