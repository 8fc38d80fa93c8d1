"""`spikehtr bench`: how fast a step is here, and how fast it could be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from spikehtr.cli.options import Device, Overrides, given_options, pick_device, writable
from spikehtr.cli.progress import counting
from spikehtr.errors import SpikeHTRError

if TYPE_CHECKING:
    from spikehtr.profiling.step_timing import TimingReport


def bench(
    ctx: typer.Context,
    device: Device = "auto",
    presets: Annotated[
        Optional[list[str]],
        typer.Option(
            "--preset",
            "--presets",
            "-p",
            help="Tiers and baselines: tiny,base,htr-vt. Repeatable; tiny by default, with --cpu swift.",
        ),
    ] = None,
    timesteps: Annotated[
        Optional[list[str]],
        typer.Option(
            "--timesteps",
            "-T",
            help="Numbers of timesteps: 1,2 by default, with --cpu 1. Repeatable; not for baselines.",
        ),
    ] = None,
    overrides: Overrides = None,
    batch_size: Annotated[
        Optional[int],
        typer.Option("--batch-size", "-b", min=1, help="Lines a step; on a GPU 64 to train, 256 to read; else 2."),
    ] = None,
    width: Annotated[
        Optional[int],
        typer.Option("--width", min=16, help="Width of the lines, pixels; by default the preset's data.max_width."),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference/--no-reference", help="Time the reference too, where there is a fast path.")
    ] = True,
    rounds: Annotated[
        Optional[int],
        typer.Option("--rounds", min=1, help="Times each path takes its turn: 5 by default, with --cpu 3."),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="List the ten most expensive kernels of a step (in --json, all).")
    ] = False,
    output: Annotated[Optional[Path], typer.Option("--json", help="Also write every figure to this file.")] = None,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="Instead: whole calls on this CPU, image to text, and the engine's layers.")
    ] = False,
    models: Annotated[
        Optional[list[Path]], typer.Option("--model", "-m", help="With --cpu: a trained model, or bundled. Repeatable.")
    ] = None,
    data: Annotated[
        Optional[list[str]], typer.Option("--data", "-d", help="With --cpu: where lines are taken from. Repeatable.")
    ] = None,
    lines: Annotated[
        Optional[int], typer.Option("--lines", "-n", min=1, help="With --cpu: how many lines are read; 16 by default.")
    ] = None,
) -> None:
    """Time whole steps: reference and fast path in turns, and the share of the device's roofline they reach.

    A training step is the one `spikehtr train` takes: augmentation, forward pass, losses, backward pass, clipping,
    optimiser and averaged weights; on a GPU under bf16 autocast, recorded where a run records it. Reading is that of
    `spikehtr transcribe`, from fitted lines to logits. Baselines have one path. The roofline is the least time that
    step needs, from the bytes it must move and the arithmetic it must do, at the copy bandwidth and the matrix rate
    measured in the same process.

    --cpu times `Recognizer.transcribe` on real lines, one at a time and 16 at a time, in every way this machine has:
    the engine all dense, with lists of spikes where they pay, in bf16, and plain PyTorch (not with
    --no-reference); then lists the engine's layers with the spikes an input of each, a burst counting as so many. It
    says first how long it will take.
    """
    if output:
        writable(output, ".json")
    if cpu:
        steps = given_options(ctx, "batch_size", "width", "profile")
        if given := ["--device"] * (device not in ("auto", "cpu")) + steps:
            raise SpikeHTRError(f"--cpu times whole calls on the CPU: leave out {', '.join(given)}")
        return _bench_cpu(presets, models, timesteps, overrides, data, lines or 16, rounds or 3, reference, output)
    if models or data or lines is not None:
        raise SpikeHTRError("--model, --data and --lines belong to --cpu")
    from spikehtr.profiling.bench_cases import listed, named_configs, numbers

    # Made before torch is loaded, so that a mistyped name is answered at once.
    configs = named_configs(listed(presets or ["tiny"]), numbers(timesteps or ["1,2"]), overrides or [])
    where = pick_device(device)
    import torch

    from spikehtr.evaluation.write_report import write_json
    from spikehtr.profiling.benchmark_steps import Case
    from spikehtr.profiling.step_timing import benchmark, show

    sizes = {True: 64, False: 256} if where.startswith("cuda") else {True: 2, False: 2}
    cases = [
        Case(name, config, train, batch_size or sizes[train], width or config.data.max_width)
        for name, config in configs
        for train in (True, False)
    ]
    with counting("timing", len(cases)) as done:

        def tell(report: TimingReport) -> None:
            done(len(report.rows))
            if output:
                write_json(output, report.to_dict())

        report = benchmark(cases, torch.device(where), rounds or 5, profile, tell, reference)
    show(report)
    if output:
        typer.echo(f"wrote {output}")


def _bench_cpu(
    presets: list[str] | None,
    models: list[Path] | None,
    timesteps: list[str] | None,
    overrides: list[str] | None,
    data: list[str] | None,
    lines: int,
    rounds: int,
    reference: bool,
    output: Path | None,
) -> None:
    from spikehtr.profiling.bench_cases import listed, named_configs, numbers

    names = listed(presets or ([] if models else ["swift"]))
    configs = named_configs(names, numbers(timesteps or ["1"]), overrides or [])
    if models and (timesteps or overrides) and not names:
        raise SpikeHTRError("-T and -s are for presets: a trained network cannot be changed")
    from spikehtr.cli.progress import spoken
    from spikehtr.evaluation.write_report import write_json
    from spikehtr.profiling import cpu_timing as cpu
    from spikehtr.weights import load_model

    images = cpu.real_lines(data, lines) if data else cpu.drawn_lines(lines)
    networks = [(name, net, config, charset) for name, config in configs for net, charset in [cpu.untrained(config)]]
    for path in models or []:
        loaded = load_model(path)
        networks.append((path.stem, loaded.net.eval(), loaded.config, loaded.charset))
    ways = cpu.all_ways(networks, reference)

    def announce(seconds: float) -> None:
        many = f"{len(images)} lines, {len(ways)} ways, {rounds} {'rounds' if rounds > 1 else 'round'}"
        typer.echo(f"{many}: about {spoken(seconds)}; fewer --lines and --rounds are faster", err=True)

    with counting("reading", cpu.turns(ways, rounds)) as done:
        report = cpu.benchmark(networks, ways, images, rounds, done, announce)
    cpu.show(report)
    if output:
        write_json(output, report.to_dict())
        typer.echo(f"wrote {output}")
