"""Pages as people have them, made of plain scans with exact baselines: photographed, turned, cut to landscape.

A test set of its own: nothing here is shared with the distortions of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.quarter_turns import as_it_lies

Gray = NDArray[np.uint8]
Line = NDArray[np.float64]  # [n, 2]
View = Literal["plain", "photo", "turned", "cropped"]
VIEWS: tuple[View, ...] = get_args(View)
TILT, CORNER, MARGIN = 5.0, 0.06, (0.04, 0.14)  # degrees, shares of the longer side
INSIDE = 0.9  # share of a line that must be left of it after cropping; of what is cut, nothing is asked
LANDSCAPE = 1.35  # width to height of what is cropped


class SeenPage(NamedTuple):
    """A page as it is shown to a segmenter."""

    image: Gray
    lines: list[Line]
    turns: int  # quarter turns clockwise that it lies


def views(image: Gray, lines: Sequence[Line], view: View, seed: int) -> list[SeenPage]:
    """A page in one of the ways: one picture, three of one that is turned."""
    if view == "turned":
        return [turned(image, lines, turns) for turns in (1, 2, 3)]
    if view == "photo":
        return [photographed(image, lines, np.random.default_rng(seed))]
    if view == "cropped":
        return [cropped(image, lines, np.random.default_rng(seed))]
    return [SeenPage(image, list(lines), 0)]


def turned(image: Gray, lines: Sequence[Line], turns: int) -> SeenPage:
    lying = np.ascontiguousarray(np.rot90(image, -turns))
    return SeenPage(lying, [as_it_lies(line, turns, lying.shape) for line in lines], turns)


def cropped(image: Gray, lines: Sequence[Line], random: np.random.Generator) -> SeenPage:
    """A part of a page that is wider than high, as of a book photographed page by page."""
    height, width = image.shape
    tall = min(height, round(width / LANDSCAPE))
    top = int(random.integers(0, height - tall + 1))
    kept = [line - (0, top) for line in lines if np.mean((line[:, 1] >= top) & (line[:, 1] < top + tall)) >= INSIDE]
    return SeenPage(np.ascontiguousarray(image[top : top + tall]), kept, 0)


def photographed(image: Gray, lines: Sequence[Line], random: np.random.Generator) -> SeenPage:
    """On a table, a little askew and from aside, shaded, with a little blur and noise, as a JPEG file."""
    matrix, width, height = _camera(image.shape, random)
    table = _table(height, width, random)
    page = np.asarray(cv2.warpPerspective(image, matrix, (width, height), flags=cv2.INTER_AREA), np.float32)
    cover = cv2.warpPerspective(np.full_like(image, 255), matrix, (width, height)).astype(np.float32) / 255
    shadow = cv2.GaussianBlur(np.roll(cover, (round(0.008 * height), round(0.008 * width)), (0, 1)), (0, 0), 9)
    under = table * (1 - 0.6 * shadow)
    seen = under * (1 - cover) + page * cover
    seen *= _shade(height, width, random)
    seen = np.asarray(cv2.GaussianBlur(seen, (0, 0), random.uniform(0.3, 0.8)), np.float64)
    seen += random.normal(0, random.uniform(1.5, 5), seen.shape)
    _, packed = cv2.imencode(".jpg", seen.clip(0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 70])
    moved = [np.asarray(cv2.perspectiveTransform(line[None], matrix)[0], np.float64) for line in lines]
    return SeenPage(np.asarray(cv2.imdecode(packed, cv2.IMREAD_GRAYSCALE), np.uint8), moved, 0)


def _camera(shape: tuple[int, ...], random: np.random.Generator) -> tuple[NDArray[np.float64], int, int]:
    """The matrix from the page to the photograph, and the photograph's width and height: all of the page is on it."""
    height, width = shape
    longer = max(height, width)
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)
    angle = np.deg2rad(random.uniform(-TILT, TILT))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = corners @ turn.T + random.uniform(-0.5, 0.5, (4, 2)) * CORNER * longer
    low = moved.min(0) - random.uniform(*MARGIN, 2) * longer
    high = moved.max(0) + random.uniform(*MARGIN, 2) * longer
    matrix = cv2.getPerspectiveTransform(corners.astype(np.float32), (moved - low).astype(np.float32))
    wide, tall = np.ceil(high - low).astype(int)
    return np.asarray(matrix, np.float64), int(wide), int(tall)


def _table(height: int, width: int, random: np.random.Generator) -> NDArray[np.float32]:
    """What the page lies on: dark mostly, with grain along it as wood has, or cloth without."""
    level = random.uniform(15, 70) if random.random() < 0.8 else random.uniform(90, 170)
    coarse = random.normal(0, 1, (max(2, height // 12), max(2, width // 200))).astype(np.float32)
    grain = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    if random.random() < 0.5:
        grain = cv2.resize(np.ascontiguousarray(grain.T), (width, height))
    return np.asarray(level * (1 + random.uniform(0, 0.25) * grain), np.float32)


def _shade(height: int, width: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Light from one side, and the soft shadow of a hand or a head."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    angle = random.uniform(0, 2 * np.pi)
    light = 1 + random.uniform(0, 0.25) * (np.cos(angle) * x + np.sin(angle) * y)
    across = random.uniform(0, 2 * np.pi)
    edge = (np.cos(across) * x + np.sin(across) * y - random.uniform(-0.3, 0.8)) / random.uniform(0.05, 0.4)
    return np.asarray(light * (1 - random.uniform(0, 0.35) / (1 + np.exp(-4 * edge))), np.float32)
