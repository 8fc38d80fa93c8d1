"""Reading lines: kinds of images, batches, temperature."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import draw_line
from pages_help import random_recognizer, save_random
from spikehtr.errors import SpikeHTRError
from spikehtr.recognizer import Recognizer
from spikehtr.weights import load_model, save_model

RECOGNIZER = random_recognizer()


def test_bytes_of_a_file_are_an_image() -> None:
    pixels = draw_line("hello there")
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    assert RECOGNIZER.transcribe(data.getvalue()) == RECOGNIZER.transcribe(pixels)
    assert RECOGNIZER.transcribe([data.getvalue(), pixels])[0].text == RECOGNIZER.transcribe(pixels).text


def test_channels_of_an_array() -> None:
    pixels = draw_line("hello")
    grey = RECOGNIZER.transcribe(pixels)
    assert RECOGNIZER.transcribe(pixels[..., None]) == grey
    assert RECOGNIZER.transcribe(np.stack([pixels] * 3, -1)) == grey
    assert RECOGNIZER.transcribe(np.stack([*[pixels] * 3, np.full_like(pixels, 255)], -1)) == grey


def test_lines_come_back_in_order_whatever_their_widths() -> None:
    lines = [draw_line(text) for text in ("a long line of writing", "so", "some more words", "x", "and an end")]
    alone = [RECOGNIZER.transcribe(line) for line in lines]
    for size in (1, 2, 16):
        together = RECOGNIZER.transcribe(lines, batch_size=size)
        assert [line.text for line in together] == [line.text for line in alone]
        assert [line.confidence for line in together] == pytest.approx([line.confidence for line in alone], abs=1e-5)
    assert RECOGNIZER.transcribe([]) == []


def test_temperature_changes_confidence_and_no_text(tmp_path: Path) -> None:
    line = draw_line("some words here")
    plain = RECOGNIZER.transcribe(line)
    warm = Recognizer(RECOGNIZER.net, RECOGNIZER.config, RECOGNIZER.charset, temperature=3.0).transcribe(line)
    assert warm.text == plain.text
    assert warm.confidence < plain.confidence
    loaded = load_model(save_random(tmp_path / "m.safetensors"))
    save_model(tmp_path / "warm.safetensors", loaded.net, loaded.config, loaded.charset, {"temperature": 3.0})
    stored = Recognizer.load(tmp_path / "warm.safetensors")
    assert (stored.temperature, stored.name) == (3.0, "warm.safetensors")
    assert stored.transcribe(line).confidence == pytest.approx(warm.confidence)
    with pytest.raises(SpikeHTRError, match="above 0"):
        Recognizer(RECOGNIZER.net, RECOGNIZER.config, RECOGNIZER.charset, temperature=0.0)


def test_what_is_no_image_is_said() -> None:
    shapes = [(0, 5), (5, 0), (9,), (9, 9, 2), (9, 9, 5), (9, 9, 0), (9, 9, 3, 1)]
    for wrong in (np.zeros((3, 3)), *(np.zeros(shape, np.uint8) for shape in shapes)):
        with pytest.raises(SpikeHTRError, match="image array"):
            RECOGNIZER.transcribe(wrong)  # type: ignore[arg-type]
    for size in ((10, 0), (0, 10)):
        with pytest.raises(SpikeHTRError, match=f"{size[0]} x {size[1]} pixels"):
            RECOGNIZER.transcribe(Image.new("L", size))
    with pytest.raises(SpikeHTRError, match="not an image"):
        RECOGNIZER.transcribe(b"hello")
    with pytest.raises(SpikeHTRError, match="batch_size"):
        RECOGNIZER.transcribe([], batch_size=0)
