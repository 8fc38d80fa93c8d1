"""Lines drawn one after the other, as the pages of a few writers: part n of a seed is always the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
from numpy.random import Generator

from spikehtr.data.handwriting import Font, Gray, clouds
from spikehtr.data.synthesis.paper import (
    Paper,
    Pixels,
    add_neighbour,
    cut_outline,
    lay_paper,
    rule,
    shine_through,
)
from spikehtr.data.synthesis.texts import Texts, flat
from spikehtr.data.synthesis.writing import RAISED, new_hand, spelled, write

HAND_LINES = 64  # lines of one writer in a row: its letters are then at hand
_TRIES = 12  # texts that are tried with a font that lacks some character
_GRAIN = np.random.default_rng(0).standard_normal(1 << 20, np.float32)  # a window of it serves as a line's noise


@dataclass(frozen=True)
class Sources:
    """What lines are made of."""

    texts: Texts
    fonts: list[Font]
    papers: list[Paper]
    height: int = 64


class DrawnLine(NamedTuple):
    pixels: Pixels  # [height, w]
    text: str
    font: str


def draw_part(sources: Sources, seed: int, part: int, count: int) -> tuple[list[DrawnLine], Counter[str]]:
    """`count` lines of part `part`, fewer where some could not be drawn; and why texts or lines were passed over."""
    rng = np.random.default_rng([seed % 2**63, 4, part])
    lines: list[DrawnLine] = []
    skipped: Counter[str] = Counter()
    before: list[Gray] = []  # what the writer wrote last, which is what shows through and reaches in
    for number in range(count):
        if number % HAND_LINES == 0:
            hand = new_hand(sources.fonts[int(rng.integers(len(sources.fonts)))], sources.height, rng)
        text = _drawable(sources.texts, hand.font, rng, skipped)
        if not text:
            skipped["no text that the font can draw"] += 1
            continue
        cover, baseline, _ = write(spelled(text, hand), hand, sources.height, rng)
        if cover.max() < 0.3:
            skipped["no ink left of the text"] += 1
            continue
        lines.append(
            DrawnLine(lay_on_paper(cover, baseline, before, sources.papers, rng), flat(text), hand.font.path.stem)
        )
        before = [cover, *before[:2]]
    return lines, skipped


def _drawable(texts: Texts, font: Font, rng: Generator, skipped: Counter[str]) -> str:
    """A text with no character that the font lacks; empty where none was found."""
    for _ in range(_TRIES):
        text = texts.compose(rng)
        if font.characters.issuperset(text.replace(RAISED, "")):
            return text
        skipped["characters that the font lacks"] += 1
    return ""


def lay_on_paper(cover: Gray, baseline: float, before: list[Gray], papers: list[Paper], rng: Generator) -> Pixels:
    """A line's cover [h, w], with what may be round it, behind it and on it: grey pixels [h, w]."""
    height, width = cover.shape
    own = cover
    if before and rng.random() < 0.35:
        cover = cover.copy()
        for above in (True, False):
            if rng.random() < 0.6:
                add_neighbour(cover, before[int(rng.integers(len(before)))], above, rng)
    page, contrast = lay_paper(papers, height, width, rng)
    if before and rng.random() < 0.15:
        shine_through(page, before[0], rng)
    if rng.random() < 0.2:
        rule(page, baseline, rng)
    weak = np.float32(rng.uniform(0.05, 0.5))
    pressure = 1 - weak * clouds(3, max(2, width // 40), cover.shape, rng)
    dark = min(contrast, 0.92 * float(page.mean()))
    page -= np.float32(max(dark, 45.0)) * pressure * cover
    if rng.random() < 0.04:
        strike(page, baseline, dark, rng)
    if rng.random() < 0.3:
        cut_outline(page, own, rng)
    if rng.random() < 0.4:
        page = np.asarray(cv2.GaussianBlur(page, (0, 0), float(rng.uniform(0.4, 1.1))), np.float32)
    if rng.random() < 0.5:
        start = int(rng.integers(len(_GRAIN) - page.size)) if page.size < len(_GRAIN) else 0
        page += np.resize(_GRAIN[start : start + page.size], page.shape) * np.float32(rng.uniform(0.5, 4))
    return page.clip(0, 255).astype(np.uint8)


def strike(page: Gray, baseline: float, dark: float, rng: Generator) -> None:
    """A stroke of the pen below some of the writing, in place."""
    height, width = page.shape
    first, last = sorted(int(x) for x in rng.integers(0, width, 2))
    if last - first < 8:
        return
    stroke = np.zeros(page.shape, np.uint8)
    row = int(np.clip(baseline + rng.uniform(3, 9), 1, height - 2))
    cv2.line(stroke, (first, row), (last, row + int(rng.integers(-2, 3))), 255, int(rng.integers(1, 3)), cv2.LINE_AA)
    page -= stroke.astype(np.float32) * np.float32(dark * rng.uniform(0.5, 1) / 255)
