"""`spikehtr bench`: how fast a step is here, and how fast it could be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import Overrides, writable
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.profiling.timing import Report


def bench(
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, or auto: cuda where there is one.")] = "auto",
    presets: Annotated[Optional[list[str]], typer.Option("--preset", "-p", help="Tier. Repeatable; tiny.")] = None,
    timesteps: Annotated[
        Optional[list[int]], typer.Option("--timesteps", "-T", help="Number of timesteps. Repeatable; 1 and 2.")
    ] = None,
    overrides: Overrides = None,
    batch_size: Annotated[
        Optional[int],
        typer.Option("--batch-size", "-b", min=1, help="Lines a step; on a GPU 64 to train, 256 to read; else 2."),
    ] = None,
    width: Annotated[int, typer.Option("--width", min=16, help="Width of the lines, pixels.")] = 512,
    train: Annotated[bool, typer.Option("--train/--no-train", help="Time training steps.")] = True,
    inference: Annotated[bool, typer.Option("--inference/--no-inference", help="Time forward passes.")] = True,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Times each path takes its turn.")] = 5,
    profile: Annotated[bool, typer.Option("--profile", help="List the ten most expensive kernels of a step.")] = False,
    output: Annotated[Optional[Path], typer.Option("--json", help="Also write every figure to this file.")] = None,
) -> None:
    """Time whole steps: reference and fast path in turns, and the share of the device's roofline they reach.

    A training step is augmentation, forward pass, losses, backward pass, clipping, optimiser and averaged weights; on
    a GPU under bf16 autocast. The roofline is the least time that step needs, from the bytes it must move and the
    arithmetic it must do, at the copy bandwidth and the matrix rate measured in the same process.
    """
    if not (train or inference):
        raise SpikeHTRError("nothing to time: leave out --no-train or --no-inference")
    if output:
        writable(output, ".json")
    from spikehtr.cli.train import pick_device
    from spikehtr.config import Config

    # Made before torch is loaded, so that a mistyped name is answered at once.
    configs = [
        (
            f"{preset} T={steps}",
            Config.preset(preset).with_overrides(overrides or []).with_overrides({"model.timesteps": steps}),
        )
        for preset in presets or ["tiny"]
        for steps in timesteps or [1, 2]
    ]
    where = pick_device(device)
    import torch

    from spikehtr.profiling.steps import Case
    from spikehtr.profiling.timing import benchmark
    from spikehtr.profiling.timing_table import save, show

    sizes = {True: 64, False: 256} if where.startswith("cuda") else {True: 2, False: 2}
    kinds = [kind for kind, wanted in ((True, train), (False, inference)) if wanted]
    cases = [Case(name, c, kind, batch_size or sizes[kind], width) for name, c in configs for kind in kinds]
    with counting("timing", len(cases)) as done:

        def tell(report: Report) -> None:
            done(len(report.rows))
            save(report, output)

        report = benchmark(cases, torch.device(where), rounds, profile, tell)
    show(report)
    if output:
        typer.echo(f"wrote {output}")
