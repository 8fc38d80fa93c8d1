"""A hand writes: a font with habits of its own (slant, pen, spacing, letter forms), from text to the cover of ink."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spikehtr.data.handwriting import Font, Gray, clusters, length, needs_shaping, render, rendered

RAISED = "\ue000"  # before letters that are written small and high, up to the end of their word; never in a text
_LONG_S = re.compile(r"s(?=[a-zàâäæçèéêëîïôöùûüß])")  # not at the end of a word
_LONG = "\u017f"  # the long s
_TYPICAL = "notre seigneur, au dit lieu de sa demeure"
_LETTER = 0.25  # width of a letter in lines cut from pages, as a share of their height: the median over 25 sets
_SMALL = 0.62  # size of raised letters


@dataclass(frozen=True)
class Hand:
    """A writer of some lines. Lengths are pixels of the drawing, before it is scaled to the line."""

    font: Font
    size: int  # of the font
    letters: bool  # whether letters are set one by one, rather than words with the font's joins and alternates
    long_s: bool
    slant: float
    weight: float  # of the pen: from -1, finer, to 1, broader
    narrow: float  # factor on widths
    spacing: float
    gap: float  # between words
    jitter: float  # of letters, off the baseline
    wander: float  # of the baseline


def new_hand(font: Font, height: int, rng: Generator) -> Hand:
    """A writer with this font, for lines of this height."""
    # By the height of small letters: in some fonts capitals are many times as high, and lines cut from pages cut these.
    small = height * float(rng.uniform(0.18, 0.38))
    size = max(6, round(min(small / font.middle, 1.3 * height / (font.ascent + font.descent))))
    natural = length(font.path, 100, _TYPICAL) * size / 100 / len(_TYPICAL)
    wanted = float(np.exp(rng.normal(np.log(_LETTER), 0.3))) * height
    return Hand(
        font,
        size,
        letters=bool(rng.random() < 0.6),
        long_s=_LONG in font.characters and bool(rng.random() < 0.3),
        slant=float(np.clip(rng.normal(0.06, 0.14), -0.35, 0.5)),
        weight=float(rng.uniform(-0.6, 0.9)),
        narrow=float(np.clip(wanted / natural, 0.8, 1.5)),
        spacing=float(rng.uniform(-0.02, 0.06)) * size,
        gap=max(font.space * float(rng.uniform(0.7, 1.6)), font.middle * float(rng.uniform(0.45, 0.9))) * size,
        jitter=float(rng.uniform(0, 0.025)) * size,
        wander=float(rng.uniform(0, 0.04)) * size,
    )


def spelled(text: str, hand: Hand) -> str:
    """The text in the letter forms of a hand; `text.normalise` makes the text of it again."""
    return _LONG_S.sub(_LONG, text) if hand.long_s else text


class Written(NamedTuple):
    """The ink of a line, and where it stands."""

    cover: Gray  # [height, w] in [0, 1]
    baseline: float  # row
    wander: NDArray[np.float32]  # [w], how far below that row the baseline runs


def write(spelling: str, hand: Hand, height: int, rng: Generator) -> Written:
    """A line of this height in this hand."""
    hand = replace(
        hand,
        slant=hand.slant + float(rng.normal(0, 0.02)),
        narrow=hand.narrow * float(rng.uniform(0.95, 1.05)),
        weight=float(np.clip(hand.weight + rng.normal(0, 0.15), -1, 1)),
    )
    ink, base = _set_pieces(_pieces(spelling, hand, rng), hand)
    return _place(ink, base, hand, height, rng)


def _pieces(spelling: str, hand: Hand, rng: Generator) -> list[tuple[str, int, float, float]]:
    """Letters or words: (letters, size, x, y off the baseline)."""
    font, size = hand.font, hand.size
    if needs_shaping(spelling):
        return [(spelling.replace(RAISED, ""), size, 0.0, 0.0)]
    pieces: list[tuple[str, int, float, float]] = []
    x = 0.0
    for word in spelling.split(" "):
        plain, _, raised = word.partition(RAISED)
        parts = clusters(plain) if hand.letters else [plain] * bool(plain)
        shifts = (rng.standard_normal(len(parts)) * hand.jitter).tolist()
        for part, following, shift in zip(parts, [*parts, ""][1:], shifts, strict=True):
            pieces.append((part, size, x, shift))
            # Measured in pairs, which knows about kerning.
            x += _advance(hand, part + following) - _advance(hand, following) + hand.spacing
        if raised := raised.replace(RAISED, ""):
            small = max(5, round(size * _SMALL))
            pieces.append((raised, small, x, -font.ascent * size * float(rng.uniform(0.3, 0.5))))
            x += _advance(hand, raised) * _SMALL + hand.spacing
        x += hand.gap * float(rng.uniform(0.8, 1.3)) - hand.spacing
    return pieces


def _advance(hand: Hand, letters: str) -> float:
    """How far the pen moves. Measured at one size, so that all writers with this font share what was measured."""
    return length(hand.font.path, 100, letters) * hand.size / 100


def _set_pieces(pieces: list[tuple[str, int, float, float]], hand: Hand) -> tuple[NDArray[np.uint8], int]:
    """One picture of all pieces, cut to its ink with a pixel more all round, and the row of the baseline in it."""
    drawn = []
    for piece, size, x, y in pieces:
        draw = rendered if len(piece) <= 3 else render  # words hardly come again
        picture, left, top = draw(hand.font.path, size, piece)
        drawn.append((picture, round(x) + left, round(y) + top))
    first = min(column for _, column, _ in drawn) - 1
    over = min(row for _, _, row in drawn) - 1
    right = max(column + picture.shape[1] for picture, column, _ in drawn) + 1
    under = max(row + picture.shape[0] for picture, _, row in drawn) + 1
    ink = np.zeros((under - over, right - first), np.uint8)
    for picture, column, row in drawn:
        part = ink[row - over : row - over + picture.shape[0], column - first : column - first + picture.shape[1]]
        np.maximum(part, picture, out=part)
    return ink, -over


def _place(ink: NDArray[np.uint8], base: int, hand: Hand, height: int, rng: Generator) -> Written:
    """The writing slanted and scaled into a line of this height, on a baseline that climbs, falls and wavers."""
    zoom = float(rng.uniform(0.92, 1.08))
    climb = float(rng.normal(0, 0.05)) * height
    room = height - abs(climb) - 2 * hand.wander - 2
    allowed = 1.15 * room if rng.random() < 0.3 else room  # lines cut from pages lose the ends of some letters
    zoom = min(zoom, allowed / len(ink))
    tall = len(ink) * zoom
    across = zoom * hand.narrow
    out = abs(hand.slant) * tall
    before, after = (float(rng.uniform(0.03, 0.3)) * height for _ in range(2))
    width = max(8, round(ink.shape[1] * across + out + before + after))
    # Where the picture's middle row comes to lie.
    middle = height / 2 + float(rng.uniform(-0.5, 0.5)) * max(0.0, room - tall)
    x = np.arange(width, dtype=np.float32)
    y = np.arange(height, dtype=np.float32)[:, None]
    down = (x / width - np.float32(0.5)) * np.float32(climb)
    for _ in range(2):
        pace, phase = 2 * np.pi / (hand.size * rng.uniform(3, 12)), rng.uniform(0, 2 * np.pi)
        down += np.float32(hand.wander) * np.sin(x * np.float32(pace) + np.float32(phase)) / 2
    rows = (y - np.float32(middle) - down) / np.float32(zoom) + np.float32(len(ink) / 2)
    lean = hand.slant * zoom  # what hangs below the baseline leans to the left of where it stands, or what stands above
    left = before + max(lean * (len(ink) - base), -lean * base)
    columns = (x - np.float32(left)) / np.float32(across) + np.float32(lean / across) * (rows - np.float32(base))
    cover = _pen(np.asarray(cv2.remap(ink, columns, rows, cv2.INTER_LINEAR), np.uint8), hand.weight)
    baseline = middle + (base - len(ink) / 2) * zoom
    full = max(0.85 * float(cover.max()), 1.0)  # however fine the pen, ink covers the paper
    return Written(np.minimum(cover * np.float32(1 / full), np.float32(1)), baseline, down.astype(np.float32))


def _pen(cover: NDArray[np.uint8], weight: float) -> NDArray[np.uint8]:
    """A broader or a finer pen: the 3 x 3 maximum or minimum, blended in."""
    other = (cv2.dilate if weight > 0 else cv2.erode)(cover, np.ones((3, 3), np.uint8))
    return np.asarray(cv2.addWeighted(cover, 1 - abs(weight), other, abs(weight), 0), np.uint8)
