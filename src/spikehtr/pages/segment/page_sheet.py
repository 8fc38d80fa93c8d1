"""A sheet that lines are written on, each noted as it stands: its baseline, heights and region."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.random import Generator

from spikehtr.data.handwriting import Gray, clouds
from spikehtr.data.synthesis.drawing import Sources
from spikehtr.data.synthesis.paper import rule
from spikehtr.data.synthesis.writing import Hand, Written, new_hand, spelled, write
from spikehtr.pages.segment.labels import MOST, SPACING, Floats, LineLabel, along

INKED = 0.3  # cover from which a pixel counts as written on
DARKER = 0.7  # paper's level, as a share of the page's median, below which nobody writes: beyond the page's edge
_PAD = 0.35  # heights that a region's border keeps from its lines


@dataclass(frozen=True)
class Box:
    """A place on the page, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left


@dataclass
class Sheet:
    """A page while it is written on."""

    ink: Gray  # cover
    paper: Gray
    contrast: float  # how much darker than the paper ink is
    sources: Sources
    rng: Generator
    height: float  # of the writing: a line's from the tops of its tall letters to the ends of its long ones
    hand: Hand
    rules: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    lines: list[LineLabel] = field(default_factory=list)
    regions: list[Floats] = field(default_factory=list)

    def note(self, size: float) -> Sheet:
        """The same page for another pen: everything but the hand and the height is shared."""
        font = self.sources.fonts[int(self.rng.integers(len(self.sources.fonts)))]
        font = font if self.rng.random() < 0.3 else self.hand.font
        return replace(self, height=size * self.height, hand=new_hand(font, round(size * self.height), self.rng))


def put_number(sheet: Sheet, left: float, row: float, right: float, slope: float) -> None:
    """A number of one to four digits, or the sign that it is the one above, where the font has them."""
    rng = sheet.rng
    text = '"' if rng.random() < 0.15 else str(int(rng.integers(1, 10 ** int(rng.integers(1, 5)))))
    if not sheet.hand.font.characters.issuperset(text):
        return
    written = write(spelled(text, sheet.hand), sheet.hand, round(sheet.height), rng)
    room = right - left - written.cover.shape[1]
    if room > -0.3 * sheet.height:
        _put(sheet, written, round(left + float(rng.random()) * max(0.0, room)), row, slope)


def put_line(sheet: Sheet, left: float, row: float, right: float, share: float, slope: float = 0.0) -> bool:
    """Words from `left` over a share of the room there is; whether there was room for any."""
    room = (right - left) * share
    room = max(room, min(2 * sheet.height, right - left))
    if room < sheet.height:
        return False
    written = _fitting(sheet, room, right - left + 0.4 * sheet.height)
    if written is None:
        return False
    return _put(sheet, written, round(left), row, slope)


def _fitting(sheet: Sheet, room: float, most: float) -> Written | None:
    """Writing about as wide as there is room, never wider than `most`."""
    words = _words(sheet, int(room / (0.15 * sheet.height)) + 2)
    count, pace = max(2, round(room / (0.25 * sheet.height))), 0.0
    for _ in range(3):
        text = " ".join(words)[:count].rstrip() or "a"
        written = write(spelled(text, sheet.hand), sheet.hand, round(sheet.height), sheet.rng)
        pace = written.cover.shape[1] / len(text)
        if 0.85 * room < written.cover.shape[1] < most:
            return written
        count = max(1, int(room / pace))
    return written if written.cover.shape[1] < most else None


def _words(sheet: Sheet, letters: int) -> list[str]:
    words: list[str] = []
    for _ in range(40):
        known = sheet.hand.font.characters
        words += [word for word in sheet.sources.texts.compose(sheet.rng).split() if known.issuperset(word)]
        if sum(map(len, words)) + len(words) > letters:
            break
    return words


def _put(sheet: Sheet, written: Written, left: int, row: float, slope: float) -> bool:
    """Puts a line on the page, its baseline at `row` where it begins, and notes where it stands."""
    cover, base, wander = written
    columns = np.flatnonzero(cover.max(axis=0) > INKED)
    if not len(columns):
        return False
    x = np.arange(cover.shape[1], dtype=np.float32)
    fall = np.float32(slope) * x
    room = int(np.ceil(float(np.abs(fall).max()))) + 1
    top = round(row - base) - room
    shift = np.float32(row - base - top) + fall  # of each column, within what is put down
    tall = cover.shape[0] + 2 * room + 1
    rows = np.arange(tall, dtype=np.float32)[:, None] - shift
    moved = cv2.remap(cover, np.broadcast_to(x, rows.shape).copy(), rows, cv2.INTER_LINEAR, borderValue=0)
    page = sheet.ink[max(0, top) : top + tall, max(0, left) : left + len(x)]
    if page.size == 0 or top < 0 or left < 0 or top + tall > len(sheet.ink) or left + len(x) > sheet.ink.shape[1]:
        return False
    if np.median(sheet.paper[top : top + tall, left : left + len(x)]) < DARKER * np.median(sheet.paper):
        return False
    np.maximum(page, moved, out=page)
    level = base + wander  # of the baseline, by column of the cover
    seen = cover[:, columns] > INKED
    numbers = np.arange(len(cover), dtype=np.float32)[:, None] - level[columns]
    highest = np.where(seen, -numbers, -np.inf).max(axis=0)
    lowest = np.where(seen, numbers, -np.inf).max(axis=0)
    above = float(max(0.3 * sheet.height, np.percentile(highest, 98)))
    below = float(max(0.08 * sheet.height, np.percentile(lowest, 98)))
    first, last = int(columns[0]), int(columns[-1])
    curve = np.stack([left + x[first : last + 1], top + (shift + level)[first : last + 1]], 1).astype(np.float64)
    if len(curve) < 4:
        return False
    points = along(curve, SPACING * (above + below), MOST)
    size = len(points)
    sheet.lines.append(LineLabel(points, np.full(size, above), np.full(size, below), len(sheet.regions)))
    return True


def close_region(sheet: Sheet, begun: int) -> None:
    """Ends a region: the border round its lines."""
    lines = sheet.lines[begun:]
    if not lines:
        return
    pad = _PAD * sheet.height
    high = min(float((line.points[:, 1] - line.above).min()) for line in lines) - pad
    low = max(float((line.points[:, 1] + line.below).max()) for line in lines) + pad
    left = min(float(line.points[:, 0].min()) for line in lines) - pad
    right = max(float(line.points[:, 0].max()) for line in lines) + pad
    sheet.regions.append(np.array([(left, high), (right, high), (right, low), (left, low)], np.float64))


def is_written(sheet: Sheet, place: Box) -> bool:
    part = sheet.ink[max(0, int(place.top)) : int(place.bottom), max(0, int(place.left)) : int(place.right)]
    return part.size == 0 or bool((part > INKED).any())


def on_paper(sheet: Sheet, spread: bool, other: Gray | None) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """The page's ink on paper that is ruled, shone through and shaded."""
    rng, cover = sheet.rng, sheet.ink
    height, width = cover.shape
    page, contrast = sheet.paper.copy(), sheet.contrast
    if other is not None and rng.random() < 0.35:
        back = cv2.resize(other[:, ::-1], (width, height), interpolation=cv2.INTER_AREA)
        page -= cv2.GaussianBlur(back, (0, 0), float(rng.uniform(0.8, 2.5))) * np.float32(rng.uniform(5, 40))
    if rng.random() < 0.2 and sheet.lines:
        rule(page, float(sheet.lines[0].points[0, 1]), rng)
    dark = max(min(contrast, 0.92 * float(page.mean())), 45.0)
    for start, end in sheet.rules:
        strong = float(rng.uniform(0.3, 0.9)) * dark
        drawn = cv2.line(np.zeros((height, width), np.uint8), start, end, 255, int(rng.integers(1, 3)), cv2.LINE_AA)
        page -= drawn.astype(np.float32) * np.float32(strong / 255)
    pressure = 1 - np.float32(rng.uniform(0.05, 0.4)) * clouds(6, 6, cover.shape, rng)
    page -= np.float32(dark) * pressure * cover
    if spread or rng.random() < 0.15:
        fold = width / 2 if spread else float(rng.choice((0.0, width)))
        away = np.abs(np.arange(width, dtype=np.float32) - np.float32(fold)) / np.float32(0.03 * width)
        page *= 1 - np.float32(rng.uniform(0.2, 0.7)) * np.exp(-away)
    return np.asarray(page.clip(0, 255), np.uint8)
