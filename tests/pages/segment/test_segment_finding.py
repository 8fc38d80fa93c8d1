"""How a page lies, and where its lines are then."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from spikehtr.pages.quarter_turns import as_it_lies, upright
from spikehtr.pages.segment.find_lines import FindOptions, find, orient
from spikehtr.pages.segment.line_network import Maps
from spikehtr.pages.segment.maps import COARSE, FINE, LookAt
from spikehtr.pages.segment.run_network import look_at


class Leaning(nn.Module):
    """Says of a page with a dark corner how it lies: rows from columns clearly, which way up hardly.

    A corner that is dark at the top left says upright, and the others so many quarter turns clockwise. Like a network
    that was shown upright pages mostly, it holds every page with rows for upright.
    """

    def __init__(self, text: bool = True) -> None:
        super().__init__()
        self.anything = nn.Parameter(torch.zeros(1))
        self.text = text

    def forward(self, images: Tensor) -> Maps:
        height, width = images.shape[-2:]
        rows, columns = images[0, 0, :8].mean(0), images[0, 0, -8:].mean(0)
        corners = [rows[:8].mean(), rows[width - 8 :].mean(), columns[width - 8 :].mean(), columns[:8].mean()]
        turns = int(torch.stack(corners).argmin())
        coarse = torch.zeros(1, 7, height // COARSE, width // COARSE)
        coarse[:, 0] = 5.0 if self.text else -5.0
        coarse[:, 3:7] += torch.tensor([2.0, -3.0, 0.0, -3.0] if turns % 2 == 0 else [-3.0, 2.0, -3.0, 0.0])[
            :, None, None
        ]
        coarse[:, 3 + turns] += 0.1
        return Maps(torch.full((1, 4, height // FINE, width // FINE), -5.0), coarse)


def by(network: nn.Module) -> LookAt:
    return partial(look_at, network)  # type: ignore[arg-type]


def page() -> NDArray[np.uint8]:
    image = np.full((96, 64), 220, np.uint8)
    image[:8, :8] = 0
    return image


@pytest.mark.parametrize("turns", range(4))
def test_a_page_is_found_to_lie_as_it_does_by_a_network_that_expects_upright_pages(turns: int) -> None:
    lying = np.ascontiguousarray(np.rot90(page(), -turns))
    assert find(by(Leaning()), [lying])[0].turns == turns
    assert (upright(lying, turns) == page()).all()


def test_a_page_whose_lie_is_known_is_not_turned_otherwise() -> None:
    (seen,) = orient(by(Leaning()), [page()], [1.0], FindOptions(), turns=3)
    assert seen.turns == 3


def test_a_page_in_doubt_or_without_writing_stays_as_it_is() -> None:
    lying = np.ascontiguousarray(np.rot90(page(), 2))
    assert find(by(Leaning()), [lying], FindOptions(doubt=0.3))[0].turns == 0
    (found,) = find(by(Leaning(text=False)), [lying])
    assert (found.turns, found.height, found.lines) == (0, 0.0, [])


@given(st.integers(0, 3), st.integers(1, 9), st.integers(1, 9), st.data())
def test_points_of_the_upright_page_come_back_to_their_pixels(turns: int, h: int, w: int, data: st.DataObject) -> None:
    lying = np.arange(h * w, dtype=np.int32).reshape(h, w).astype(np.uint8)
    right = upright(lying, turns)
    y, x = (data.draw(st.integers(0, side - 1)) for side in right.shape)
    ((back_x, back_y),) = as_it_lies(np.array([[x, y]]), turns, lying.shape)
    assert lying[back_y, back_x] == right[y, x]
