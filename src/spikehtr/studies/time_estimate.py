"""How long a study will take, before it is begun: by its budget, or from one timed training step of each kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from spikehtr.config import Config
from spikehtr.data.compiling import open_lines
from spikehtr.profiling.benchmark_steps import Case, Step
from spikehtr.profiling.step_timing import seconds_a_step
from spikehtr.studies.study_plan import Task
from spikehtr.training.datasets import split_rows


def minutes_of(tasks: Sequence[Task], device: str) -> list[float]:
    """Minutes of training each task needs, alone on the device. Reading and reports come on top."""
    seconds: dict[Hashable, float] = {}
    lines: dict[Hashable, int] = {}
    found = []
    for task in tasks:
        if not task.train or task.max_minutes is not None:
            found.append(task.max_minutes if task.train and task.max_minutes else 0.0)
            continue
        c = task.config
        if (kind := _kind(c)) not in seconds:
            seconds[kind] = _seconds_a_line(c, torch.device(device))
        place = (task.source, c.model.height, c.data.max_width, c.data.straighten)
        if place not in lines:
            store = open_lines([task.source], c.model.height, c.data.max_width, straighten=c.data.straighten)
            lines[place] = len(split_rows(store)[0])
        trained_on = min(lines[place], c.data.train_lines or lines[place])
        found.append(c.training.epochs * trained_on * seconds[kind] / 60)
    return found


def _kind(c: Config) -> Hashable:
    """What decides how long a step takes; variants that differ in less share one timing."""
    m = c.model
    sizes = (m.dim, m.encoder.depths, m.encoder.expansion, m.encoder.strides, m.mixer.blocks, m.height)
    return m.arch, m.baseline.scale, m.timesteps, m.neuron, sizes, c.data.max_width


def _seconds_a_line(config: Config, device: torch.device) -> float:
    """By training steps on synthetic lines as wide as lines may be."""
    lines = min(config.training.batch_size, 16 if device.type == "cuda" else 1)
    step = Step(Case("", config, True, lines, config.data.max_width), device)
    step()  # the first one makes the network
    return min(seconds_a_step(step) for _ in range(3 if device.type == "cuda" else 1)) / lines
