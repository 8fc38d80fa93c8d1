"""Parts of pages for training: cut out at random, turned, tilted, bent and scaled, with the targets drawn to match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.pages.segment.draw_labels import Targets, draw
from spikehtr.pages.segment.labels import Floats, PageLabels

LEVELS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.175)  # copies of each page, so that what is cut from one is scaled by little
Gray = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Distortion:
    """How parts are cut. Chances are of one part; angles in degrees."""

    heights: tuple[float, float] = (14.0, 52.0)  # pixels of the page's median line in the part, log-uniform
    overview: float = 0.2  # chance of the whole page at once, as the first look at a page has it
    overview_pixels: float = 350_000.0
    tilt: float = 3.0  # standard deviation
    steep: float = 0.15  # chance of a tilt up to `most_tilt`
    most_tilt: float = 17.0
    stretch: float = 0.12  # standard deviation of the logarithm of the ratio of width to height
    perspective: float = 0.06  # how far the corners of a part are moved at most, as a share of its side
    bend: float = 0.4  # chance
    turned: float = 0.4  # chance of a quarter turn, or two or three
    rules: float = 0.2  # chance of rules drawn over the part
    blank: float = 0.04  # chance of paper without writing, ruled mostly


class PartSource(NamedTuple):
    """A page to cut from."""

    levels: list[Gray]  # the page at LEVELS
    labels: PageLabels


class PagePart(NamedTuple):
    image: Gray  # [H, W]
    targets: Targets
    upright: bool  # whether baselines, ends and borders are to be learned from it: not from what is upside down


def source_of(image: Gray, labels: PageLabels) -> PartSource:
    sizes = [tuple(max(8, round(side * level)) for side in image.shape[::-1]) for level in LEVELS]
    levels = [np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8) for size in sizes]
    return PartSource(levels, labels)


class Bend(NamedTuple):
    """Waves down and along the page; undone exactly."""

    swing: Floats  # [2]: pixels, vertical and horizontal
    length: Floats  # [2]: pixels
    phase: Floats  # [2]

    def forward(self, points: Floats) -> Floats:
        x, y = points.T
        y = y + self._wave(0, x)
        return np.stack([x + self._wave(1, y), y], 1)

    def backward(self, points: Floats) -> Floats:
        x, y = points.T
        x = x - self._wave(1, y)
        return np.stack([x, y - self._wave(0, x)], 1)

    def _wave(self, which: int, at: Floats) -> Floats:
        wave: Floats = self.swing[which] * np.sin(at * (2 * np.pi / self.length[which]) + self.phase[which])
        return wave


def cut(source: PartSource, size: int, random: np.random.Generator, how: Distortion) -> PagePart:
    """A part of `size` x `size` pixels."""
    if random.random() < how.blank:
        return _blank(size, random)
    turns = int(random.integers(1, 4)) if random.random() < how.turned else 0
    overview = bool(random.random() < how.overview)
    scale = _scale(source, size, random, how, overview)
    matrix = _matrix(source, size, scale, turns, overview, random, how)
    bend = _bend(random, scale) if random.random() < how.bend else None

    def move(points: Floats) -> Floats:
        bent = bend.forward(points) if bend else points
        flat = np.concatenate([bent, np.ones((len(bent), 1))], 1) @ matrix.T
        moved: Floats = flat[:, :2] / flat[:, 2:]
        return moved

    image = _resample(source, size, scale, np.asarray(np.linalg.inv(matrix), np.float64), bend, random)
    if random.random() < how.rules:
        _draw_rules(image, random)
    return PagePart(image, draw(source.labels, move, size, size), turns != 2)


def _blank(size: int, random: np.random.Generator) -> PagePart:
    """Paper: what is ruled or squared and empty has no lines."""
    image = np.full((size, size), random.integers(90, 250), np.uint8)
    for _ in range(int(random.integers(0, 3))):
        _draw_rules(image, random)
    return PagePart(image, draw(PageLabels((), ()), lambda points: points, size, size), True)


def _scale(source: PartSource, size: int, random: np.random.Generator, how: Distortion, overview: bool) -> float:
    height, width = source.levels[0].shape
    if overview or not source.labels.lines:
        return float(np.sqrt(how.overview_pixels / (height * width)) * np.exp(random.uniform(-0.3, 0.3)))
    low, high = np.log(how.heights)
    return float(np.clip(np.exp(random.uniform(low, high)) / source.labels.height, LEVELS[-1] / 1.5, 1.7))


def _matrix(
    source: PartSource,
    size: int,
    scale: float,
    turns: int,
    overview: bool,
    random: np.random.Generator,
    how: Distortion,
) -> Floats:
    """From (bent) pixels of the page to pixels of the part."""
    height, width = source.levels[0].shape
    centre = random.uniform((0, 0), (width, height))
    if overview:
        centre = np.array([width, height]) * random.uniform(0.4, 0.6, 2)
    elif source.labels.lines and random.random() < 0.8:
        line = source.labels.lines[int(random.integers(len(source.labels.lines)))]
        reach = 0.35 * size / scale
        centre = line.points[int(random.integers(len(line.points)))] + random.uniform(-reach, reach, 2)
    if not overview:  # most of the part is page
        inset = np.minimum(random.uniform(0.1, 0.45, 2) * size / scale, np.array([width, height]) / 2)
        centre = np.clip(centre, inset, np.array([width, height]) - inset)
    tilt = random.uniform(-how.most_tilt, how.most_tilt) if random.random() < how.steep else random.normal(0, how.tilt)
    angle = np.deg2rad(np.clip(tilt, -how.most_tilt, how.most_tilt) + 90 * turns)
    ratio = np.exp(np.clip(random.normal(0, how.stretch), -0.3, 0.3) / 2)
    sides = np.diag([scale * ratio, scale / ratio])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = np.eye(3)
    linear[:2, :2] = turn @ sides
    linear[:2, 2] = size / 2 - linear[:2, :2] @ centre
    corners = np.array([[0, 0], [size, 0], [size, size], [0, size]], np.float32)
    moved = corners + random.uniform(-1, 1, (4, 2)).astype(np.float32) * size * how.perspective * random.random()
    return np.asarray(cv2.getPerspectiveTransform(corners, moved.astype(np.float32)) @ linear, np.float64)


def _bend(random: np.random.Generator, scale: float) -> Bend:
    lengths = random.uniform(500, 2500, 2) / scale
    return Bend(lengths * random.uniform(0, 0.025, 2), lengths, random.uniform(0, 2 * np.pi, 2))


def _resample(
    source: PartSource, size: int, scale: float, inverse: Floats, bend: Bend | None, random: np.random.Generator
) -> Gray:
    """The part's pixels, from the copy of the page that is nearest in scale."""
    best = int(np.argmin([abs(np.log(scale / level)) for level in LEVELS]))
    level = source.levels[best]
    shrink = np.array(level.shape[::-1]) / np.array(source.levels[0].shape[::-1])
    if random.random() < 0.4:
        border, value = cv2.BORDER_REPLICATE, 0
    else:  # what the page lies on
        border, value = (
            cv2.BORDER_CONSTANT,
            int(random.integers(0, 256) if random.random() < 0.5 else random.integers(0, 60)),
        )
    if bend is None:
        to_level = np.diag([*shrink, 1.0]) @ inverse
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(
            cv2.warpPerspective(level, to_level, (size, size), flags=flags, borderMode=border, borderValue=value)
        )
    grid = np.arange(0, size + 8, 8, dtype=np.float64)  # smooth enough to be computed for every eighth pixel
    x, y = np.meshgrid(grid, grid)
    flat = np.stack([x.ravel(), y.ravel(), np.ones(x.size)], 1) @ inverse.T
    places = bend.backward(flat[:, :2] / flat[:, 2:]) * shrink
    coarse = places.reshape(len(grid), len(grid), 2).astype(np.float32)
    step = np.arange(size, dtype=np.float32) / 8
    at_x, at_y = np.meshgrid(step, step)
    dense_x, dense_y = cv2.split(cv2.remap(coarse, at_x, at_y, cv2.INTER_LINEAR))
    return np.asarray(cv2.remap(level, dense_x, dense_y, cv2.INTER_LINEAR, borderMode=border, borderValue=value))


def _draw_rules(image: Gray, random: np.random.Generator) -> None:
    """Printed rules, as of a form or ruled paper: they are no baselines."""
    size = image.shape[0]
    shade = int(np.clip(np.median(image) * random.uniform(0.3, 0.9), 0, 255))
    thickness = int(random.integers(1, 3))
    slope = random.normal(0, 0.01) * size
    if random.random() < 0.5:
        places: Sequence[float] = np.arange(random.uniform(0, 40), size, random.uniform(14, 60)).tolist()
    else:
        places = random.uniform(0, size, int(random.integers(1, 5))).tolist()
    upright = random.random() < 0.5
    for place in places:
        ends = [(0, round(place)), (size - 1, round(place + slope))]
        first, last = [(b, a) for a, b in ends] if upright else ends
        cv2.line(image, first, last, shade, thickness, cv2.LINE_AA)
