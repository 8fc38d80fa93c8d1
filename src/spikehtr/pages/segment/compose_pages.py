"""Pages composed of drawn lines, whose baselines, heights and regions are known exactly: text with notes in the margin,
columns, tables, registers, letters, spreads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from spikehtr.data.handwriting import Gray
from spikehtr.data.synthesis.drawing import Sources
from spikehtr.data.synthesis.paper import lay_paper
from spikehtr.data.synthesis.writing import new_hand
from spikehtr.pages.segment.labels import PageLabels
from spikehtr.pages.segment.page_sheet import Box, Sheet, close_region, is_written, on_paper, put_line, put_number


@dataclass(frozen=True)
class ComposedPage:
    image: np.ndarray[tuple[int, int], np.dtype[np.uint8]]  # [height, width]
    labels: PageLabels


Layout = Callable[[Sheet, Box], None]


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
    sheet = Sheet(np.zeros((tall, wide), np.float32), paper, contrast, sources, rng, height, hand)
    halves = (Box(0, 0, 0.5 * wide, tall), Box(0.5 * wide, 0, wide, tall)) if spread else (Box(0, 0, wide, tall),)
    for half in halves:
        if len(halves) == 1 or rng.random() < 0.9:
            around = rng.uniform(0.04, 0.12, 4) * (half.width, tall, half.width, tall)
            place = Box(half.left + around[0], around[1], half.right - around[2], tall - around[3])
            drawn = layout or LAYOUTS[int(rng.choice(len(LAYOUTS), p=_SHARES))]
            drawn(sheet, place)
    image = on_paper(sheet, spread, other)
    return ComposedPage(image, PageLabels(tuple(sheet.lines), tuple(sheet.regions))), sheet.ink


def compose_many(sources: Sources, seed: int, count: int) -> Iterator[ComposedPage]:
    """Page n of a seed is always the same but for what shows through it."""
    other: Gray | None = None
    for number in range(count):
        page, other = compose(sources, np.random.default_rng([seed % 2**63, 6, number]), other)
        yield page


def _text(sheet: Sheet, place: Box) -> None:
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
        if not is_written(sheet, margin):
            _paragraphs(sheet.note(float(rng.uniform(0.7, 0.95))), margin)


def _columns(sheet: Sheet, place: Box) -> None:
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


def _table(sheet: Sheet, place: Box) -> None:
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
                put_line(sheet, left + float(rng.uniform(0, 0.2)) * h, float(row), right, float(rng.uniform(0.2, 1)))
        close_region(sheet, begun)
    if rng.random() < 0.6:
        for edge in edges if rng.random() < 0.5 else edges[1:-1]:
            sheet.rules.append(((round(edge), round(place.top - h)), (round(edge), round(place.bottom))))
    if rng.random() < 0.3:
        for row in rows:
            low = round(row + 0.35 * h)
            sheet.rules.append(((round(place.left), low), (round(place.right), low)))


def _register(sheet: Sheet, place: Box) -> None:
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
            put_line(printed, left + 0.1 * h, place.top + 0.7 * h, right - 0.1 * h, 1.0)
        for row, count, kind in entries:
            inset = float(rng.uniform(0.05, 0.25)) * h
            if number == wide:
                for line in range(count):
                    share = float(rng.uniform(0.2, 0.9)) if line == count - 1 else float(rng.uniform(0.9, 1))
                    over = 0.5 * h * (rng.random() < 0.2)  # beyond the rule
                    put_line(sheet, left + inset, row + line * pitch, right + over, share, slope)
            elif before <= number < wide:
                if kind == number - before or rng.random() < 0.1:
                    for line in range(1 if rng.random() < 0.7 else min(2, count)):
                        put_line(
                            sheet, left + inset, row + line * pitch, right + 0.2 * h, float(rng.uniform(0.5, 1)), slope
                        )
            elif rng.random() < 0.85:
                at = row if number < before else row + (count - 1) * pitch
                put_number(sheet, left + inset, at, right, slope)
        close_region(sheet, begun)
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


def _letter(sheet: Sheet, place: Box) -> None:
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


def _paragraphs(sheet: Sheet, place: Box, between: float = 0.0) -> None:
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
            put_line(sheet.note(0.6), start, row - 0.62 * pitch, place.right, float(rng.uniform(0.1, 0.5)), slope)
        above = put_line(sheet, left, row, place.right, share, slope)
        first = last
        row += pitch * (1 + float(rng.uniform(-0.05, 0.05))) + (0.7 * h if last and rng.random() < 0.3 else 0)
    close_region(sheet, begun)


LAYOUTS: tuple[Layout, ...] = (_text, _columns, _table, _register, _letter)
_SHARES = (0.35, 0.15, 0.15, 0.2, 0.15)  # of all pages
