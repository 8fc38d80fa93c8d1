"""A contact sheet of lines and their augmented versions, with their transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.font_manager import FontProperties, findfont, get_font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from spikehtr.config import AugmentConfig
from spikehtr.data.augment import augment, without_ink
from spikehtr.data.batching import to_batch
from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file

MAX_LINES = 200  # a sheet of more would be too tall for an image viewer
_COLUMN = 960  # pixels: a line that is wider than this is drawn smaller
_GAP, _TITLE = 12, 30  # pixels between columns, and above each row for its transcript
_FONT, _CHARACTER = 13, 8.5  # pixels: height, and a generous mean width of the letters
_INK, _SOFT, _RULE = 0, 115, 190
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
    scale = min(1.0, _COLUMN / widest)  # one for every line, so that they compare
    across, down = round(widest * scale), max(1, round(height * scale))
    total = len(columns) * (across + _GAP) + _GAP
    sheet = Image.new("L", (total, len(lines) * (down + _TITLE) + _TITLE + _GAP), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.truetype(findfont(FontProperties()), _FONT)
    for row, (_, text) in enumerate(lines):
        title = printable(text, int((total - 2 * _GAP) / _CHARACTER))
        draw.text((_GAP, _TITLE + row * (down + _TITLE) + _TITLE // 2), title, _INK, font, anchor="lm")
    for column, (batch, valid) in enumerate(columns):
        left = _GAP + column * (across + _GAP)
        draw.text((left, _TITLE // 2), f"augmented {column}" if column else "line", _SOFT, font, anchor="lm")
        for row in range(len(lines)):
            top, width = 2 * _TITLE + row * (down + _TITLE), int(valid[row])
            line = Image.fromarray((batch[row, 0, :, :width] * 255).round().byte().numpy())
            line = line.resize((max(1, round(width * scale)), down), Image.Resampling.LANCZOS)
            sheet.paste(line, (left, top))
            box = (left - 1, top - 1, left + line.width, top + line.height)
            draw.rectangle(box, outline=_RULE)  # shows where a line ends when its paper is white
    try:
        with whole_file(path) as temporary:
            sheet.save(temporary, "PNG")
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None


def printable(text: str, longest: int) -> str:
    """A title of at most `longest` characters that the default font can draw, whatever the text holds."""
    font: Any = get_font(findfont(FontProperties()))
    known = font.get_charmap()
    shown = "".join(c if ord(c) in known else _MISSING for c in " ".join(text.split()))
    return shown if len(shown) <= longest else shown[: max(1, longest - 1)].rstrip() + "\u2026"
