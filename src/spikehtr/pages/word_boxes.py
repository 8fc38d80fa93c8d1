"""Where words and characters stand on the page: the recogniser says about where along the line, the ink says exactly.

A CTC network fires at one place in a character, so its columns tell the order and the middle of characters, not their
width. Words are parted where there is least ink between them, strokes go to the word that holds most of them, and a
word's box is the box around its strokes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from spikehtr.data.formats.outlines import Box, bounds
from spikehtr.data.straightening import grey_levels

_DARK = 0.35  # of the darkest ink: what is darker is a stroke
_CONTRAST = 24  # grey levels between ink and paper; with less there is nothing to go by
_SPECK = 4  # pixels: less is no stroke
_WHOLE = 0.8  # share of a stroke within one word from which all of it is that word's
_REACH = 1.0  # heights of the line from a word's columns to its own strokes, at the most
_ROUND = 15  # pixels of a blur along the line: between words without a gap the thinnest place is looked for in it

Span = tuple[float, float]  # columns [x0, x1)


class LineInk(NamedTuple):
    """The strokes of a line that was cut out of a page at (left, top); a bit a pixel, since many lines wait at once."""

    bits: NDArray[np.uint8]
    width: int
    left: int
    top: int

    @classmethod
    def of(cls, line: Image.Image, left: int, top: int) -> LineInk:
        gray = np.asarray(line.convert("L"))
        paper, dark = grey_levels(gray, 0.5, 0.02)
        strokes = gray < paper - _DARK * (paper - dark) if paper - dark >= _CONTRAST else np.zeros_like(gray, bool)
        return cls(np.packbits(strokes, axis=1), gray.shape[1], left, top)

    def strokes(self) -> NDArray[np.bool_]:
        """[h, w]"""
        return np.unpackbits(self.bits, axis=1, count=self.width).astype(bool)


def place_characters(
    ink: LineInk, outline: Sequence[tuple[float, float]], words: Sequence[Sequence[Span]]
) -> list[list[Box]]:
    """The boxes on the page of the characters of each word, given the columns of the cut line where each was read.

    The boxes of a word's characters lie side by side and fill the box around its strokes. `outline`: the line's
    polygon on the page. A word without any ink gets its columns of the outline.
    """
    if not words:
        return []
    columns = [(min(x0 for x0, _ in word), max(x1 for _, x1 in word)) for word in words]
    tops, bottoms = _share_out(ink.strokes(), columns, _REACH * _thickness(outline))
    middles = [[(a + b) / 2 for a, b in word] for word in words]
    out = _slices(tops, bottoms, middles)
    for number, ((x0, x1), boxes) in enumerate(zip(columns, out, strict=True)):
        if boxes:
            out[number] = [(a + ink.left, b + ink.top, c + ink.left, d + ink.top) for a, b, c, d in boxes]
        else:
            left, _, right, _ = bounds(outline)
            a, c = (min(max(x + ink.left, left), right) for x in (x0, x1))
            out[number] = _side_by_side(slice_box(outline, a, c), [x + ink.left for x in middles[number]])
    return out


def _thickness(outline: Sequence[tuple[float, float]]) -> float:
    """The mean height of an outline: of a sloping line much less than that of its box."""
    left, top, right, bottom = bounds(outline)
    area = float(cv2.contourArea(np.array(outline, np.float32)))
    return area / (right - left) if area > 0 and right > left else bottom - top


def _share_out(
    strokes: NDArray[np.bool_], columns: Sequence[Span], reach: float
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Of each word [W, w], in each column: the row in which its ink begins, and the one past that in which it ends.

    Where it has none: the height of the line, and 0.
    """
    count, labels, stats, _ = cv2.connectedComponentsWithStats(strokes.astype(np.uint8), connectivity=8)
    large = stats[:, cv2.CC_STAT_AREA] >= _SPECK
    large[0] = False
    ys, xs = np.nonzero(large[labels])
    parts = labels[ys, xs]
    order = sorted(range(len(columns)), key=lambda word: sum(columns[word]))
    profile = np.bincount(xs, minlength=strokes.shape[1])
    cuts = [_part(profile, columns[one][1], columns[other][0]) for one, other in itertools.pairwise(order)]
    zone = np.searchsorted(np.maximum.accumulate(cuts), xs, "right") if cuts else np.zeros_like(xs)
    tally = np.bincount(parts * len(order) + zone, minlength=count * len(order)).reshape(count, len(order))
    whole = tally.max(1) >= _WHOLE * tally.sum(1)
    owner = np.array(order)[np.where(whole[parts], tally.argmax(1)[parts], zone)]
    starts, ends = np.array(columns).T
    near = (xs >= starts[owner] - reach) & (xs < ends[owner] + reach)
    owner, xs, ys = owner[near], xs[near], ys[near]
    tops = np.full((len(columns), strokes.shape[1]), strokes.shape[0], np.int32)
    bottoms = np.zeros_like(tops)
    places = owner * strokes.shape[1] + xs
    # What is written last stays. (Copies: the library may go through views that run backwards in either order.)
    tops.reshape(-1)[places[::-1].copy()] = ys[::-1].copy()
    bottoms.reshape(-1)[places] = ys + 1
    return tops, bottoms


def _part(profile: NDArray[np.intp], end: float, start: float) -> float:
    """The column between two words, of which one is read up to `end` and the next from `start`: the middle of the
    widest gap in the ink, or the thinnest place where there is none."""
    first, last = max(0, round(end)), min(len(profile), round(start))
    if last - first < 1:
        return (end + start) / 2
    empty = np.zeros(last - first + 2, bool)
    empty[1:-1] = profile[first:last] == 0
    turns = np.flatnonzero(empty[1:] != empty[:-1])  # where gaps begin and end
    if len(turns):
        gaps = turns.reshape(-1, 2)
        widest = gaps[np.argmax(gaps[:, 1] - gaps[:, 0])]
        return first + float(widest.mean())
    smooth = np.convolve(profile, np.hanning(_ROUND + 2)[1:-1], "same")[first:last]
    return first + float(np.argmin(smooth))


def _slices(tops: NDArray[np.int32], bottoms: NDArray[np.int32], middles: Sequence[Sequence[float]]) -> list[list[Box]]:
    """Each word's box cut between its characters' middles, each part as high as the ink in it. None: without ink."""
    width = tops.shape[1]
    inked = bottoms > 0
    firsts, lasts = inked.argmax(1).tolist(), (width - inked[:, ::-1].argmax(1)).tolist()
    highest, lowest = tops.min(1).tolist(), bottoms.max(1).tolist()
    out: list[list[Box]] = []
    ends: list[int] = []  # of each part in turn, in a row of all words with one column between them: left, right
    for word, is_inked in enumerate(np.any(inked, axis=1).tolist()):
        whole = (float(firsts[word]), float(highest[word]), float(lasts[word]), float(lowest[word]))
        boxes = _side_by_side(whole, middles[word]) if is_inked else []
        out.append(boxes)
        start = word * (width + 1)
        # Of a part without a column the library gives its first one: such a part has no ink.
        ends += [start + int(edge) for box in boxes for edge in (min(box[0], whole[2] - 1), box[2])]
    if not ends:
        return out
    padded = np.pad(tops, ((0, 0), (0, 1))).ravel(), np.pad(bottoms, ((0, 0), (0, 1))).ravel()
    high = iter(np.minimum.reduceat(padded[0], ends)[::2].tolist())
    low = iter(np.maximum.reduceat(padded[1], ends)[::2].tolist())
    return [[_at_ink(box, next(high), next(low)) for box in boxes] for boxes in out]


def _at_ink(box: Box, top: int, bottom: int) -> Box:
    """A part of a word at the ink in it, if it has a column and any."""
    left, _, right, _ = box
    return (left, float(top), right, float(bottom)) if right > left and bottom > 0 else box


def _side_by_side(box: Box, middles: Sequence[float]) -> list[Box]:
    """A box cut half way between characters, in whichever direction they run."""
    left, top, right, bottom = box
    order = sorted(range(len(middles)), key=middles.__getitem__)
    halves = [(middles[a] + middles[b]) / 2 for a, b in itertools.pairwise(order)]
    edges = [left, *(float(min(max(round(half), left), right)) for half in halves), right]
    out: list[Box] = [box] * len(middles)
    for place, character in enumerate(order):
        out[character] = (edges[place], top, edges[place + 1], bottom)
    return out


def slice_box(polygon: Sequence[tuple[float, float]], x0: float, x1: float) -> Box:
    """The box around the part of a polygon between two columns; the whole height where that part is empty."""
    ys = [y for x, y in polygon if x0 <= x <= x1]
    for (ax, ay), (bx, by) in zip(polygon, [*polygon[1:], polygon[0]], strict=True):
        for x in (x0, x1):
            if min(ax, bx) <= x <= max(ax, bx) and ax != bx:
                ys.append(ay + (by - ay) * (x - ax) / (bx - ax))
    if not ys:
        ys = [y for _, y in polygon]
    return x0, min(ys), x1, max(ys)
