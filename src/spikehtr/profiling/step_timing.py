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

from spikehtr.errors import SpikeHTRError
from spikehtr.profiling.benchmark_steps import FAST, REFERENCE, Case, Step, chosen, has_fast_path
from spikehtr.profiling.roofline import Ceilings, measure_ceilings, step_roofline, synchronize

_WARM = 3
_BURST = 0.5  # seconds of steps between two looks at the clock
_FEWEST = 4  # of them: a run does not wait for the device after every other step
_IMPORTED = time.time()


@dataclass
class Timing:
    """One path's answer."""

    seconds: float | None = None  # a step, median of the rounds; None: it did not fit into memory
    rounds: list[float] = field(default_factory=list)
    peak_bytes: int | None = None  # of the device's allocator; None on a CPU


@dataclass
class Row:
    """A case's figures. The roofline is that of the same batch, as augmented."""

    case: Case
    paths: dict[str, Timing]
    roofline_seconds: float
    overlapped_seconds: float
    moved_bytes: int
    flops: int
    input_width: int  # of the images that enter the network
    kernels: list[dict[str, Any]]

    def lines_per_second(self, path: str) -> float | None:
        timing = self.paths.get(path)
        return self.case.batch_size / timing.seconds if timing and timing.seconds else None

    def share(self, path: str) -> float | None:
        """Of the roofline: 1 would be a step that takes no longer than it must."""
        timing = self.paths.get(path)
        return self.roofline_seconds / timing.seconds if timing and timing.seconds else None

    def to_dict(self) -> dict[str, Any]:
        case = self.case
        return {
            "name": case.name,
            "timesteps": case.config.model.timesteps,
            "train": case.train,
            "arch": case.config.model.arch,
            "batch_size": case.batch_size,
            "width": case.width,
            "input_width": self.input_width,
            "roofline_seconds": self.roofline_seconds,
            "overlapped_seconds": self.overlapped_seconds,
            "moved_bytes": self.moved_bytes,
            "flops": self.flops,
            "paths": {
                path: asdict(timing) | {"lines_per_second": self.lines_per_second(path), "share": self.share(path)}
                for path, timing in self.paths.items()
            },
            "kernels": self.kernels,
        }


@dataclass
class Report:
    """All rows of one process, and what they were measured on."""

    device: str
    torch_version: str
    has_fast_path: bool
    ceilings: Ceilings
    first_step_seconds: float  # from the start of the process to the end of its first step
    rows: list[Row]

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "torch": self.torch_version,
            "has_fast_path": self.has_fast_path,
            "ceilings": asdict(self.ceilings),
            "first_step_seconds": self.first_step_seconds,
            "rows": [row.to_dict() for row in self.rows],
        }


def benchmark(
    cases: list[Case],
    device: torch.device,
    rounds: int = 5,
    profile: bool = False,
    tell: Callable[[Report], None] = lambda report: None,
    reference: bool = True,
) -> Report:
    """Every case, one after the other; `tell` hears of the report after each of them.

    Without `reference` it is left out where there is a fast path.
    """
    half = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if half else f"{device}, {torch.get_num_threads()} threads"
    age = _first_step(cases[0], device)  # before anything else: what a fresh process pays is part of the report
    report = Report(name, torch.__version__, has_fast_path(device), measure_ceilings(device, half), age, [])
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
) -> Row:
    """Warm up each path, time them in turns, count the step."""
    step = Step(case, device)
    paths = {path: Timing() for path in paths_of(case, device, reference)}
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
    for timing in paths.values():
        timing.seconds = median(timing.rounds) if timing.rounds else None
    step.forget()
    last = list(paths)[-1]
    shown = profile_step(step, last) if profile and bursts[last] else []
    step.forget()
    images, widths, need = step.inputs()
    muon = case.config.training.optimizer == "muon"
    counted = step_roofline(step.network(), images, widths, need, case.train, step.half, muon)
    step.forget()
    return Row(
        case=case,
        paths=paths,
        roofline_seconds=counted.seconds(ceilings),
        overlapped_seconds=counted.overlapped(ceilings),
        moved_bytes=counted.moved,
        flops=counted.flops,
        input_width=images.shape[-1],
        kernels=shown,
    )


def paths_of(case: Case, device: torch.device, reference: bool = True) -> list[str]:
    """Both where there are two: a baseline has one, with fast kernels for the losses where they are."""
    if not has_fast_path(device):
        return [REFERENCE]
    return [REFERENCE, FAST] if reference and case.config.model.arch == "spike-htr" else [FAST]


def _warm(step: Step, timing: Timing) -> int:
    """A few steps (the second is recorded, where steps are); how many fill a burst, or 0 if memory does not suffice."""
    try:
        seconds = [_time(step, 1, timing) for _ in range(_WARM)][-1]
    except torch.OutOfMemoryError:
        step.forget()
        timing.peak_bytes = None
        return 0
    return max(_FEWEST, min(20, round(_BURST / seconds))) if step.device.type == "cuda" else 1


def _time(step: Step, count: int, timing: Timing) -> float:
    """Seconds a step, over `count` of them without a pause; its path's peak of memory goes into `timing`."""
    cuda = step.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(step.device)
    synchronize(step.device)
    start = time.perf_counter()
    for _ in range(count):
        step()
    synchronize(step.device)
    seconds = (time.perf_counter() - start) / count
    if cuda:
        timing.peak_bytes = max(timing.peak_bytes or 0, torch.cuda.max_memory_allocated(step.device))
    return seconds


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
    events = recorded.key_averages()
    spent = {e.key: e.self_device_time_total if cuda else e.self_cpu_time_total for e in events}  # microseconds
    calls = {e.key: e.count for e in events}
    total = sum(spent.values())
    names = sorted(spent, key=lambda key: -spent[key])
    return [
        {"kernel": n, "path": path, "calls": calls[n], "ms": spent[n] / 1e3, "share": spent[n] / total} for n in names
    ]


def process_age() -> float:
    """Seconds since this process was started (since this module was imported, where the system does not say)."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # after boot; field 22 of the line
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):
        return time.time() - _IMPORTED
