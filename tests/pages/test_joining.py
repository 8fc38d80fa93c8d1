from __future__ import annotations

import numpy as np
import pytest

from spikehtr.pages.join_lines import join
from spikehtr.pages.ridges import STEP_X, Ridge


def crest(left: float, right: float, y: float, size: float = 6.0) -> Ridge:
    x = np.arange(left, right, STEP_X)
    return Ridge(x, np.full(len(x), y), np.full(len(x), 0.1), size)


@pytest.mark.parametrize(("sizes_apart", "sizes_off", "lines"), [(6, 0, 1), (6, 1.5, 1), (6, 2.5, 2), (40, 0, 2)])
def test_words_are_joined_when_near_and_about_level(sizes_apart: float, sizes_off: float, lines: int) -> None:
    words = [crest(100, 400, 300), crest(400 + 6 * sizes_apart, 900, 300 + 6 * sizes_off)]
    assert len(join(words, [])) == lines
