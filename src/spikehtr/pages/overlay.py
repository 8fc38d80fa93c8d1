"""A picture of what was found and read: outlines, reading order, and the text coloured by confidence."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from spikehtr.assets import FONTS
from spikehtr.results.page import Page, Region, TextLine, Word

_SMALLEST, _LEGIBLE = 9, 14  # type of what was read: at least, and what it is not made smaller than to fit
LONGEST = 2000  # pixels of the page's longer side in the picture
_UNREAD = (70, 120, 180)
_REGIONS = ("#1f5fbf", "#9a3fb5", "#00857a", "#b56a00")


def colour(confidence: float) -> tuple[int, int, int]:
    """From red (0) over amber (1/2) to green (1)."""
    share = min(max(confidence, 0.0), 1.0)
    return (
        (200, round(300 * share), 0) if share < 0.5 else (round(400 * (1 - share)), round(150 - 30 * (share - 0.5)), 0)
    )


def draw(page: Page, gray: Image.Image) -> Image.Image:
    """The page, pale, with its lines drawn in, and beside it what was read, each word where it stands.

    Where nothing was read there is nothing beside it.
    """
    read = any(line.words for line in page.lines)
    scale = min(1.0, LONGEST / max(gray.size))
    small = gray.resize((max(1, round(gray.width * scale)), max(1, round(gray.height * scale))), Image.Resampling.BOX)
    canvas = Image.new("RGB", ((1 + read) * small.width, small.height), "white")
    canvas.paste(small.point(lambda value: 96 + value * 159 // 255).convert("RGB"), (0, 0))
    pen = ImageDraw.Draw(canvas)
    count = 0
    for index, region in enumerate(page.regions):
        shade = _REGIONS[index % len(_REGIONS)]
        _region(pen, region, scale, shade)
        for line in region.lines:
            count += 1
            _line(pen, line, count, scale, shade, colour(line.confidence) if read else _UNREAD)
            _text(pen, line, scale, small.width)
    return canvas


def _at(points: tuple[tuple[float, float], ...], scale: float) -> list[tuple[float, float]]:
    return [(x * scale, y * scale) for x, y in points]


def _region(pen: ImageDraw.ImageDraw, region: Region, scale: float, shade: str) -> None:
    if region.lines:
        pen.polygon(_at(region.outline, scale), outline=shade, width=3)


def _line(
    pen: ImageDraw.ImageDraw, line: TextLine, number: int, scale: float, shade: str, outline: tuple[int, int, int]
) -> None:
    pen.polygon(_at(line.polygon, scale), outline=outline, width=2)
    if len(line.baseline) > 1:
        pen.line(_at(line.baseline, scale), fill=shade, width=2)
    start = line.baseline[0] if line.baseline else (line.box[0], line.box[3])
    pen.text((start[0] * scale, start[1] * scale), str(number), fill=shade, font=_font(16), anchor="rs")


def _text(pen: ImageDraw.ImageDraw, line: TextLine, scale: float, width: int) -> None:
    """Words beside the page, which is so wide, at the height of their line, never one on top of the other, and in type
    small enough to end where their line does."""
    _, top, right, bottom = line.box
    size = min(32, max(_SMALLEST, round((bottom - top) * scale * 0.45)))
    places, end = _places(pen, line, scale, size, width)
    while size > _SMALLEST and (places[:1] < [0.0] or (end > right * scale and size > _LEGIBLE)):
        size -= 1
        places, end = _places(pen, line, scale, size, width)
    for word, x in zip(line.words, places, strict=True):
        place = (width + x - min(0.0, places[0]), (top + bottom) / 2 * scale)
        pen.text(place, _drawable(word), fill=colour(word.confidence), font=_font(size), anchor="lm")


def _places(pen: ImageDraw.ImageDraw, line: TextLine, scale: float, size: int, width: int) -> tuple[list[float], float]:
    """Where each word begins, and where the last one would end if each stood at its place or behind the one before;
    what would leave the picture then is moved to the left."""
    lengths = [pen.textlength(_drawable(word), font=_font(size)) for word in line.words]
    space = pen.textlength(" ", font=_font(size))
    places: list[float] = []
    end = -space
    for word, length in zip(line.words, lengths, strict=True):
        places.append(max(word.box[0] * scale, end + space))
        end = places[-1] + length
    limit = width - 2.0
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit - lengths[number])
        limit = places[number] - space
    return places, end


def _drawable(word: Word) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in word.text)


@lru_cache(maxsize=32)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu, which knows most scripts and comes with matplotlib (found, not imported); else a font of ours."""
    home = find_spec("matplotlib")
    if home is not None and home.origin is not None:
        file = Path(home.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if file.is_file():
            return ImageFont.truetype(str(file), size)
    return ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), size)
