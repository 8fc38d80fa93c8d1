"""What a line is written on: paper lifted from real lines, or made; ruled, shone through, cut along its neighbours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from spikehtr.data.handwriting import Gray, clouds

Pixels = NDArray[np.uint8]
_PEN = 17  # pixels, wider than a stroke of a line 64 pixels high
_NARROWEST = 48  # pixels of paper worth keeping


@dataclass(frozen=True)
class Paper:
    """A piece of real paper [h, w] without its ink, and how much darker than it the ink was."""

    tile: Pixels
    contrast: float


def lift_papers(lines: Iterable[Pixels], seed: int) -> list[Paper]:
    """The paper of real lines [h, w]. Those without ink, or with hardly any paper, are passed over."""
    rng = np.random.default_rng([seed % 2**63, 3])
    found = (lift_paper(line, rng) for line in lines if line.shape[1] >= _NARROWEST)
    return [paper for paper in found if paper is not None]


def lift_paper(line: Pixels, rng: Generator) -> Paper | None:
    """Ink is what is darker than the brightest nearby; in its place come the paper's level there and its grain."""
    window = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (_PEN, _PEN))
    level = cv2.GaussianBlur(cv2.morphologyEx(line, cv2.MORPH_CLOSE, window), (0, 0), _PEN / 3).astype(np.float32)
    rest = line - level
    typical = float(np.median(rest))
    spread = float(np.median(np.abs(rest - typical))) * 1.5 + 1
    ink = rest < typical - max(10.0, 4 * spread)
    share = float(ink.mean())
    if not 0.003 < share < 0.35:
        return None
    contrast = float(-np.percentile(rest[ink], 15))
    near = cv2.dilate(ink.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
    if near.mean() > 0.7:
        return None
    grain = rest[~near]
    rest[near] = typical
    # The grain of elsewhere on the same paper: what is under the ink cannot be seen.
    moved = np.roll(rest, int(rng.integers(line.shape[1])), axis=1)
    rest[near] = np.where(moved[near] == typical, rng.choice(grain, int(near.sum())), moved[near])
    return Paper((level + rest).clip(0, 255).astype(np.uint8), contrast)


def lay_paper(papers: list[Paper], height: int, width: int, rng: Generator, whole: bool = False) -> tuple[Gray, float]:
    """Paper [height, width] and how much darker ink on it is: real, where there is any, or made.

    A real line's paper is as high, and begun anywhere; a `whole` page's is stretched to its size.
    """
    if not papers or rng.random() < 0.25:
        return made_paper(height, width, rng), float(rng.uniform(70, 210))
    paper = papers[int(rng.integers(len(papers)))]
    size = (width, height) if whole else (max(_NARROWEST, paper.tile.shape[1] * height // len(paper.tile)), height)
    tile = paper.tile
    if tile.shape != size[::-1]:
        tile = np.asarray(cv2.resize(tile, size), np.uint8)
    tile = tile[:: int(rng.choice((-1, 1))), :: int(rng.choice((-1, 1)))]
    start = 0 if whole else int(rng.integers(tile.shape[1]))
    tile = np.pad(tile, ((0, 0), (0, max(0, start + width - tile.shape[1]))), mode="symmetric")
    laid = tile[:, start : start + width].astype(np.float32)
    laid *= np.float32(rng.uniform(0.85, 1.1))
    return laid, paper.contrast * float(rng.uniform(0.8, 1.5))


def made_paper(height: int, width: int, rng: Generator) -> Gray:
    """Paper of one level with shading and spots."""
    paper = np.full((height, width), rng.uniform(150, 252), np.float32)
    paper += np.linspace(rng.uniform(-12, 6), rng.uniform(-12, 6), width, dtype=np.float32)
    paper += np.linspace(rng.uniform(-6, 4), rng.uniform(-6, 4), height, dtype=np.float32)[:, None]
    paper += (clouds(height // 3, width // 3, paper.shape, rng) - 0.5) * np.float32(rng.uniform(2, 16))
    return paper


def rule(paper: Gray, baseline: float, rng: Generator) -> None:
    """Ruled lines, in place: one below the writing, a narrow ruling, or squares."""
    height, width = paper.shape
    depth = np.float32(rng.uniform(8, 50))
    kind = rng.random()
    gap = float(rng.uniform(0.16, 0.45) * height) if kind > 0.5 else 2.0 * height
    tilt = rng.normal(0, 0.004)
    x = np.arange(width, dtype=np.float32)
    row = baseline + rng.uniform(-1, 4) - gap * np.floor((baseline + 4) / gap)
    while row < height:
        places = np.float32(row) + x * np.float32(tilt)
        for offset in range(2):  # a line about one pixel strong, shared out over two rows
            rows = np.floor(places).astype(np.int64) + offset
            share = 1 - np.abs(places - rows)
            inside = (rows >= 0) & (rows < height)
            paper[rows[inside], np.flatnonzero(inside)] -= depth * share[inside]
        row += gap
    if kind > 0.8:
        paper[:, int(rng.integers(max(1, int(gap)))) :: max(4, round(gap))] -= depth * np.float32(0.8)


def shine_through(paper: Gray, other: Gray, rng: Generator) -> None:
    """The writing of the other side of the sheet, in place: another line's cover in [0, 1], mirrored and faint."""
    height, width = paper.shape
    mirrored = np.roll(other[:, ::-1], int(rng.integers(-height // 2, height // 2)), axis=0)[:, :width]
    blurred = cv2.GaussianBlur(mirrored, (0, 0), float(rng.uniform(0.8, 2.0)))
    start = int(rng.integers(max(1, width - blurred.shape[1] + 1)))
    paper[:, start : start + blurred.shape[1]] -= blurred * np.float32(rng.uniform(8, 45))


def add_neighbour(cover: Gray, other: Gray, above: bool, rng: Generator) -> None:
    """What reaches in from the line above or below, in place: the last or first rows of another line's cover."""
    height, width = cover.shape
    rows = int(rng.integers(3, max(4, height // 5)))
    start = int(rng.integers(max(1, other.shape[1] - width // 2)))
    inked = np.flatnonzero(other.max(axis=1) > 0.2)
    if not len(inked):
        return
    part = other[max(0, inked[-1] + 1 - rows) : inked[-1] + 1] if above else other[inked[0] : inked[0] + rows]
    part = part[:, start : start + width]
    place = cover[: len(part)] if above else cover[height - len(part) :]
    np.maximum(place[:, : part.shape[1]], part, out=place[:, : part.shape[1]])


def cut_outline(page: Gray, cover: Gray, rng: Generator) -> None:
    """What lies outside of a wavy outline round the ink takes the paper's level, in place, as in lines cut from pages.

    The outline may come close to the ink, and cut what reaches in from the neighbours, but spares the line's own rows.
    """
    height, width = page.shape
    inked = np.flatnonzero(cover.max(axis=1) > 0.3)
    if not len(inked):
        return
    knots = max(2, width // 60)
    rows = np.arange(height, dtype=np.float32)[:, None]
    top = clouds(1, knots, (1, width), rng) * np.float32(max(0, inked[0] - 1))
    bottom = height - clouds(1, knots, (1, width), rng) * np.float32(max(0, height - 2 - inked[-1]))
    page[(rows < top) | (rows >= bottom)] = np.median(page)
