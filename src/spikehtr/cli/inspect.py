"""`spikehtr inspect`: draw what the network makes of an image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from spikehtr.cli.options import ConfigFile, Overrides, Preset, resolve, writable
from spikehtr.errors import SpikeHTRError


def inspect(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A line image: PNG, JPEG, TIFF, WebP.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG to write.")] = Path("inkcoder.png"),
    timesteps: Annotated[Optional[int], typer.Option("--timesteps", "-T", help="Number of timesteps, 1 to 4.")] = None,
    preset: Preset = None,
    file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Draw how InkCoder turns one line into T steps.

    Above: the grey line, the intensity proxy, edge magnitude, the edge proxy, the speckle mask and the fused evidence.
    Below, for each step: the gated view, the gate, and what is new in it.
    """
    chosen = resolve(preset, file, overrides)
    if timesteps is not None:
        chosen = chosen.with_overrides({"model.timesteps": timesteps})
    writable(output, ".png")
    if chosen.model.arch != "spike-htr":
        raise SpikeHTRError(f"this draws InkCoder, and {chosen.model.arch} has none: leave the preset out")
    if chosen.model.entry != "inkcoder":
        raise SpikeHTRError(f"this draws InkCoder, and model.entry is {chosen.model.entry}: leave that setting out")

    from spikehtr.data.geometry import fit_line
    from spikehtr.data.images import load_line
    from spikehtr.profiling.inkplot import draw, trace_line

    model = chosen.model
    line = fit_line(load_line(image), model.height, chosen.data.max_width)
    trace = trace_line(line, model)
    title = f"InkCoder on {image.name}: {line.shape[1]} x {line.shape[0]} px, T = {model.timesteps}"
    draw(trace, model.beta, output, title)
    means = ", ".join(f"{gate:.3f}" for gate in trace.gates.mean(dim=(1, 2, 3, 4)))
    typer.echo(f"wrote {output} (mean gate at t = 1..{model.timesteps}: {means})")
