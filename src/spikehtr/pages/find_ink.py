"""Where there is ink on a page: paper and shadows, rulings, borders and other dark areas taken away."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]  # [h, w]
Mask = NDArray[Any]  # [h, w] bytes, 255 where there is ink, else 0; Any, since OpenCV does not say what it returns

FLOOR = 0.05  # how much darker than its paper ink must be at the least
NOISE = 2.5  # and how many times the paper's own grain
WIDE = 1.15  # width to height of a picture in which a fold is looked for
FOLD_DARK, FOLD_SHARE = 0.03, 0.8  # the fold's shadow, and over what share of the height it must be seen
FOLD_STANDS_OUT = 0.4  # by how much that share must be above what is usual around: dense writing is dark everywhere
CROOKED, MOST_RULINGS = 1.0, 400  # pixels off the straight that a ruling may be in the mean; rulings to look at
STROKE = 9  # pixels, at half size: more is no stroke
RULING = 7  # pixels that a ruling is thick at the most
UNBROKEN = 0.85  # on what share of its length it must be seen
VISIBLE = 0.25  # and on what share as dark as ink, where letters do not hide it
CLEAR = 19  # pixels across the square around a stroke in which rulings are left alone
LOCAL = 0.34  # and what share of the darkest strokes around it


def find_ink(gray: Gray) -> tuple[Mask, NDArray[np.float32], float | None]:
    """Strokes of writing: darker than the paper around, thin, neither ruling nor border.

    Returns them, how much darker than its paper each pixel is, and the x of a book's fold if there is one.
    """
    dark = _darkness(gray)
    needed = _needed(dark)
    ink = _without_solid(_mask(dark > needed))
    ink = _without_rulings(ink, _mask(dark > 0.5 * needed))
    fold = _fold(dark)
    if fold is not None:
        ink[:, round(fold[0]) : round(fold[1])] = 0
    return _without_specks(ink), dark, fold and (fold[0] + fold[1]) / 2


def find_fold(gray: Gray) -> float | None:
    """The x of a book's fold, if there is one."""
    if gray.shape[1] < WIDE * gray.shape[0]:
        return None
    fold = _fold(_darkness(gray))
    return fold and (fold[0] + fold[1]) / 2


def _fold(dark: NDArray[np.float32]) -> tuple[float, float] | None:
    """The left and right edge of the fold of an open book: a dark line from top to bottom, near the middle.

    A single page has none, so only pictures that are wider than high are searched.
    """
    height, width = dark.shape
    if width < WIDE * height:
        return None
    small = cv2.resize(dark, (width // 4, height // 4), interpolation=cv2.INTER_AREA)
    # Half a hand's breadth of tilt is allowed for; a fold stays dark for most of the way.
    shadow = cv2.dilate((small > FOLD_DARK).astype(np.uint8), np.ones((1, 5), np.uint8))
    low, high = int(0.38 * shadow.shape[1]), int(0.62 * shadow.shape[1])
    share = shadow[:, low:high].mean(0)
    best = int(share.argmax())
    if share[best] < FOLD_SHARE or share[best] - np.median(share) < FOLD_STANDS_OUT:
        return None
    pale = np.flatnonzero(share < 0.75 * share[best])
    left, right = pale[pale < best].max(initial=best - 3), pale[pale > best].min(initial=best + 3)
    return (low + max(left, best - 3) + 1) * 4.0, (low + min(right, best + 3)) * 4.0


def _darkness(gray: Gray) -> NDArray[np.float32]:
    """How much darker than its paper each pixel is, 0 to 1 of the paper's own level.

    The paper's level is what a closing (the brightest nearby) leaves, found on a small copy, since it is smooth.
    """
    small = cv2.resize(gray, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    size = max(9, max(gray.shape) // 80 | 1)
    paper = cv2.morphologyEx(small, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)))
    paper = cv2.GaussianBlur(cv2.medianBlur(paper, 5), (0, 0), size / 3)
    level = cv2.resize(paper, gray.shape[::-1], interpolation=cv2.INTER_LINEAR).astype(np.float32)
    smooth = cv2.GaussianBlur(gray, (0, 0), 0.8).astype(np.float32)
    dark: NDArray[np.float32] = np.clip((level - smooth) / np.maximum(level, 32), 0, 1)
    return dark


def _needed(dark: NDArray[np.float32]) -> NDArray[np.float32]:
    """How dark ink must be, by the strokes around: faint writing far from bold writing counts, grain does not."""
    grain = float(np.median(dark))  # most of a page is paper
    size = max(15, max(dark.shape) // 40 | 1)
    small = cv2.resize(dark, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    # Strokes alone: a dark edge or blot must not make the writing beside it look faint.
    small = cv2.morphologyEx(small, cv2.MORPH_TOPHAT, np.ones((STROKE, STROKE), np.uint8))
    darkest = cv2.dilate(small, np.ones((size, size), np.uint8))
    darkest = cv2.resize(cv2.blur(darkest, (size, size)), dark.shape[::-1], interpolation=cv2.INTER_LINEAR)
    needed: NDArray[np.float32] = np.maximum(LOCAL * darkest, max(FLOOR, NOISE * grain))
    return needed


def _mask(where: NDArray[np.bool_]) -> Mask:
    return where.astype(np.uint8) * 255


def _without_solid(ink: Mask) -> Mask:
    """Without areas that are dark all through: borders, bars, pictures, blots. Strokes are never that thick."""
    size = max(9, max(ink.shape) // 110)
    core = cv2.erode(ink, np.ones((size, size), np.uint8))
    if not core.any():
        return ink
    solid = cv2.dilate(core, np.ones((size + 8, size + 8), np.uint8))
    return cv2.bitwise_and(ink, cv2.bitwise_not(solid))


def _without_rulings(ink: Mask, faint: Mask) -> Mask:
    """Without long straight thin lines, level or upright, a little askew too; strokes across them stay whole.

    They are sought in `faint`, where less darkness counts as ink: printed rulings are pale, and broken in `ink`.
    """
    out = ink
    span = max(ink.shape) // 25
    for flat in (True, False):
        visible = _thin(ink, RULING, not flat)
        thin = cv2.bitwise_or(_thin(faint, RULING, not flat), visible)
        # A ruling that is askew comes in steps: thickened, the steps touch.
        joined = cv2.morphologyEx(cv2.dilate(thin, _bar(3, not flat)), cv2.MORPH_CLOSE, _bar(7, flat))
        found = cv2.morphologyEx(joined, cv2.MORPH_OPEN, _bar(span, flat))
        found = cv2.morphologyEx(found, cv2.MORPH_CLOSE, _bar(span, flat))
        for thickness, rulings in _drawn_straight(found, faint, ink, flat, 3 * span).items():
            # Only what is as thin as the ruling goes, and only clear of strokes: fine writing on a ruling is as thin.
            strokes = cv2.dilate(cv2.bitwise_and(ink, cv2.bitwise_not(rulings)), np.ones((CLEAR, CLEAR), np.uint8))
            gone = cv2.bitwise_and(_thin(ink, thickness + 2, not flat), rulings)
            out = cv2.bitwise_and(out, cv2.bitwise_not(cv2.bitwise_and(gone, cv2.bitwise_not(strokes))))
    return out


def _thin(mask: Mask, most: int, flat: bool) -> Mask:
    """What is at most that many pixels long in a direction."""
    return cv2.bitwise_and(mask, cv2.bitwise_not(cv2.morphologyEx(mask, cv2.MORPH_OPEN, _bar(most + 1, flat))))


def _drawn_straight(found: Mask, faint: Mask, ink: Mask, flat: bool, length: int) -> dict[int, Mask]:
    """Those of the lines that are long, straight and unbroken, by thickness.

    Each is drawn across the whole page: it goes on under the writing.
    """
    _, labels, stats, _ = cv2.connectedComponentsWithStats(found, connectivity=8)
    out: dict[int, Mask] = {}
    for number in np.flatnonzero(stats[:, cv2.CC_STAT_WIDTH if flat else cv2.CC_STAT_HEIGHT] >= length)[:MOST_RULINGS]:
        if number == 0:
            continue
        x, y, width, height = (int(value) for value in stats[number, :4])
        ys, xs = np.nonzero(labels[y : y + height, x : x + width] == number)
        along, across = (xs + x, ys + y) if flat else (ys + y, xs + x)
        where, position = np.unique(along, return_inverse=True)
        middle = np.bincount(position, across) / np.bincount(position)
        slope, offset = np.polyfit(where, middle, 1)
        if np.abs(middle - offset - slope * where).mean() > CROOKED:
            continue
        rows = (offset + slope * where).round().astype(np.int64)[:, None] + np.arange(-4, 5)
        rows = np.clip(rows, 0, found.shape[0 if flat else 1] - 1)
        columns = where[:, None]
        around, dark = ((mask[rows, columns] if flat else mask[columns, rows]) > 0 for mask in (faint, ink))
        # Letters and leader dots on a pale ruling do not make it dark: only what is drawn through, and evenly thick.
        through = cv2.morphologyEx(_mask(dark[:, 3:6].any(1))[None], cv2.MORPH_OPEN, _bar(CLEAR, True))[0] > 0
        if around[:, 3:6].any(1).mean() < UNBROKEN or not through.any():
            continue
        thick = dark.sum(1)
        thickness = int(np.bincount(thick[through]).argmax())
        even = through & (np.abs(thick - thickness) <= 1)
        if through.mean() < UNBROKEN and even.mean() < VISIBLE:
            continue
        end = found.shape[1 if flat else 0] - 1
        start, stop = (0, round(offset)), (end, round(offset + slope * end))
        canvas = out.setdefault(thickness, np.zeros_like(found))
        cv2.line(canvas, start if flat else start[::-1], stop if flat else stop[::-1], 255, thickness + 3)
    return out


def _bar(length: int, flat: bool) -> NDArray[np.uint8]:
    return np.ones((1, length) if flat else (length, 1), np.uint8)


def _without_specks(ink: Mask) -> Mask:
    _, labels, stats, _ = cv2.connectedComponentsWithStats(ink, connectivity=8)
    keep = stats[:, cv2.CC_STAT_AREA] >= 8
    keep[0] = False
    return _mask(keep[labels])
