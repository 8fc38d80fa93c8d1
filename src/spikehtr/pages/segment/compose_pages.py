"""Pages composed of drawn lines, whose baselines, heights and regions are known exactly: text with notes in the margin,
columns, tables, registers, letters, spreads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import cv2
import numpy as np
from numpy.random import Generator

from spikehtr.data.handwriting import Gray, clouds
from spikehtr.data.synthesis.drawing import Sources
from spikehtr.data.synthesis.paper import lay_paper, rule
from spikehtr.data.synthesis.writing import Hand, Written, new_hand, spelled, write
from spikehtr.pages.segment.labels import MOST, SPACING, Floats, LineLabel, PageLabels, along

INKED = 0.3  # cover from which a pixel counts as written on
DARKER = 0.7  # paper's level, as a share of the page's median, below which nobody writes: beyond the page's edge
_PAD = 0.35  # heights that a region's border keeps from its lines


@dataclass(frozen=True)
class ComposedPage:
    image: np.ndarray[tuple[int, int], np.dtype[np.uint8]]  # [height, width]
    labels: PageLabels


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
class _Sheet:
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

    def note(self, size: float) -> _Sheet:
        """The same page for another pen: everything but the hand and the height is shared."""
        font = self.sources.fonts[int(self.rng.integers(len(self.sources.fonts)))]
        font = font if self.rng.random() < 0.3 else self.hand.font
        return replace(self, height=size * self.height, hand=new_hand(font, round(size * self.height), self.rng))


Layout = Callable[[_Sheet, Box], None]


def compose(
    sources: Sources, rng: Generator, other: Gray | None = None, layout: Layout | None = None
) -> tuple[ComposedPage, Gray]:
    """A page, and the cover of its ink, which shows through the next one as `other`; of any layout, or of one."""
    height = float(np.exp(rng.uniform(np.log(22), np.log(58))))
    spread = rng.random() < 0.15
    tall = round(rng.uniform(14, 34) * height)
    wide = round(tall * (rng.uniform(1.25, 1.55) if spread else rng.uniform(0.58, 0.85)))
    font = sources.fonts[int(rng.integers(len(sources.fonts)))]
    hand = new_hand(font, round(height), rng)
    paper, contrast = lay_paper(sources.papers, tall, wide, rng, whole=True)
    sheet = _Sheet(np.zeros((tall, wide), np.float32), paper, contrast, sources, rng, height, hand)
    halves = (Box(0, 0, 0.5 * wide, tall), Box(0.5 * wide, 0, wide, tall)) if spread else (Box(0, 0, wide, tall),)
    for half in halves:
        if len(halves) == 1 or rng.random() < 0.9:
            around = rng.uniform(0.04, 0.12, 4) * (half.width, tall, half.width, tall)
            place = Box(half.left + around[0], around[1], half.right - around[2], tall - around[3])
            drawn = layout or LAYOUTS[int(rng.choice(len(LAYOUTS), p=_SHARES))]
            drawn(sheet, place)
    image = _on_paper(sheet, spread, other)
    return ComposedPage(image, PageLabels(tuple(sheet.lines), tuple(sheet.regions))), sheet.ink


def compose_many(sources: Sources, seed: int, count: int) -> Iterator[ComposedPage]:
    """Page n of a seed is always the same but for what shows through it."""
    other: Gray | None = None
    for number in range(count):
        page, other = compose(sources, np.random.default_rng([seed % 2**63, 6, number]), other)
        yield page


def _text(sheet: _Sheet, place: Box) -> None:
    """One column, with a heading, a page number, notes in the margin and words between the lines now and then."""
    rng, h = sheet.rng, sheet.height
    left = place.left
    notes = rng.random() < 0.45 and place.width > 16 * h
    if notes:
        left += place.width * float(rng.uniform(0.18, 0.3))
    top = place.top
    if rng.random() < 0.4:
        at = left + place.width * float(rng.uniform(0.05, 0.3))
        _paragraphs(sheet.note(float(rng.uniform(1, 1.4))), Box(at, top, place.right - 2 * h, top + 1.6 * h))
        top += float(rng.uniform(2, 3)) * h
    if rng.random() < 0.25:
        _paragraphs(sheet.note(0.8), Box(place.right - 2 * h, place.top - h, place.right + h, place.top + 0.2 * h))
    _paragraphs(sheet, Box(left, top, place.right, place.bottom), between=0.15)
    for _ in range(int(rng.integers(1, 5)) if notes else 0):
        high = float(rng.uniform(top, place.bottom - 3 * h))
        margin = Box(place.left, high, left - 0.6 * h, high + float(rng.uniform(1.2, 6)) * h)
        if not _covers(sheet, margin):
            _paragraphs(sheet.note(float(rng.uniform(0.7, 0.95))), margin)


def _columns(sheet: _Sheet, place: Box) -> None:
    """Two to four columns, some with a rule between them."""
    rng = sheet.rng
    count = min(int(rng.integers(2, 5)), max(1, int(place.width / (7 * sheet.height))))
    gap = float(rng.uniform(0.5, 1.6)) * sheet.height
    each = (place.width + gap) / count
    ruled = rng.random() < 0.4
    for number in range(count):
        left = place.left + number * each
        bottom = place.bottom if number < count - 1 else place.top + (place.bottom - place.top) * rng.uniform(0.3, 1)
        _paragraphs(sheet, Box(left, place.top, left + each - gap, float(bottom)))
        if ruled and number:
            at = round(left - gap / 2)
            sheet.rules.append(((at, round(place.top)), (at, round(place.bottom))))


def _table(sheet: _Sheet, place: Box) -> None:
    """A register: rows of short entries in columns of their own, some empty; a region a column."""
    rng, h = sheet.rng, sheet.height
    count = min(int(rng.integers(2, 6)), max(2, int(place.width / (5 * h))))
    shares = np.cumsum(rng.uniform(0.4, 1.6, count))
    edges = place.left + place.width * np.concatenate([[0.0], shares / shares[-1]])
    pitch = float(rng.uniform(1.1, 2.2)) * h
    rows = np.arange(place.top + h, place.bottom, pitch)
    filled = rng.uniform(0.5, 1, count)
    filled[int(rng.integers(count))] = 1
    for number in range(count):
        begun = len(sheet.lines)
        left, right = float(edges[number]) + 0.3 * h, float(edges[number + 1]) - 0.3 * h
        for row in rows:
            if rng.random() < filled[number]:
                _line(sheet, left + float(rng.uniform(0, 0.2)) * h, float(row), right, float(rng.uniform(0.2, 1)))
        _close(sheet, begun)
    if rng.random() < 0.6:
        for edge in edges if rng.random() < 0.5 else edges[1:-1]:
            sheet.rules.append(((round(edge), round(place.top - h)), (round(edge), round(place.bottom))))
    if rng.random() < 0.3:
        for row in rows:
            low = round(row + 0.35 * h)
            sheet.rules.append(((round(place.left), low), (round(place.right), low)))


def _register(sheet: _Sheet, place: Box) -> None:
    """A printed form that is filled in: narrow columns of numbers, kinds and a wide column of entries of a few lines,
    which run up to its rules and over them, all close to each other; a heading over each column. A region a column."""
    sheet = sheet.note(float(sheet.rng.uniform(0.6, 1)))
    rng, h = sheet.rng, sheet.height
    before, after = int(rng.integers(1, 3)), int(rng.integers(0, 4))
    kinds = int(rng.integers(0, 3))
    shares = [1.2 + float(rng.random()) for _ in range(before)]
    shares += [float(rng.uniform(3, 5)) for _ in range(kinds)]
    rest = place.width / h - sum(shares) - 1.6 * after
    if rest < 7:
        _table(sheet, place)
        return
    shares += [rest] + [1.6] * after
    edges = place.left + h * np.concatenate([[0.0], np.cumsum(shares)])
    top = place.top + float(rng.uniform(1.5, 3)) * h
    wide = before + kinds
    pitch = float(rng.uniform(0.75, 1.2)) * h
    entries = _entries(rng, kinds, top + 0.9 * h, place.bottom, pitch)
    printed = sheet.note(float(rng.uniform(0.4, 0.55)))
    slope = float(rng.normal(0, 0.004))
    for number in range(len(shares)):
        begun = len(sheet.lines)
        left, right = float(edges[number]), float(edges[number + 1])
        if rng.random() < 0.8:
            _line(printed, left + 0.1 * h, place.top + 0.7 * h, right - 0.1 * h, 1.0)
        for row, count, kind in entries:
            inset = float(rng.uniform(0.05, 0.25)) * h
            if number == wide:
                for line in range(count):
                    share = float(rng.uniform(0.2, 0.9)) if line == count - 1 else float(rng.uniform(0.9, 1))
                    over = 0.5 * h * (rng.random() < 0.2)  # beyond the rule
                    _line(sheet, left + inset, row + line * pitch, right + over, share, slope)
            elif before <= number < wide:
                if kind == number - before or rng.random() < 0.1:
                    for line in range(1 if rng.random() < 0.7 else min(2, count)):
                        _line(
                            sheet, left + inset, row + line * pitch, right + 0.2 * h, float(rng.uniform(0.5, 1)), slope
                        )
            elif rng.random() < 0.85:
                at = row if number < before else row + (count - 1) * pitch
                _number(sheet, left + inset, at, right, slope)
        _close(sheet, begun)
    strong = int(rng.integers(1, 3))
    for edge in edges:
        for line in range(strong if edge in (edges[0], edges[-1], edges[wide]) else 1):
            at = round(edge + line * max(3.0, 0.08 * h))
            sheet.rules.append(((at, round(place.top - 0.3 * h)), (at, round(place.bottom))))
    for row in (place.top - 0.3 * h, top - 0.2 * h):
        sheet.rules.append(((round(edges[0]), round(row)), (round(edges[-1]), round(row))))
    if rng.random() < 0.4:
        for row, *_ in entries[1:]:
            level = round(row - 0.85 * h)
            sheet.rules.append(((round(edges[wide]), level), (round(edges[wide + 1]), level)))


def _entries(rng: Generator, kinds: int, top: float, bottom: float, pitch: float) -> list[tuple[float, int, int]]:
    """Of each entry the row where it begins, how many lines it has and which column of kinds is written in."""
    found: list[tuple[float, int, int]] = []
    most = int(rng.integers(1, 6))
    apart = float(rng.uniform(0, 1)) * pitch * (rng.random() < 0.6)
    while True:
        count = int(rng.integers(1, most + 1))
        if top + count * pitch > bottom:
            return found
        found.append((top, count, int(rng.integers(max(1, kinds)))))
        top += count * pitch + apart


def _number(sheet: _Sheet, left: float, row: float, right: float, slope: float) -> None:
    """A number of one to four digits, or the sign that it is the one above, where the font has them."""
    rng = sheet.rng
    text = '"' if rng.random() < 0.15 else str(int(rng.integers(1, 10 ** int(rng.integers(1, 5)))))
    if not sheet.hand.font.characters.issuperset(text):
        return
    written = write(spelled(text, sheet.hand), sheet.hand, round(sheet.height), rng)
    room = right - left - written.cover.shape[1]
    if room > -0.3 * sheet.height:
        _put(sheet, written, round(left + float(rng.random()) * max(0.0, room)), row, slope)


def _letter(sheet: _Sheet, place: Box) -> None:
    """A date, an address, text with indents, a name below it."""
    rng, h = sheet.rng, sheet.height
    middle = place.left + place.width * float(rng.uniform(0.45, 0.6))
    _paragraphs(sheet, Box(middle, place.top, place.right, place.top + 1.2 * h))
    top = place.top + float(rng.uniform(2, 5)) * h
    _paragraphs(sheet, Box(place.left + 2 * h, top, middle + 3 * h, top + 1.2 * h))
    top += float(rng.uniform(2, 4)) * h
    bottom = top + (place.bottom - top) * float(rng.uniform(0.4, 0.85))
    _paragraphs(sheet, Box(place.left, top, place.right, bottom))
    end = bottom + float(rng.uniform(1, 3)) * h
    _paragraphs(sheet.note(float(rng.uniform(0.9, 1.3))), Box(middle, end, place.right, end + 1.2 * h))


def _paragraphs(sheet: _Sheet, place: Box, between: float = 0.0) -> None:
    """Lines from top to bottom, one region. `between`: chance of words between two lines."""
    rng, h, begun = sheet.rng, sheet.height, len(sheet.lines)
    pitch = h * float(rng.uniform(0.8, 1.5))
    indent = float(rng.uniform(0, 3)) * h if rng.random() < 0.5 else 0.0
    ragged = float(rng.uniform(0, 0.2))
    slope = float(rng.normal(0, 0.006))
    row, first, above = place.top + 0.8 * h, True, False
    while row < place.bottom:
        last = rng.random() < 0.15
        left = place.left + indent * first + float(rng.uniform(0, 0.15)) * h
        share = float(rng.uniform(0.15, 0.8)) if last else 1 - ragged * float(rng.random())
        if above and rng.random() < between:
            start = place.left + place.width * float(rng.uniform(0.1, 0.7))
            _line(sheet.note(0.6), start, row - 0.62 * pitch, place.right, float(rng.uniform(0.1, 0.5)), slope)
        above = _line(sheet, left, row, place.right, share, slope)
        first = last
        row += pitch * (1 + float(rng.uniform(-0.05, 0.05))) + (0.7 * h if last and rng.random() < 0.3 else 0)
    _close(sheet, begun)


def _line(sheet: _Sheet, left: float, row: float, right: float, share: float, slope: float = 0.0) -> bool:
    """Words from `left` over a share of the room there is; whether there was room for any."""
    room = (right - left) * share
    room = max(room, min(2 * sheet.height, right - left))
    if room < sheet.height:
        return False
    written = _fitting(sheet, room, right - left + 0.4 * sheet.height)
    if written is None:
        return False
    return _put(sheet, written, round(left), row, slope)


def _fitting(sheet: _Sheet, room: float, most: float) -> Written | None:
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


def _words(sheet: _Sheet, letters: int) -> list[str]:
    words: list[str] = []
    for _ in range(40):
        known = sheet.hand.font.characters
        words += [word for word in sheet.sources.texts.compose(sheet.rng).split() if known.issuperset(word)]
        if sum(map(len, words)) + len(words) > letters:
            break
    return words


def _put(sheet: _Sheet, written: Written, left: int, row: float, slope: float) -> bool:
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


def _close(sheet: _Sheet, begun: int) -> None:
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


def _covers(sheet: _Sheet, place: Box) -> bool:
    part = sheet.ink[max(0, int(place.top)) : int(place.bottom), max(0, int(place.left)) : int(place.right)]
    return part.size == 0 or bool((part > INKED).any())


def _on_paper(sheet: _Sheet, spread: bool, other: Gray | None) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
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


LAYOUTS: tuple[Layout, ...] = (_text, _columns, _table, _register, _letter)
_SHARES = (0.35, 0.15, 0.15, 0.2, 0.15)  # of all pages
