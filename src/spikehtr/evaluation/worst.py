"""A contact sheet of badly read lines: each line with its reference and what was read, differences marked.

Both texts are set in a monospaced font and aligned as the errors were counted: a missing character leaves a gap.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.font_manager import FontProperties, findfont, get_font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rapidfuzz.distance import Levenshtein

from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.rates import character_edits
from spikehtr.files import whole_file

MAX_LINES = 200  # a sheet of more would be too tall for an image viewer
_WIDTH, _MARGIN, _GAP = 1000, 16, 22  # pixels: of the sheet, around it, between lines
_HIGH = 64  # pixels: of a line's picture
_SIZE, _ROW = 15, 22  # of the font, and of a row of text
_LABEL = 6  # characters: `true  ` and `read  `
_INK, _SOFT, _RULE, _MARK = "#1b1b1b", "#6a6a6a", "#c8c8c8", "#ffcabc"
_SPACE, _NOTHING, _MISSING, _CARRIER = "\u2423", "\u00b7", "\u25a1", "\u25cc"


class ReadLine(NamedTuple):
    """What the sheet shows of a line; a plain tuple of the first four will do."""

    pixels: NDArray[np.uint8]  # [h, w]
    reference: str
    text: str
    confidence: float  # nan: not known
    label: str = ""  # its id, say


class Cell(NamedTuple):
    """A column of the aligned texts; None where the other text has a character more."""

    reference: str | None
    read: str | None

    @property
    def same(self) -> bool:
        return self.reference == self.read


def align(reference: str, text: str) -> list[Cell]:
    """Both texts side by side with the fewest edits, as `rates` and `confusions` count them."""
    cells: list[Cell] = []
    for block in Levenshtein.opcodes(reference, text):
        ours, theirs = reference[block.src_start : block.src_end], text[block.dest_start : block.dest_end]
        if block.tag in ("equal", "replace"):
            cells += [Cell(a, b) for a, b in zip(ours, theirs, strict=True)]
        else:
            cells += [Cell(a, None) for a in ours] + [Cell(None, b) for b in theirs]
    return cells


def draw_worst(items: Sequence[ReadLine | tuple[NDArray[np.uint8], str, str, float]], path: Path) -> None:
    """Write a PNG with the lines in the order given."""
    if not 0 < len(items) <= MAX_LINES:
        raise SpikeHTRError(f"a sheet holds 1 to {MAX_LINES} lines, not {len(items)}")
    blocks = [_draw(ReadLine(*item), number) for number, item in enumerate(items, start=1)]
    sheet = Image.new("RGB", (_WIDTH, sum(b.height + _GAP for b in blocks) + 2 * _MARGIN - _GAP), "white")
    top = _MARGIN
    for block in blocks:
        sheet.paste(block, (0, top))
        top += block.height + _GAP
    try:
        with whole_file(path) as temporary:
            sheet.save(temporary, format="PNG")
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None


def _draw(item: ReadLine, number: int) -> Image.Image:
    """One line's block: a title, the picture, and as many pairs of text rows as it takes."""
    font, across = _font()
    room = int((_WIDTH - 2 * _MARGIN) / across)
    cells = align(item.reference, item.text)
    wide = room - _LABEL
    rows = [cells[i : i + wide] for i in range(0, len(cells), wide)] or [[]]
    picture = _fitted(item.pixels)
    below = _ROW + picture.height + 8
    block = Image.new("RGB", (_WIDTH, below + len(rows) * (2 * _ROW + 6)), "white")
    draw = ImageDraw.Draw(block)
    sure = f"  confidence {item.confidence:.2f}" if math.isfinite(item.confidence) else ""
    title = f"{number}.  CER {_percent(item)}{sure}  {item.label}"
    draw.text((_MARGIN, 0), "".join(map(_glyph, title[:room])), fill=_SOFT, font=font)
    block.paste(picture, (_MARGIN, _ROW))
    box = (_MARGIN - 1, _ROW - 1, _MARGIN + picture.width, _ROW + picture.height)
    draw.rectangle(box, outline=_RULE)  # shows where a line ends when its paper is white
    for place, row in enumerate(rows):
        top = below + place * (2 * _ROW + 6)
        _write(draw, top, "true", [(cell.reference, cell.same) for cell in row])
        _write(draw, top + _ROW, "read", [(cell.read, cell.same) for cell in row])
    return block


def _write(draw: ImageDraw.ImageDraw, top: float, label: str, cells: Sequence[tuple[str | None, bool]]) -> None:
    font, across = _font()
    draw.text((_MARGIN, top), label, fill=_SOFT, font=font)
    for place, (character, same) in enumerate(cells, start=_LABEL):
        left = _MARGIN + place * across
        if not same:
            draw.rectangle((left, top, left + across - 1, top + _ROW - 3), fill=_MARK)
        if character is None:
            draw.text((left, top), _NOTHING, fill=_SOFT, font=font)
            continue
        for part in _SPACE if character == " " and not same else _glyph(character):
            draw.text((left, top), part, fill=_INK, font=font)  # a mark over its carrier, in one cell


def _fitted(pixels: NDArray[np.uint8]) -> Image.Image:
    """The line as high as `_HIGH`, or lower where it would be wider than the sheet."""
    image = Image.fromarray(pixels)
    scale = min(_HIGH / image.height, (_WIDTH - 2 * _MARGIN) / image.width)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def _percent(item: ReadLine) -> str:
    edits = character_edits(item.reference, item.text)
    return f"{edits.rate:.1%} ({edits.errors} of {edits.length})"


@cache
def _font() -> tuple[ImageFont.FreeTypeFont, float]:
    """The monospaced font that comes with matplotlib, and how far one character reaches."""
    font = ImageFont.truetype(_font_file(), _SIZE, layout_engine=ImageFont.Layout.BASIC)
    return font, font.getlength("n")


@cache
def _font_file() -> str:
    return findfont(FontProperties(family="DejaVu Sans Mono"))


@cache
def _known() -> frozenset[int]:
    font: Any = get_font(_font_file())
    return frozenset(font.get_charmap())


@cache
def _glyph(character: str) -> str:
    """What the font can draw for a character: a box where it lacks it, a mark on a circle that carries it."""
    if ord(character) not in _known() or unicodedata.category(character)[0] == "C":
        return _MISSING
    return _CARRIER + character if unicodedata.category(character)[0] == "M" else character
