"""The picture of what InkCoder sees (the paper's figures of Appendix A): evidence on top, the T steps below."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spikehtr.config import ModelConfig
from spikehtr.data.batching import to_batch
from spikehtr.data.sheet import printable
from spikehtr.files import whole_file
from spikehtr.model.inkcoder import InkCoder, InkTrace

_STRIP, _TALLEST = 5.6, 2.0  # inches across one line, and what a short one may grow to in height


@torch.no_grad()
def trace_line(line: NDArray[np.uint8], config: ModelConfig, trained: InkCoder | None = None) -> InkTrace:
    """InkCoder's maps for one fitted line, with the gate's sharpness of a trained one, or as it is before training."""
    images, widths = to_batch([line])
    coder = InkCoder(config.inkcoder, config.timesteps)
    if trained is not None:
        coder.load_state_dict(trained.state_dict())
    return coder.trace(images, widths)


def draw(trace: InkTrace, beta: float, path: Path, title: str) -> None:
    """Write the figure as PNG."""
    figure = ink_figure(trace, beta, title)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def ink_figure(trace: InkTrace, beta: float, title: str) -> Figure:
    """The grey line, both proxies, keep masks and fused evidence, then for each step the gated view
    X * (beta + (1 - beta) g_t), the gate g_t, and the novelty g_t - g_(t-1)."""
    steps, _, _, height, width = trace.gates.shape
    columns = max(2, min(steps, 4))
    evidence = _evidence(trace)
    above = math.ceil(len(evidence) / columns)
    turns = math.ceil(steps / columns)
    rows = above + 3 * turns
    strip_height = min(_STRIP * height / width, _TALLEST)
    figure = Figure(
        figsize=(columns * (_STRIP + 0.2), rows * (strip_height + 0.32) + 0.6), dpi=110, layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.suptitle(printable(title, 120), fontsize=11, parse_math=False)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
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


def _evidence(trace: InkTrace) -> list[tuple[str, torch.Tensor]]:
    last = trace.gates.shape[0]
    maps = [
        ("grey line", trace.gray[0, 0]),
        ("intensity proxy $I_{int}$", trace.maps.intensity[0, 0]),
        ("edge magnitude, two scales", trace.maps.edge_magnitude[0, 0]),
        ("edge proxy $I_{edge}$", trace.maps.edge[0, 0]),
    ]
    for t in sorted({1, last}):
        maps.append((f"density keep mask, t = {t}", trace.maps.keep[t - 1, 0, 0]))
    for t in sorted({1, last}):
        maps.append((f"fused evidence $D_{{{t}}}$", trace.maps.evidence[t - 1, 0, 0]))
    return maps


def _show(ax: Any, image: torch.Tensor, title: str, cmap: str = "gray", vmin: float = 0.0) -> None:
    ax.imshow(image.numpy(), cmap=cmap, vmin=vmin, vmax=1.0, interpolation="nearest", aspect="equal")
    ax.set_title(title, fontsize=8, loc="left", pad=2)
