"""Test pages as people have them: baselines follow the image exactly."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from spikehtr.pages.segment.photographed import LANDSCAPE, View, views


def page() -> tuple[np.ndarray, list[np.ndarray]]:
    image = np.full((900, 640), 235, np.uint8)
    lines = [np.linspace((80.0, y), (560.0, y + 6.0), 12) for y in range(120, 820, 60)]
    for line in lines:
        cv2.polylines(image, [line.round().astype(np.int32)], False, 20, 9)
    return image, lines


@pytest.mark.parametrize("view", ["plain", "photo", "turned", "cropped"])
@pytest.mark.parametrize("seed", range(4))
def test_baselines_lie_on_their_strokes_in_every_view(view: View, seed: int) -> None:
    image, lines = page()
    for seen in views(image, lines, view, seed):
        assert seen.lines
        for line in seen.lines:
            x, y = line.round().astype(int).T
            assert (x >= 0).all()
            assert (y < seen.image.shape[0]).all()
            on = seen.image[y, x].astype(float)
            beside = seen.image[np.clip(y + 20, 0, len(seen.image) - 1), x]
            if seen.turns % 2:
                beside = seen.image[y, np.clip(x + 20, 0, seen.image.shape[1] - 1)]
            assert np.median(on) < np.median(beside) - 20


def test_a_cropped_page_is_landscape_and_has_no_lines_of_what_was_cut() -> None:
    image, lines = page()
    (seen,) = views(image, lines, "cropped", 1)
    height, width = seen.image.shape
    assert width == pytest.approx(LANDSCAPE * height, rel=0.01)
    assert len(seen.lines) < len(lines)


def test_a_view_is_the_same_every_time() -> None:
    image, lines = page()
    (one,), (other,) = views(image, lines, "photo", 5), views(image, lines, "photo", 5)
    assert (one.image == other.image).all()
