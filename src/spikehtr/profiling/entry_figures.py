"""How one line becomes T steps: what InkCoder sees (the paper's figures of Appendix A), and four codes side by side."""

from __future__ import annotations

import math

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.config import Config, ModelConfig
from spikehtr.data.batching import to_batch
from spikehtr.data.sheet import printable
from spikehtr.model.entry import Entry
from spikehtr.model.inkcoder import InkCoder, InkTrace
from spikehtr.plotting import new_figure

CODES = {"repeat": "repeat", "inkcoder": "InkCoder", "poisson": "Poisson", "ttfs": "latency (TTFS)"}
_STRIP, _TALLEST = 5.6, 2.0  # inches across one line, and what a short one may grow to in height


@torch.no_grad()
def trace_line(line: NDArray[np.uint8], config: ModelConfig, trained: InkCoder | None = None) -> InkTrace:
    """InkCoder's maps for one fitted line, with the gate's sharpness of a trained one, or as it is before training."""
    images, widths = to_batch([line])
    coder = InkCoder(config.inkcoder, config.timesteps)
    if trained is not None:
        coder.load_state_dict(trained.state_dict())
    return coder.trace(images, widths)


def ink_figure(trace: InkTrace, beta: float, title: str) -> Figure:
    """The grey line, both proxies, keep masks and fused evidence, then for each step the gated view
    X * (beta + (1 - beta) g_t), the gate g_t, and the novelty g_t - g_(t-1)."""
    steps, _, _, height, width = trace.gates.shape
    columns = max(2, min(steps, 4))
    evidence = _evidence(trace)
    above = math.ceil(len(evidence) / columns)
    figure, axes = _grid(above + 3 * math.ceil(steps / columns), columns, height / width, title)
    for i, (name, image) in enumerate(evidence):
        _show(axes[i // columns][i % columns], image, name)
    for t in range(steps):
        top, column = above + 3 * (t // columns), t % columns
        gate = trace.gates[t, 0, 0]
        before = trace.gates[t - 1, 0, 0] if t else torch.zeros_like(gate)
        head = f"t = {t + 1}, $\\theta$ = {trace.theta[t]:.2f}, mean gate {gate.mean():.3f}"
        _show(axes[top][column], trace.gray[0, 0] * (beta + (1 - beta) * gate), f"gated view, {head}")
        _show(axes[top + 1][column], gate, f"gate $g_{{{t + 1}}}$")
        novelty = f"novelty $g_{{{t + 1}}} - g_{{{t}}}$" if t else "novelty $g_1$"
        _show(axes[top + 2][column], gate - before, novelty, cmap="RdBu_r", vmin=-1)
    return figure


def _evidence(trace: InkTrace) -> list[tuple[str, Tensor]]:
    ends = sorted({1, trace.gates.shape[0]})
    return [
        ("grey line", trace.gray[0, 0]),
        ("intensity proxy $I_{int}$", trace.maps.intensity[0, 0]),
        ("edge magnitude, two scales", trace.maps.edge_magnitude[0, 0]),
        ("edge proxy $I_{edge}$", trace.maps.edge[0, 0]),
        *((f"density keep mask, t = {t}", trace.maps.keep[t - 1, 0, 0]) for t in ends),
        *((f"fused evidence $D_{{{t}}}$", trace.maps.evidence[t - 1, 0, 0]) for t in ends),
    ]


@torch.no_grad()
def streams(line: NDArray[np.uint8], config: ModelConfig, trained: Entry | None = None) -> dict[str, Tensor]:
    """Darkness of the line times its gain beta + (1 - beta) g_t (Eq. 7), [T, H, W] for each code.

    `trained`: an entry whose learned scalars stand in for those of the start.
    """
    images, widths = to_batch([line])
    found = {}
    for code in CODES:
        whole = Config().model_copy(update={"model": config})
        entry = Entry(whole.with_overrides({"model.entry": code}).model).eval()
        if trained is not None:
            known = {name: value.cpu() for name, value in trained.state_dict().items() if name in entry.state_dict()}
            entry.load_state_dict(known, strict=False)
        gates = entry.gates(images, widths)[:, 0, 0]  # [T, H, W]
        found[code] = (1 - images[0, 0]) * (entry.beta + (1 - entry.beta) * gates)
    return found


def streams_figure(line: NDArray[np.uint8], found: dict[str, Tensor], title: str) -> Figure:
    """The figure of temporal entry (fig:enc_streams): the line on top, then a row for each code and a column for each
    step; dark is a strong drive."""
    steps, height, width = next(iter(found.values())).shape
    figure, axes = _grid(1 + len(found), max(2, steps), height / width, title)
    _show(axes[0][0], torch.tensor(line) / 255, "grey line")
    for row, (code, drive) in enumerate(found.items(), 1):
        for t in range(steps):
            mean = float(drive[t].mean())
            _show(axes[row][t], 1 - drive[t], f"{CODES[code]}, t = {t + 1}, mean drive {mean:.3f}")
    return figure


def _grid(rows: int, columns: int, shape: float, title: str) -> tuple[Figure, list[list[Axes]]]:
    """Panels for strips that are `shape` times as high as wide; those that stay empty do not show."""
    tall = min(_STRIP * shape, _TALLEST)
    figure = new_figure(columns * (_STRIP + 0.2), rows * (tall + 0.32) + 0.6)
    figure.suptitle(printable(title, 120), fontsize=11, parse_math=False)
    axes = figure.subplots(rows, columns, squeeze=False)
    for panel in axes.flat:
        panel.set_axis_off()
    return figure, axes.tolist()


def _show(panel: Axes, image: Tensor, title: str, cmap: str = "gray", vmin: float = 0.0) -> None:
    panel.imshow(image.numpy(), cmap=cmap, vmin=vmin, vmax=1.0, interpolation="nearest", aspect="equal")
    panel.set_title(title, fontsize=8, loc="left", pad=2)
