"""How fast a step is, reference and fast path in turns in one process, against the roofline of the very same step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spikehtr.errors import SpikeHTRError
from spikehtr.profiling.benchmark_steps import FAST, REFERENCE, Case, Step, chosen, has_fast_path
from spikehtr.profiling.roofline import Ceilings, measure_ceilings, step_roofline, synchronize

_WARM = 3
_BURST = 0.5  # seconds of steps between two looks at the clock
_FEWEST = 4  # of them: a run does not wait for the device after every other step
_SHOWN = 10  # kernels of a step that a terminal gets; JSON has all
_IMPORTED = time.time()


@dataclass
class PathTiming:
    """One path's answer."""

    rounds: list[float] = field(default_factory=list)  # seconds a step
    peak_bytes: int | None = None  # of the device's allocator; None on a CPU

    @property
    def seconds(self) -> float | None:
        """None: it did not fit into memory."""
        return median(self.rounds) if self.rounds else None


@dataclass
class CaseTiming:
    """A case's figures. The roofline is that of the same batch, as augmented."""

    case: Case
    paths: dict[str, PathTiming]
    roofline_seconds: float
    moved_bytes: int
    flops: int
    input_width: int  # of the images that enter the network
    kernels: list[dict[str, Any]]

    def lines_per_second(self, path: str) -> float | None:
        seconds = self.paths[path].seconds if path in self.paths else None
        return self.case.batch_size / seconds if seconds else None

    def share(self, path: str) -> float | None:
        """Of the roofline: 1 would be a step that takes no longer than it must."""
        seconds = self.paths[path].seconds
        return self.roofline_seconds / seconds if seconds else None

    def to_dict(self) -> dict[str, Any]:
        case, m = self.case, self.case.config.model
        about = {"name": case.name, "timesteps": m.timesteps, "train": case.train, "arch": m.arch}
        about |= {name: getattr(case, name) for name in ("batch_size", "width")}
        numbers = ("input_width", "roofline_seconds", "moved_bytes", "flops", "kernels")
        paths = {
            path: asdict(timing)
            | {"seconds": timing.seconds, "lines_per_second": self.lines_per_second(path), "share": self.share(path)}
            for path, timing in self.paths.items()
        }
        return about | {name: getattr(self, name) for name in numbers} | {"paths": paths}


@dataclass
class TimingReport:
    """All cases of one process, and what they were measured on."""

    device: str
    torch_version: str
    has_fast_path: bool
    ceilings: Ceilings
    first_step_seconds: float  # from the start of the process to the end of its first step
    rows: list[CaseTiming]

    def to_dict(self) -> dict[str, Any]:
        names = ("device", "has_fast_path", "first_step_seconds")
        about = {name: getattr(self, name) for name in names} | {"torch": self.torch_version}
        return about | {"ceilings": asdict(self.ceilings), "rows": [row.to_dict() for row in self.rows]}


def benchmark(
    cases: list[Case],
    device: torch.device,
    rounds: int = 5,
    profile: bool = False,
    tell: Callable[[TimingReport], None] = lambda report: None,
    reference: bool = True,
) -> TimingReport:
    """Every case, one after the other; `tell` hears of the report after each of them.

    Without `reference` it is left out where there is a fast path.
    """
    half = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if half else f"{device}, {torch.get_num_threads()} threads"
    age = _first_step(cases[0], device)  # before anything else: what a fresh process pays is part of the report
    report = TimingReport(name, torch.__version__, has_fast_path(device), measure_ceilings(device, half), age, [])
    for case in cases:
        report.rows.append(run_case(case, device, report.ceilings, rounds, profile, reference))
        tell(report)
    return report


def _first_step(case: Case, device: torch.device) -> float:
    """Make one step; how long after the start of the process it was done."""
    try:
        with chosen(FAST):
            Step(case, device)()
            synchronize(device)
    except torch.OutOfMemoryError:
        lines = f"{case.batch_size} lines of {case.width} px"
        raise SpikeHTRError(f"{case.name}: {lines} do not fit into the device's memory; take fewer a step") from None
    return process_age()


def run_case(
    case: Case,
    device: torch.device,
    ceilings: Ceilings,
    rounds: int = 5,
    profile: bool = False,
    reference: bool = True,
) -> CaseTiming:
    """Warm up each path, time them in turns, count the step."""
    step = Step(case, device)
    paths = {path: PathTiming() for path in paths_of(case, device, reference)}
    bursts = {}
    for path, timing in paths.items():
        with chosen(path):
            bursts[path] = _warm(step, timing)
        if device.type == "cuda":  # what the other path has to record shall find room
            torch.cuda.empty_cache()
    for _ in range(rounds):
        for path, timing in paths.items():
            if bursts[path]:
                with chosen(path):
                    step()  # not timed: after the other path's turn the allocator has to find its blocks again
                    timing.rounds.append(_time(step, bursts[path], timing))
    step.forget()
    last = list(paths)[-1]
    kernels = profile_step(step, last) if profile and bursts[last] else []
    step.forget()
    images, widths, need = step.inputs()
    text = step.transcripts()
    muon = case.config.training.optimizer == "muon"
    counted = step_roofline(step.network(), images, widths, need, case.train, step.half, muon, text)
    step.forget()
    seconds = counted.seconds(ceilings)
    return CaseTiming(case, paths, seconds, counted.moved, counted.flops, images.shape[-1], kernels)


def paths_of(case: Case, device: torch.device, reference: bool = True) -> list[str]:
    """Both where there are two: a baseline has one, with fast kernels for the losses where they are."""
    if not has_fast_path(device):
        return [REFERENCE]
    return [REFERENCE, FAST] if reference and case.config.model.arch == "spike-htr" else [FAST]


def _warm(step: Step, timing: PathTiming) -> int:
    """A few steps (the second is recorded, where steps are); how many fill a burst, or 0 if memory does not suffice."""
    try:
        seconds = [_time(step, 1, timing) for _ in range(_WARM)][-1]
    except torch.OutOfMemoryError:
        step.forget()
        timing.peak_bytes = None
        return 0
    return max(_FEWEST, min(20, round(_BURST / seconds))) if step.device.type == "cuda" else 1


def _time(step: Step, count: int, timing: PathTiming) -> float:
    """Seconds a step; its path's peak of memory goes into `timing`."""
    cuda = step.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(step.device)
    seconds = seconds_a_step(step, count)
    if cuda:
        timing.peak_bytes = max(timing.peak_bytes or 0, torch.cuda.max_memory_allocated(step.device))
    return seconds


def seconds_a_step(step: Step, count: int = 1) -> float:
    """Over `count` of them without a pause."""
    synchronize(step.device)
    start = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(step.device)
    return (time.perf_counter() - start) / count


def profile_step(step: Step, path: str) -> list[dict[str, Any]]:
    """The kernels of one step (operators, on a CPU), the most expensive first, with their share of the time of all."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    cuda = step.device.type == "cuda"
    with chosen(path):
        for _ in range(_WARM):
            step()
        synchronize(step.device)
        with record(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU], acc_events=True) as recorded:
            step()
            synchronize(step.device)
    events = [(e.self_device_time_total if cuda else e.self_cpu_time_total, e) for e in recorded.key_averages()]
    total = sum(spent for spent, _ in events)  # microseconds
    return [
        {"kernel": e.key, "path": path, "calls": e.count, "ms": spent / 1e3, "share": spent / total}
        for spent, e in sorted(events, key=lambda event: -event[0])
    ]


def process_age() -> float:
    """Seconds since this process was started (since this module was imported, where the system does not say)."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # after boot; field 22 of the line
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):
        return time.time() - _IMPORTED


def show(report: TimingReport) -> None:
    """Print the report as tables."""
    console = Console(width=None if Console().is_terminal else 140)
    rounds = max((len(t.rounds) for row in report.rows for t in row.paths.values()), default=0)
    table = Table(title=f"{report.device}, torch {report.torch_version}, median of {rounds} rounds")
    for name in ("step", "lines", "path", "ms", "lines/s", "speed-up", "peak GiB", "roofline", "share"):
        table.add_column(name, justify="left" if name in ("step", "path") else "right")
    for row in report.rows:
        case, slow, floor = row.case, row.lines_per_second(REFERENCE), f"{row.roofline_seconds * 1e3:.2f}"
        for path, timing in row.paths.items():
            rate, share = row.lines_per_second(path), row.share(path)
            what = f"{case.name} {_kind(case)}", f"{case.batch_size} x {row.input_width}", path
            if timing.seconds is None or rate is None or share is None:
                table.add_row(*what, "out of memory", "-", "-", "-", floor, "-")
                continue
            peak = "-" if timing.peak_bytes is None else f"{timing.peak_bytes / 2**30:.1f}"
            times = f"{rate / slow:.2f}" if slow else "-"
            table.add_row(*what, f"{timing.seconds * 1e3:.2f}", f"{rate:.4g}", times, peak, floor, f"{share:.1%}")
        table.add_section()
    console.print(table)
    for row in report.rows:
        if row.kernels:
            _show_kernels(row, console)
    bounds = report.ceilings
    console.print("roofline: least ms a step needs, one operation after another")
    console.print(f"ceilings here: copy {bounds.bandwidth / 1e9:.0f} GB/s, product {bounds.rate / 1e12:.1f} TFLOP/s")
    console.print(f"first step {report.first_step_seconds:.1f} s after the process began")
    if not report.has_fast_path:
        console.print("no fast kernels on this device: the network runs on the reference")


def _show_kernels(row: CaseTiming, console: Console) -> None:
    table = Table(title=f"most expensive, {row.case.name} {_kind(row.case)}, {row.kernels[0]['path']} path")
    for name in ("kernel", "calls", "ms", "share"):
        table.add_column(name, justify="left" if name == "kernel" else "right", no_wrap=True)
    for kernel in row.kernels[:_SHOWN]:
        figures = str(kernel["calls"]), f"{kernel['ms']:.2f}", f"{kernel['share']:.1%}"
        table.add_row(escape(kernel["kernel"][:80]), *figures)
    console.print(table)


def _kind(case: Case) -> str:
    return "train" if case.train else "read"
