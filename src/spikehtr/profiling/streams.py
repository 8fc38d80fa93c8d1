"""The figure of temporal entry (fig:enc_streams): repeat, InkCoder, Poisson and latency coding, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.config import Config, ModelConfig
from spikehtr.data.batching import to_batch
from spikehtr.data.sheet import printable
from spikehtr.model.entry import Entry

CODES = {"repeat": "repeat", "inkcoder": "InkCoder", "poisson": "Poisson", "ttfs": "latency (TTFS)"}
_STRIP, _TALLEST = 5.6, 2.0  # inches across one line, and what a short one may grow to in height


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
    """The line on top, then a row for each code and a column for each step; dark is a strong drive."""
    steps, height, width = next(iter(found.values())).shape
    columns = max(2, steps)
    tall = min(_STRIP * height / width, _TALLEST)
    rows = 1 + len(found)
    figure = Figure(figsize=(columns * (_STRIP + 0.2), rows * (tall + 0.32) + 0.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(printable(title, 120), fontsize=11, parse_math=False)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.set_axis_off()
    _show(axes[0][0], torch.tensor(line) / 255, "grey line")
    for row, (code, drive) in enumerate(found.items(), 1):
        for t in range(steps):
            mean = float(drive[t].mean())
            _show(axes[row][t], 1 - drive[t], f"{CODES[code]}, t = {t + 1}, mean drive {mean:.3f}")
    return figure


def _show(ax: Any, image: Tensor, title: str) -> None:
    ax.imshow(image.numpy(), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
    ax.set_title(title, fontsize=9, loc="left", pad=2)
