"""`spikehtr export`: onnx, torch, nir, kraken."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from typer.core import TyperGroup

from spikehtr.cli.options import AsJson, print_json, which_split, writable
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.data.batching import Lines
    from spikehtr.recognizer import Recognizer
    from spikehtr.weights import Loaded


class Kinds(TyperGroup):
    """One line for a kind that there is not, instead of a page of usage."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is None:
            raise SpikeHTRError(f"no export called {cmd_name!r}: there are {', '.join(self.commands)}")
        return command


app = typer.Typer(
    cls=Kinds,
    help="Write a model for other software: onnx (onnxruntime), torch (torch.export), nir (neuromorphic), kraken.",
    no_args_is_help=True,
)
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file (.safetensors), or bundled.")]
Output = Annotated[
    Optional[Path],
    typer.Option("--output", "-o", help="File to write; else beside the model (bundled: here), with its name."),
]
Channels = Annotated[int, typer.Option("--channels", help="Channels of the images it will take: 1 (grey) or 3.")]
CheckOn = Annotated[
    Optional[str],
    typer.Option("--check", metavar="DATA", help="Read lines of this data, any format, with both, and compare."),
]
Split = Annotated[
    str, typer.Option("--split", callback=which_split, help="With --check: train, validation, test, or all.")
]
LineCount = Annotated[int, typer.Option("--lines", min=1, help="With --check: how many lines.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="With --check: lines read at a time.")]


@app.command()
def onnx(
    model: Model,
    output: Output = None,
    fp64: Annotated[
        bool,
        typer.Option("--fp64", help="In double precision: slower, but no text hangs on rounding."),
    ] = False,
    channels: Channels = 1,
    check: CheckOn = None,
    split: Split = "test",
    lines: LineCount = 200,
    batch_size: BatchSize = 16,
    as_json: AsJson = False,
) -> None:
    """Write a model as one ONNX file, for any number of lines of any width. Takes a minute or two.

    It takes images (batch, channels, height, width) from 0 to 1, the width a multiple of the model's stride (4), and
    widths (batch); it gives logits (batch, frames, labels), lengths (batch) and spans (batch, frames, 2). Configuration
    and characters are in its metadata.

    Exit code 1: --check found more texts that differ than a last digit explains (with --fp64: any that differs from the
    model's own in double precision).
    """
    from spikehtr.export.tracing import need

    need("onnx", "onnxscript", "onnxruntime")

    target = _target(model, output, ".onnx", channels)
    from spikehtr.export.onnx import read, save

    def write(loaded: Loaded) -> None:
        save(loaded, target, channels, "fp64" if fp64 else "fp32")

    _export(model, target, write, read, (check, split, lines, batch_size), as_json, double=fp64)


@app.command()
def torch(
    model: Model,
    output: Output = None,
    channels: Channels = 1,
    check: CheckOn = None,
    split: Split = "test",
    lines: LineCount = 200,
    batch_size: BatchSize = 16,
    as_json: AsJson = False,
) -> None:
    """Write a model as a program of torch.export (.pt2): runs in PyTorch without this package.

    Takes and gives what `spikehtr export onnx` does. Exit code 1: --check found more texts that differ than a last
    digit explains.
    """

    target = _target(model, output, ".pt2", channels)
    from spikehtr.export.program import read, save

    def write(loaded: Loaded) -> None:
        save(loaded, target, channels)

    _export(model, target, write, read, (check, split, lines, batch_size), as_json)


@app.command()
def nir(
    model: Model,
    output: Output = None,
    width: Annotated[
        Optional[int], typer.Option("--width", help="Pixels of the widest line; data.max_width by default.")
    ] = None,
    check: CheckOn = None,
    split: Split = "test",
    lines: LineCount = 5,
    as_json: AsJson = False,
) -> None:
    """Write a model for neuromorphic tools: a NIR file (.nir), and a manifest (.json) beside it.

    The NIR file holds convolutions, linear maps, pools and neurons with their weights; the manifest lists all steps
    from image to logits, and what a host computes between the NIR parts, with its parameters.

    --check simulates lines from the two files alone. Exit code 1: a spike or a text differs.
    """
    from spikehtr.export.tracing import need

    need("nir")
    target = _target(model, output, ".nir")
    writable(target.with_suffix(".json"))
    from spikehtr.export.nir import save

    loaded, reference = _load(model)
    chosen = _lines_to_check(check, split, lines, loaded)
    with counting(f"exporting {model.name}"):
        manifest = save(loaded, target, width)
    result: dict[str, Any] = {"file": str(target), "manifest": str(manifest)}
    told = [f"wrote {target}: {_size(target)}, and {manifest}: {_size(manifest)} (the model file: {_size(model)})"]
    wrong = False
    if chosen is not None:
        from spikehtr.export.check_export import compare_spikes

        with counting("simulating", len(chosen)) as progress:
            found = compare_spikes(reference, target, chosen, progress)
        wrong = bool(found["different"]) or found["same_text"] < found["lines"]
        result["check"] = {"data": check, "split": split} | found
        told.append(
            f"check on {check} ({split}), float64: {found['different']} of {found['values']} values of "
            f"{found['neurons']} layers of neurons differ ({found['spikes']} of the values are spikes); "
            f"same text in {found['same_text']} of {found['lines']} lines"
        )
    _finish(result, told, as_json, wrong)


@app.command()
def kraken(model: Model, output: Output = None, as_json: AsJson = False) -> None:
    """Write a model for kraken 7 (.kraken.safetensors by default), which reads it where this package is installed too.

    Then: kraken -i page.jpg page.txt segment -bl ocr -m FILE. Writing the file does not need kraken.
    """
    target = _target(model, output or model.with_suffix(".kraken.safetensors"), ".safetensors")
    if target.resolve() == model.resolve():
        raise SpikeHTRError(f"{target} is the model itself: name another file with --output")
    from spikehtr.export.kraken_files import save
    from spikehtr.weights import load_model

    save(load_model(model), target)
    told = f"wrote {target}: {_size(target)}; use it with: kraken -i page.jpg page.txt segment -bl ocr -m {target}"
    _finish({"file": str(target)}, [told], as_json)


def _target(model: Path, output: Path | None, suffix: str, channels: int = 1) -> Path:
    """Where the file goes; a model that is not there is named first."""
    from spikehtr.weights import load_header

    load_header(model)
    target = writable(output or model.with_suffix(suffix), suffix)
    if channels not in (1, 3):
        raise SpikeHTRError(f"--channels is 1 (grey) or 3 (red, green, blue), not {channels}")
    return target


def _load(model: Path) -> tuple[Loaded, Recognizer]:
    """A model, and itself read by plain PyTorch: what an export is compared with."""
    from spikehtr.readers.torch import TorchReader
    from spikehtr.recognizer import Recognizer
    from spikehtr.weights import load_model

    loaded = load_model(model)
    return loaded, Recognizer(loaded.net, loaded.config, loaded.charset, reader=TorchReader(loaded.net))


def _export(
    model: Path,
    target: Path,
    save: Callable[[Loaded], None],
    read: Callable[[Path], Recognizer],
    check: tuple[str | None, str, int, int],
    as_json: bool,
    double: bool = False,
) -> None:
    loaded, reference = _load(model)
    source, split, count, batch_size = check
    lines = _lines_to_check(source, split, count, loaded)
    start = time.perf_counter()
    with counting(f"exporting {model.name}, a minute or two"):
        save(loaded)
    result: dict[str, Any] = {
        "file": str(target),
        "bytes": {"model": _bytes(model), "file": _bytes(target)},
        "seconds": time.perf_counter() - start,
    }
    told = [f"wrote {target}: {_size(target)} (the model file: {_size(model)})"]
    if lines is not None:
        from spikehtr.export.check_export import compare, comparison_lines, fires

        times = 3 if fires(loaded.net) and not double else 2
        with counting("reading with both", times * len(lines)) as progress:
            found = compare(reference, read(target), lines, batch_size, progress, double)
        result["check"] = {"data": source, "split": split} | found
        how = ", both in double precision" if double else ""
        told += [f"check on {source} ({split}){how}:", *comparison_lines(found)]
    _finish(result, told, as_json, lines is not None and result["check"]["too_different"])


def _finish(result: dict[str, Any], told: list[str], as_json: bool, wrong: bool = False) -> None:
    if as_json:
        print_json(result)
    else:
        typer.echo("\n".join(told))
    if wrong:
        raise typer.Exit(1)


def _lines_to_check(source: str | None, split: str, count: int, model: Loaded) -> Lines | None:
    """The first lines of --check, before the work: what is wrong with them is told at once."""
    if source is None:
        return None
    from spikehtr.data.batching import open_split

    with counting(f"opening {source}") as progress:
        return open_split([source], split, model.config, model.charset, progress, count)


def _bytes(path: Path) -> int:
    from spikehtr.weights import model_file

    return model_file(path).stat().st_size


def _size(path: Path) -> str:
    return f"{_bytes(path) / 1e6:.1f} MB"
