"""Options that several verbs share."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import typer

from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.config import Config
    from spikehtr.pages.found import LayoutOptions
    from spikehtr.weights import Loaded

Preset = Annotated[
    Optional[str],
    typer.Option(
        "--preset",
        "-p",
        help="Start from a tier: tiny, small, medium, base (the default), swift or fine; or from a baseline: "
        "cnn-blstm, crnn, gated-crnn, retsinas, gfcn, van, span, origaminet, htr-vt, htr-convtext, kraken, par, dan.",
    ),
]
ConfigFile = Annotated[
    Optional[Path], typer.Option("--config", "-c", help="Start from a YAML file (see `spikehtr config`).")
]
Overrides = Annotated[
    Optional[list[str]],
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting, e.g. -s model.timesteps=1. Repeatable."),
]

StartFrom = Annotated[
    Optional[Path],
    typer.Option(
        "--from",
        metavar="MODEL",
        help="Fine-tune this model (bundled: the one that comes along). Its network, losses and augmentation "
        "hold; length, batches, optimiser and schedule are those of fine-tuning; --set changes them.",
    ),
]
CharsetMode = Annotated[
    Optional[Literal["keep", "extend", "replace"]],
    typer.Option(
        "--charset",
        help="With --from: keep its characters (lines with others are left out), extend them by the data's "
        "(the default), or replace them by the data's.",
    ),
]
MachineLines = Annotated[
    bool,
    typer.Option("--machine-lines", help="Take lines as truth that a model read and nobody changed or confirmed, too."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Lines read at a time.")]
AllowUnknown = Annotated[
    bool, typer.Option("--allow-unknown", help="Validate on lines with characters that training never shows, too.")
]
ReadingOverrides = Annotated[
    Optional[list[str]],
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change how lines are read, by data.* and model.reducer.*, e.g. -s model.reducer.tau=0.5. Repeatable.",
    ),
]

LanguageModelFile = Annotated[
    Optional[str],
    typer.Option(
        "--lm",
        metavar="LM",
        help="Read with a language model (`spikehtr lm train`); bundled: the one that comes along; none: without. "
        "(default: the one in the model's file, if any)",
    ),
]
Beam = Annotated[Optional[int], typer.Option("--beam", min=1, help="With a language model: texts followed at a time.")]
LMWeight = Annotated[
    Optional[float],
    typer.Option("--lm-weight", help="With a language model: what it counts. (default: as it was tuned)"),
]

SegmenterName = Annotated[
    str,
    typer.Option(
        "--segmenter",
        metavar="NAME|FILE",
        help="What finds the lines of pages: network, rules, kraken, or the weight file of a line network "
        "(`spikehtr segmenter train`); builtin: what comes along.",
    ),
]
Rotate = Annotated[
    Literal["auto", "0", "90", "180", "270"],
    typer.Option(
        "--rotate",
        help="Degrees clockwise that make pages upright; auto: as the line network sees it (0 with rules and kraken).",
    ),
]
Spread = Annotated[
    Optional[bool],
    typer.Option(
        "--spread/--single",
        help="Whether pictures show two pages side by side. (default: where a fold is seen and lines end at it)",
    ),
]


def layout_options(rotate: str, spread: bool | None) -> LayoutOptions:
    """What is known of pages, as the options `Rotate` and `Spread` have it."""
    from spikehtr.pages.found import LayoutOptions

    turns = None if rotate == "auto" else -int(rotate) // 90 % 4
    return LayoutOptions(turns, "auto" if spread is None else "yes" if spread else "no")


def given_options(ctx: typer.Context, *names: str) -> list[str]:
    """Which of these parameters (all, without names) the command line gives, as its options are written."""
    given = []
    for option in ctx.command.params:
        name, source = option.name or "", ctx.get_parameter_source(option.name or "")
        if (name in names or not names) and source is not None and source.name == "COMMANDLINE":
            switched_off = ctx.params[name] is False and option.secondary_opts
            given.append((option.secondary_opts if switched_off else option.opts)[0])
    return given


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def which_split(written: str | None) -> str | None:
    """`--split` by any of a split's usual names (val, dev ...), or all."""
    from spikehtr.data.samples import SPLIT_NAMES

    if written is None:
        return None
    found = SPLIT_NAMES.get(written.lower(), written.lower())
    if found not in (*SPLIT_NAMES.values(), "all"):
        raise SpikeHTRError(f"--split {written}: there are train, validation, test, and all")
    return found


def resolve(preset: str | None, file: Path | None, overrides: list[str] | None) -> Config:
    """The configuration these three options ask for."""
    from spikehtr.config import Config

    if preset and file:
        raise SpikeHTRError("--preset and --config both name a starting point: give one of them")
    start = Config.load(file) if file else Config.preset(preset or "base")
    return start.with_overrides(overrides or [])


def check_start(start: Path | None, charset: str | None, preset: str | None, file: Path | None) -> None:
    """Whether what is said about a fine-tuning goes together."""
    if charset and not start:
        raise SpikeHTRError("--charset says what becomes of the characters of --from MODEL: give that too")
    if start and (preset or file):
        raise SpikeHTRError("--from takes its settings from the model file: change them by --set, without -p or -c")


def fine_tuned(model: Loaded, device: str | None = None) -> Config:
    """The settings with which a model is gone on from, but for --set; `device` as `pick_device` gives it."""
    from spikehtr.config import DataConfig
    from spikehtr.config.presets import CPU_FINE_TUNING, FINE_TUNING

    here = {"data.workers": DataConfig().workers}  # that machine's are not this one's
    return model.config.with_overrides(FINE_TUNING | here | (CPU_FINE_TUNING if device == "cpu" else {}))


def writable(path: Path, suffix: str = "") -> Path:
    """`path`, if a file of that suffix can be written there; found out before the work, not after it."""
    if path.is_dir():
        raise SpikeHTRError(f"{path}: is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise SpikeHTRError(f"{path}: is no ordinary file; name one")
    if not path.parent.is_dir():
        raise SpikeHTRError(f"{path}: the folder {path.parent} does not exist; make it first")
    if suffix and path.suffix.lower() != suffix:
        raise SpikeHTRError(f"{path}: this writes {suffix} files; name it so")
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="."):
            pass
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror})") from None
    return path


def pick_device(wanted: str) -> str:
    """The device to use; one that is not there is an error."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(wanted).type
    except RuntimeError:
        raise SpikeHTRError(f"no device called {wanted!r}: use cpu, cuda or auto") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise SpikeHTRError("a GPU was asked for and none is here: use --device cpu, or leave --device out")
    return wanted
