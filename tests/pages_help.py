"""Drawn pages with known lines, and a small network that reads something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from conftest import micro
from spikehtr.assets import FONTS
from spikehtr.model.spike_htr import SpikeHTR
from spikehtr.recognizer import Recognizer
from spikehtr.text import Charset
from spikehtr.weights import save_model

TEXTS = (
    "a quick brown fox jumps over the dog",
    "and runs along the river to the mill",
    "where nobody has seen it come or go",
    "until the evening bell rings again",
)
CHARACTERS = " abcdefghijklmnopqrstuvwxyz<&é"


def draw_page(
    lines: list[tuple[float, float, str]], size: tuple[int, int] = (1000, 700), height: int = 44, seed: int = 0
) -> Image.Image:
    """Text at (x, baseline) on slightly noisy paper."""
    font = ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), height)
    image = Image.new("L", size, 225)
    pen = ImageDraw.Draw(image)
    for x, y, text in lines:
        pen.text((x, y), text, font=font, fill=45, anchor="ls")
    noise = np.random.default_rng(seed).normal(0, 3, size[::-1])
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def simple_page(count: int = 4, **options: object) -> tuple[Image.Image, list[tuple[tuple[float, float], ...]]]:
    """A page of `count` lines of text and their baselines."""
    lines = [(100.0, 120.0 + 90 * index, TEXTS[index % len(TEXTS)]) for index in range(count)]
    return draw_page(lines, **options), baselines_of(lines)  # type: ignore[arg-type]


def baselines_of(lines: list[tuple[float, float, str]], height: int = 44) -> list[tuple[tuple[float, float], ...]]:
    font = ImageFont.truetype(str(FONTS / "Caveat-Regular.ttf"), height)
    return [((x, y), (x + font.getlength(text), y)) for x, y, text in lines]


def random_recognizer(seed: int = 0) -> Recognizer:
    torch.manual_seed(seed)
    charset = Charset(tuple(CHARACTERS))
    config = micro(timesteps=1, height=16)
    return Recognizer(SpikeHTR(config.model, len(charset)), config, charset, name="random")


def save_random(path: Path) -> Path:
    recognizer = random_recognizer()
    save_model(path, recognizer.net, recognizer.config, recognizer.charset)
    return path
