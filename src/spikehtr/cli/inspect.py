"""`spikehtr inspect`: draw what the network makes of an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import ConfigFile, Overrides, Preset, resolve, writable
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spikehtr.config import ModelConfig
    from spikehtr.model.entry import Entry
    from spikehtr.weights import Loaded


def inspect(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A line image: PNG, JPEG, TIFF, WebP.")],
    output: Annotated[
        Optional[Path],
        typer.Option("--output", "-o", help="PNG to write; inkcoder.png, streams.png or reduction.png unless told."),
    ] = None,
    streams: Annotated[
        bool, typer.Option("--streams", help="Draw repeat, InkCoder, Poisson and latency coding side by side.")
    ] = False,
    reduction: Annotated[
        bool, typer.Option("--reduction", help="Draw what the reducer keeps and merges; needs --model.")
    ] = False,
    model: Annotated[
        Optional[Path],
        typer.Option("--model", "-m", help="A trained model (or bundled), with the settings and scalars it learned."),
    ] = None,
    timesteps: Annotated[Optional[int], typer.Option("--timesteps", "-T", help="Number of timesteps, 1 to 4.")] = None,
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Draw how one line becomes T steps, or what the reducer makes of it.

    InkCoder, above: the grey line, the intensity proxy, edge magnitude, the edge proxy, the speckle mask and the fused
    evidence; below, for each step: the gated view, the gate, and what is new in it.
    """
    if streams and reduction:
        raise SpikeHTRError("--streams and --reduction are two pictures: ask for one of them")
    if model and (preset or file or overrides):
        raise SpikeHTRError("--model brings its own settings: leave -p, -c and -s out")
    if reduction and not model:
        raise SpikeHTRError("--reduction draws what a trained model does: give it with --model")
    if reduction and timesteps:
        raise SpikeHTRError("--reduction draws the model as it is: leave --timesteps out")
    name = "streams" if streams else "reduction" if reduction else "inkcoder"
    target = writable(output or Path(f"{name}.png"), ".png")
    loaded = None
    if model:
        from spikehtr.weights import load_model

        loaded = load_model(model)
    chosen = loaded.config if loaded else resolve(preset, file, overrides)
    if timesteps is not None:
        chosen = chosen.with_overrides({"model.timesteps": timesteps})
    if not reduction and chosen.model.arch != "spike-htr":
        raise SpikeHTRError(f"this draws how a line becomes T steps, and {chosen.model.arch} has no steps")
    if not (reduction or streams) and chosen.model.entry != "inkcoder":
        raise SpikeHTRError(f"this draws InkCoder, and model.entry is {chosen.model.entry}: leave that setting out")
    from spikehtr.data.geometry import fit_line
    from spikehtr.data.images import load_line

    line = fit_line(load_line(image), chosen.model.height, chosen.data.max_width, chosen.data.straighten)
    if reduction and loaded is not None:
        told = _reduction(image.name, line, loaded, target)
    else:
        told = (_streams if streams else _inkcoder)(image.name, line, chosen.model, _entry(loaded), target)
    typer.echo(f"wrote {target} ({told})")


def _entry(loaded: Loaded | None) -> Entry | None:
    from spikehtr.model.spike_htr import SpikeHTR

    return loaded.net.encoder.entry if loaded and isinstance(loaded.net, SpikeHTR) else None


def _inkcoder(name: str, line: NDArray[np.uint8], model: ModelConfig, entry: Entry | None, target: Path) -> str:
    from spikehtr.plotting import save_figure
    from spikehtr.profiling.entry_figures import ink_figure, trace_line

    trace = trace_line(line, model, entry.inkcoder if entry else None)
    title = f"InkCoder on {name}: {line.shape[1]} x {line.shape[0]} px, T = {model.timesteps}"
    beta = float(entry.beta.detach()) if entry else model.beta
    save_figure(ink_figure(trace, beta, title), target)
    means = ", ".join(f"{gate:.3f}" for gate in trace.gates.mean(dim=(1, 2, 3, 4)))
    return f"mean gate at t = 1..{model.timesteps}: {means}"


def _streams(name: str, line: NDArray[np.uint8], model: ModelConfig, entry: Entry | None, target: Path) -> str:
    from spikehtr.plotting import save_figure
    from spikehtr.profiling.entry_figures import streams, streams_figure

    found = streams(line, model, entry)
    title = f"Input at each step, {name}: darkness times (beta + (1 - beta) gate)"
    save_figure(streams_figure(line, found, title), target)
    told = "; ".join(f"{code} {', '.join(f'{step.mean():.3f}' for step in drive)}" for code, drive in found.items())
    return f"mean drive at t = 1..{model.timesteps}: {told}"


def _reduction(name: str, line: NDArray[np.uint8], loaded: Loaded, target: Path) -> str:
    from spikehtr.plotting import save_figure
    from spikehtr.profiling.reduction_figure import reduction_figure, trace_reduction

    trace = trace_reduction(loaded.net, loaded.charset, line)
    reducer = loaded.config.model.reducer
    counts = f"{len(trace.blank)} positions, {len(trace.spans)} tokens, r = {trace.ratio:.2f}"
    save_figure(reduction_figure(line, trace, reducer, f"{name}: {reducer.mode}, {counts}"), target)
    # `transcribe` takes bf16 where that is faster, and then may read a doubtful character otherwise.
    return f"{counts}; read in fp32: {trace.text}"
