"""Draws a line of text in a handwriting font, with the unevenness of pen, ink and paper."""

from __future__ import annotations

import hashlib
import logging
import math
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
from fontTools.ttLib import TTFont
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import ImageFont, features

Gray = NDArray[np.float32]
_JOINERS = "\u200c\u200d"  # zero-width by nature; every other character must leave ink
_TYPICAL = "Ahdfgjpqy"  # reaches from the top of the capitals to the bottom of the tails

logging.getLogger("fontTools").setLevel(logging.ERROR)  # remarks on odd tables, of no use to who draws with the font


@dataclass(frozen=True)
class Font:
    """A font file and what it can draw. Lengths are shares of the font's size."""

    path: Path
    characters: frozenset[str]  # of those asked about
    ascent: float  # of ordinary writing, above the baseline
    descent: float
    space: float
    middle: float = 0.45  # height of small letters without ascenders

    def digest(self) -> str:
        """Of the file as it is now: two fonts may have one name, one time and one size."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()[:16]


def load_font(path: Path, characters: frozenset[str]) -> Font:
    """What the file can draw of `characters`; raises OSError where it is no usable font."""
    try:
        with path.open("rb") as stream, TTFont(stream, lazy=True) as file:
            table: dict[int, str] = file.getBestCmap() or {}
    except Exception as error:  # a damaged font makes the parser raise nearly anything
        raise OSError(f"not a readable font ({error or type(error).__name__})") from None
    face = _face(path, 100)
    tofu = _picture(face, "\U0010ffff")  # stands in no font, so this is what a missing character looks like
    mapped = {c for c in characters if ord(c) in table and table[ord(c)] != ".notdef"}
    drawn = {c for c in mapped if c in " " + _JOINERS or _picture(face, c) not in (b"", tofu)}
    if not _can_shape():
        drawn = {c for c in drawn if not needs_shaping(c)}
    typical = "".join(c for c in _TYPICAL if ord(c) in table) or "".join(sorted(drawn - {" "}))[:50]
    box = face.getbbox(typical, anchor="ls") if typical else (0, -70, 0, 20)
    middle = -face.getbbox("x", anchor="ls")[1] / 100 if "x" in drawn or ord("x") in table else 0.45
    ascent, descent = max(-box[1], 1) / 100, max(box[3], 0) / 100
    return Font(path, frozenset(drawn), ascent, descent, face.getlength(" ") / 100, max(middle, 0.1))


@lru_cache(maxsize=128)
def _face(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)


def _picture(face: ImageFont.FreeTypeFont, character: str) -> bytes:
    """The character's pixels; empty where it leaves no ink."""
    mask = face.getmask(character)
    return bytes(mask) if mask.getbbox() else b""


def _can_shape() -> bool:
    return bool(features.check("raqm") and features.check("fribidi"))


def needs_shaping(text: str) -> bool:
    """Whether letters join, stack or run from right to left, so that a line must be laid out as a whole."""
    return any(
        unicodedata.bidirectional(c) in ("R", "AL", "AN") or unicodedata.category(c) == "Mc" or c in _JOINERS
        for c in text
    )


def draw_text(text: str, font: Font, height: int, rng: Generator) -> NDArray[np.uint8]:
    """One grey line [height, w], dark on light. `rng` decides everything that varies."""
    cover, baseline = ink_text(text, font, height, rng)
    return on_paper(cover, baseline, rng)


def ink_text(text: str, font: Font, height: int, rng: Generator) -> tuple[Gray, float]:
    """The ink's cover [height, w] in [0, 1] and the row of its baseline: a line before it is laid on paper."""
    full = font.ascent + font.descent
    size = max(6, round(height * 0.85 / full))  # one size for each font, so that what was drawn once can serve again
    pieces = _lay_out(text, font, size, rng)
    base, margin = round(1.6 * size), 2 * size  # room for tall letters, and for what slants out to the sides
    last, end, _ = pieces[-1]
    ink = np.zeros((round(2.7 * size), round(end + length(font.path, size, last)) + 2 * margin), np.uint8)
    for piece, x, y in pieces:
        draw = rendered if len(piece) <= 12 else render  # what is long hardly comes again
        picture, left, top = draw(font.path, size, piece)
        first, column = max(0, round(base + y) + top), max(0, round(margin + x) + left)
        part = ink[first : first + picture.shape[0], column : column + picture.shape[1]]
        np.maximum(part, picture[: part.shape[0], : part.shape[1]], out=part)
    zoom = rng.uniform(0.8, 1.1)
    cover = _thicken(_bend(ink, base, size, zoom, rng), rng)
    above = font.ascent * size * zoom + (height - full * size * zoom) * rng.uniform(0.25, 0.75)
    return _crop(cover, base * zoom, round(base * zoom - above), height, rng)


def render(path: Path, size: int, piece: str) -> tuple[NDArray[np.uint8], int, int]:
    """The pixels of a letter or word, and where their left top corner lies from the pen on the baseline."""
    mask, (x, y) = _face(path, size).getmask2(piece, "L", anchor="ls")
    width, height = mask.size
    return np.frombuffer(bytes(mask), np.uint8).reshape(height, width), math.floor(x), math.floor(y)


rendered = lru_cache(maxsize=4096)(render)  # drawing letters is the slow part, and sizes and letters recur


@lru_cache(maxsize=1 << 18)
def length(path: Path, size: int, piece: str) -> float:
    return _face(path, size).getlength(piece)


def _crop(cover: NDArray[np.uint8], base: float, start: int, height: int, rng: Generator) -> tuple[Gray, float]:
    """`height` rows from row `start` on, or from where all ink fits in, with a random margin at either end."""
    faint = min(40, int(cover.max()) // 6)
    rows, columns = (np.flatnonzero(cover.max(axis=axis) > faint) for axis in (1, 0))
    if not len(rows):  # joiners alone, say
        return np.zeros((height, height), np.float32), height * 0.7
    top, bottom = int(rows[0]), int(rows[-1]) + 1
    inked = cover[top:bottom, columns[0] : columns[-1] + 1]
    if bottom - top > height - 2:  # tall flourishes: the whole line is written smaller
        shrink = (height - 2) / (bottom - top)
        tall, wide = height - 2, max(1, round(inked.shape[1] * shrink))
        inked = np.asarray(cv2.resize(inked, (wide, tall), interpolation=cv2.INTER_AREA), np.uint8)
        first, baseline = 1, 1 + (base - top) * shrink
    else:
        start = min(max(start, bottom + 1 - height), top - 1)
        first, baseline = top - start, base - start
    before, after = (int(height * rng.uniform(0.03, 0.3)) for _ in range(2))
    page = np.zeros((height, before + inked.shape[1] + after), np.float32)
    page[first : first + len(inked), before : before + inked.shape[1]] = inked
    page /= 255
    return page, baseline


def _lay_out(text: str, font: Font, size: int, rng: Generator) -> list[tuple[str, float, float]]:
    """Pieces of the text with their x and their height off the baseline: letters, words, or the line as a whole."""
    if needs_shaping(text):
        return [(text, 0.0, 0.0)]
    letters = rng.random() < 0.5  # else whole words, which keeps a font's joins and alternates
    spacing = rng.uniform(-0.015, 0.06) * size
    gap = font.space * size * rng.uniform(0.9, 1.45)
    jitter = rng.uniform(0, 0.025) * size
    pieces: list[tuple[str, float, float]] = []
    x = 0.0
    for word in text.split(" "):
        parts = clusters(word) if letters else [word]
        for part, following in zip(parts, [*parts[1:], ""], strict=True):
            pieces.append((part, x, rng.normal(0, jitter)))
            # Measured in pairs, which knows about kerning.
            x += length(font.path, size, part + following) - length(font.path, size, following) + spacing
        x += gap * rng.uniform(0.8, 1.25) - spacing
    return pieces


def clusters(word: str) -> list[str]:
    """Letters, each with the marks that sit on it."""
    parts: list[str] = []
    for c in word:
        if parts and unicodedata.category(c).startswith("M"):
            parts[-1] += c
        else:
            parts.append(c)
    return parts


def _bend(image: NDArray[np.uint8], base: int, size: int, zoom: float, rng: Generator) -> NDArray[np.uint8]:
    """The writing enlarged by `zoom`, slanted about its baseline, which climbs or falls a little and wavers."""
    height, width = image.shape
    x = np.arange(round(width * zoom), dtype=np.float32) / np.float32(zoom)  # in the pixels of `image`
    y = np.arange(round(height * zoom), dtype=np.float32)[:, None] / np.float32(zoom)
    down = (x / width - np.float32(0.5)) * np.float32(rng.normal(0, 0.04) * size)
    depth = np.float32(rng.uniform(0, 0.035) * size)
    for _ in range(2):
        pace, phase = 2 * np.pi / (size * rng.uniform(3, 12)), rng.uniform(0, 2 * np.pi)
        down += depth * np.sin(x * np.float32(pace) + np.float32(phase))
    slant = np.float32(np.clip(rng.normal(0.05, 0.14), -0.35, 0.5))
    return np.asarray(cv2.remap(image, x + slant * (y - base), y + down, cv2.INTER_LINEAR), np.uint8)


def _thicken(cover: NDArray[np.uint8], rng: Generator) -> NDArray[np.uint8]:
    """A broader or a finer pen: the 3 x 3 maximum or minimum, blended in."""
    weight = rng.uniform(-0.35, 0.9)
    other = (cv2.dilate if weight > 0 else cv2.erode)(cover, np.ones((3, 3), np.uint8))
    return np.asarray(cv2.addWeighted(cover, 1 - abs(weight), other, abs(weight), 0), np.uint8)


def on_paper(cover: Gray, baseline: float, rng: Generator) -> NDArray[np.uint8]:
    """Ink of uneven pressure on paper with texture, shading, grain and at times a ruled line."""
    height, width = cover.shape
    paper = np.full(cover.shape, rng.uniform(185, 252), np.float32)
    paper += np.linspace(rng.uniform(-12, 6), rng.uniform(-12, 6), width, dtype=np.float32)
    paper += np.linspace(rng.uniform(-6, 4), rng.uniform(-6, 4), height, dtype=np.float32)[:, None]
    paper += (clouds(height // 3, width // 3, cover.shape, rng) - 0.5) * np.float32(rng.uniform(2, 16))
    if rng.random() < 0.2:
        row = np.float32(baseline + rng.uniform(-1, 3)) + np.arange(width, dtype=np.float32) * rng.normal(0, 0.003)
        near = np.abs(np.arange(height, dtype=np.float32)[:, None] - row.astype(np.float32))
        paper -= np.clip(rng.uniform(1, 1.6) - near, 0, 1).astype(np.float32) * np.float32(rng.uniform(15, 55))
    weak = rng.uniform(0.05, 0.45)
    cover = cover * (1 - np.float32(weak) * clouds(3, max(2, width // 40), cover.shape, rng))
    page = paper + (np.float32(rng.uniform(15, 90)) - paper) * cover
    if rng.random() < 0.35:
        page = np.asarray(cv2.GaussianBlur(page, (0, 0), rng.uniform(0.35, 0.8)), np.float32)
    page += rng.standard_normal(page.shape, np.float32) * np.float32(rng.uniform(0.4, 4))
    return page.clip(0, 255).astype(np.uint8)


def clouds(rows: int, columns: int, shape: tuple[int, ...], rng: Generator) -> Gray:
    """Smooth noise in [0, 1]: a coarse grid of random numbers, enlarged."""
    coarse = rng.random((max(1, rows), max(1, columns)), np.float32)
    return np.asarray(cv2.resize(coarse, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), np.float32)
