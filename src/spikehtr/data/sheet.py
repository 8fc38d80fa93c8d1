"""A contact sheet of lines and their augmented versions, with their transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.config import AugmentConfig
from spikehtr.data.augment import augment, without_ink
from spikehtr.data.batching import to_batch
from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file

MAX_LINES = 200  # a sheet of more would be too tall for an image viewer
_DPI = 100
_COLUMN = 960  # pixels: a line that is wider than this is drawn smaller
_GAP, _TITLE = 0.12, 0.3  # inches between columns, and above each row for its transcript
_CHARACTER = 0.085  # inches: a generous mean width of the titles' letters
_MISSING = "\u25a1"  # drawn for a character that the font lacks


def _changed(
    images: Tensor, widths: Tensor, config: AugmentConfig, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    if config.blank > 0:
        images = without_ink(images, widths, torch.rand(len(images), generator=generator) < config.blank)
    return augment(images, widths, config, generator)


def draw_sheet(
    lines: Sequence[tuple[NDArray[np.uint8], str]], config: AugmentConfig, path: Path, versions: int = 3, seed: int = 0
) -> None:
    """Write a PNG with a row for each line [h, w] of one height: its transcript, the line, `versions` changed copies.

    The same seed draws the same sheet.
    """
    if not 0 < len(lines) <= MAX_LINES:
        raise SpikeHTRError(f"a sheet holds 1 to {MAX_LINES} lines, not {len(lines)}")
    images, widths = to_batch([line for line, _ in lines])
    generator = torch.Generator().manual_seed(seed)
    columns = [(images, widths)] + [_changed(images, widths, config, generator) for _ in range(versions)]
    height, widest = images.shape[2], max(int(w.max()) for _, w in columns)
    across = min(widest, _COLUMN) / _DPI
    down = height / widest * across  # one scale for every line, so that they compare
    total = len(columns) * (across + _GAP) + _GAP
    tall = len(lines) * (down + _TITLE) + _TITLE + _GAP
    figure = Figure(figsize=(total, tall), dpi=_DPI)
    FigureCanvasAgg(figure)
    for column, (batch, valid) in enumerate(columns):
        left = _GAP + column * (across + _GAP)
        head = f"augmented {column}" if column else "line"
        figure.text(left / total, 1 - _TITLE / 2 / tall, head, fontsize=8, color="0.45", va="center")
        for row in range(len(lines)):
            bottom = tall - _TITLE - (row + 1) * (down + _TITLE)
            width = int(valid[row])
            place = (left / total, bottom / tall, across * width / widest / total, down / tall)
            _show(figure.add_axes(place), batch[row, 0, :, :width].numpy())
    for row, (_, text) in enumerate(lines):
        title = printable(text, int((total - 2 * _GAP) / _CHARACTER))
        figure.text(
            _GAP / total,
            (tall - _TITLE - row * (down + _TITLE) - 0.18) / tall,
            title,
            fontsize=9,
            va="center",
            parse_math=False,
        )
    _save(figure, path)


def printable(text: str, longest: int) -> str:
    """A title of at most `longest` characters that the default font can draw, whatever the text holds."""
    font: Any = get_font(findfont(FontProperties()))
    known = font.get_charmap()
    shown = "".join(c if ord(c) in known else _MISSING for c in " ".join(text.split()))
    return shown if len(shown) <= longest else shown[: max(1, longest - 1)].rstrip() + "\u2026"


def _show(ax: Any, image: NDArray[np.float32]) -> None:
    ax.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="antialiased", aspect="auto")
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set(color="0.75", linewidth=0.5)  # shows where a line ends when its paper is white


def _save(figure: Figure, path: Path) -> None:
    try:
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="png")
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None
