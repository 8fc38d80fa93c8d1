"""How long a study will take, before it is begun: by its budget, or from one timed training step of each kind."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Sequence

import torch

from spikehtr.config import Config
from spikehtr.data.compiling import open_lines
from spikehtr.profiling.steps import ink_lines
from spikehtr.registry import build
from spikehtr.studies.tasks import Task
from spikehtr.training.datasets import split_rows
from spikehtr.training.losses import spike_htr_loss

_LABELS = 80


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
        kind = _kind(c)
        if kind not in seconds:
            seconds[kind] = seconds_a_line(c, device)
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


def seconds_a_line(config: Config, device: str) -> float:
    """One timed training step on synthetic lines as wide as lines may be, without the optimiser."""
    where = torch.device(device)
    on_gpu = where.type == "cuda"
    lines = min(config.training.batch_size, 16 if on_gpu else 1)
    with torch.random.fork_rng(devices=[where.index or 0] if on_gpu else []):
        net = build(config.model, _LABELS).to(where).train()
        width = config.data.max_width
        images = ink_lines(lines, config.model.height, width, where)
        widths = torch.full((lines,), width, device=where)
        count = max(1, width // 16)
        targets = torch.randint(1, _LABELS, (lines, count), device=where)
        lengths = torch.full((lines,), count, device=where)
        took = math.inf
        for _ in range(3 if on_gpu else 1):
            start = time.perf_counter()
            with torch.autocast(where.type, torch.bfloat16, enabled=on_gpu):
                out = net(images, widths)
            spike_htr_loss(out, targets, lengths, net, config.training).total.backward()
            if on_gpu:
                torch.cuda.synchronize(where)
            took = min(took, time.perf_counter() - start)
    return took / lines
