"""How fast a step is, reference and fast path in turns in one process, against the roofline of the very same step.

A training step is the whole of it: augmentation, forward pass (bf16 autocast on a GPU), losses, backward pass,
clipping, optimiser and averaged weights. An inference step is a forward pass. Lines are synthetic ink, labels random.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr import kernels
from spikehtr.config import Config
from spikehtr.data.augment import augment
from spikehtr.model.losses import spike_htr_loss
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.model.reducer import ctc_min_length
from spikehtr.profiling.roofline import Ceilings, measure_ceilings, step_roofline, synchronize
from spikehtr.training.optim import WeightAverage, make_optimizer

SWITCH = "SPIKEHTR_KERNELS"
REFERENCE, FAST = "reference", "fast"
_BURST = 0.5  # seconds of steps between two looks at the clock
_LABELS = 80
_IMPORTED = time.time()


@dataclass(frozen=True)
class Case:
    """One row's question: which network, trained or only read, on how many lines of what width."""

    name: str
    config: Config
    train: bool
    batch_size: int
    width: int = 512


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


@contextmanager
def chosen(path: str) -> Iterator[None]:
    """Run on the reference, or on the fast path as the user's environment asks for it."""
    before = os.environ.get(SWITCH)
    if path == REFERENCE:
        os.environ[SWITCH] = "reference"
    elif before == "reference":
        del os.environ[SWITCH]
    try:
        yield
    finally:
        os.environ.pop(SWITCH, None)
        if before is not None:
            os.environ[SWITCH] = before


def has_fast_path(device: torch.device) -> bool:
    with chosen(FAST):
        return kernels.fast(torch.zeros(1, device=device))


def ink_lines(count: int, height: int, width: int, device: torch.device, seed: int = 0) -> Tensor:
    """Lines that look written, [count, 1, height, width] in [0, 1]: a pen that loops along, on grainy paper."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, 8 * width)  # places of the pen, several a pixel
    speed, phase, size = (torch.rand(count, 1, 3, generator=g) for _ in range(3))
    angle = (speed + 1) * t[:, None] * (width / height) * 8 + 6.3 * phase  # [count, places, 3]
    sway = (angle.sin() * (size + 0.2)).unbind(-1)
    x = (t * width + sway[0] * height / 8).clamp(0, width - 1).long()
    y = (height / 2 + (sway[1] + sway[2] * 0.6) * height / 5).clamp(0, height - 1).long()
    down = sway[0] + sway[2] > -0.9  # now and then the pen is lifted
    ink = torch.zeros(count, height * width).scatter_reduce(1, y * width + x, down.float(), "amax")
    ink = F.avg_pool2d(F.max_pool2d(ink.view(count, 1, height, width), 2, 1, padding=1)[..., :height, :width], 3, 1, 1)
    paper = 0.85 + 0.02 * torch.randn(count, 1, height, width, generator=g)
    return (paper - 0.7 * ink).clamp(0, 1).to(device)


class Step:
    """A case made ready on a device: call it for one step."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case, self.device = case, device
        self.half = device.type == "cuda"
        config = case.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = SpikeHTR(config.model, _LABELS).to(device).train(case.train)
            count = max(1, case.width // 16)
            self.targets = torch.randint(1, _LABELS, (case.batch_size, count)).to(device)
        self.target_lengths = torch.full((case.batch_size,), count, device=device)
        self.images = ink_lines(case.batch_size, config.model.height, case.width, device)
        self.widths = torch.full((case.batch_size,), case.width, device=device)
        if case.train:
            self.optimizer = make_optimizer(self.net, config.training)
            self.average = WeightAverage(self.net, config.training.ema_decay)

    def __call__(self) -> None:
        if self.case.train:
            self._train()
        else:
            with torch.no_grad(), self._autocast():
                self.net(self.images, self.widths)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.half)

    def inputs(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the network is given: images, widths and, in training, the frames each transcript needs."""
        if not self.case.train:
            return self.images, self.widths, None
        need = ctc_min_length(self.targets, self.target_lengths)
        images, widths = augment(self.images, self.widths, self.case.config.data.augment, min_widths=4 * need)
        return images, widths, need

    def _train(self) -> None:
        settings = self.case.config.training
        inputs = self.inputs()
        with self._autocast():
            out = self.net(*inputs)
        loss = spike_htr_loss(out, self.targets, self.target_lengths, self.net, settings).total
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), settings.clip_norm)
        self.optimizer.step()
        self.average.update(self.net)

    def forget(self) -> None:
        """Free what a step leaves behind, and what a failed one held."""
        self.net.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


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
) -> Report:
    """Every case, one after the other; `tell` hears of the report after each of them."""
    half = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if half else f"{device}, {torch.get_num_threads()} threads"
    first = Step(cases[0], device)
    with chosen(FAST):  # before anything else: what a fresh process pays is part of the report
        first()
        synchronize(device)
    age = process_age()
    report = Report(name, torch.__version__, has_fast_path(device), measure_ceilings(device, half), age, [])
    del first
    for case in cases:
        report.rows.append(run_case(case, device, report.ceilings, rounds, profile))
        tell(report)
    return report


def run_case(case: Case, device: torch.device, ceilings: Ceilings, rounds: int = 5, profile: bool = False) -> Row:
    """Warm up each path, time them in turns, count the step."""
    step = Step(case, device)
    paths = {path: Timing() for path in ([REFERENCE, FAST] if has_fast_path(device) else [REFERENCE])}
    bursts = {}
    for path, timing in paths.items():
        with chosen(path):
            bursts[path] = _warm(step, timing)
    for _ in range(rounds):
        for path, timing in paths.items():
            if bursts[path]:
                with chosen(path):
                    timing.rounds.append(_time(step, bursts[path], timing))
    for timing in paths.values():
        timing.seconds = median(timing.rounds) if timing.rounds else None
    step.forget()
    last = list(paths)[-1]
    shown = profile_step(step, last) if profile and bursts[last] else []
    step.forget()
    images, widths, need = step.inputs()
    with chosen(REFERENCE):
        counted = step_roofline(step.net, images, widths, need, case.train, step.half)
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


def _warm(step: Step, timing: Timing) -> int:
    """Three steps; how many of them fill a burst, or 0 if memory does not suffice."""
    try:
        seconds = [_time(step, 1, timing) for _ in range(3)][-1]
    except torch.OutOfMemoryError:
        step.forget()
        timing.peak_bytes = None
        return 0
    return max(1, min(20, round(_BURST / seconds))) if step.device.type == "cuda" else 1


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


def profile_step(step: Step, path: str, top: int = 10) -> list[dict[str, Any]]:
    """The most expensive kernels of one step (operators, on a CPU) with their share of all kernels' time."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    cuda = step.device.type == "cuda"
    with chosen(path):
        step()
        synchronize(step.device)
        with record(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as recorded:
            step()
            synchronize(step.device)
    events = recorded.key_averages()
    spent = {e.key: e.self_device_time_total if cuda else e.self_cpu_time_total for e in events}  # microseconds
    calls = {e.key: e.count for e in events}
    total = sum(spent.values())
    names = sorted(spent, key=lambda key: -spent[key])[:top]
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
