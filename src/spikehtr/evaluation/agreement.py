"""Several ways of reading the same lines: do they read the same, and where they do not, is it their fault?

A spiking network is not continuous: a membrane within rounding of the threshold fires or does not, one spike changes
others, and where the network is unsure the text changes. So the reference is also read in double precision
(`DoubleReader`), where rounding is a billion times smaller: as far as single precision is from that, so far may two
right ways of reading be from each other. And it is read with noise of 1e-7 added to its pixels (`Noisy`), less than
half a unit in the last place of most of them: what that changes is no fault of a reader either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from spikehtr.data.batching import Lines
from spikehtr.evaluation.rates import Edits, character_edits, total
from spikehtr.model.network import Output
from spikehtr.readers import FittedLine, Reader, as_floats
from spikehtr.text import normalise

NOISE = 1e-7


class Noisy:
    """A reader that sees pixels a hair off, the same way each time."""

    def __init__(self, reader: Reader, noise: float = NOISE) -> None:
        self.reader, self.noise = reader, noise
        self.batch_size, self.precision = reader.batch_size, reader.precision

    def __call__(self, images: Tensor, widths: Tensor) -> Output:
        pixels = as_floats(images)
        generator = torch.Generator().manual_seed(0)
        return self.reader(pixels + self.noise * torch.randn(pixels.shape, generator=generator), widths)


class Agreement(NamedTuple):
    """What one way of reading made of some lines."""

    lines: int
    same: int  # lines with the very text of the first way
    changed: Edits  # characters, from the first way's texts
    wrong: Edits  # characters, from the truth


def agree(truths: Sequence[str], first: Sequence[str], texts: Sequence[str]) -> Agreement:
    """`texts` against what the first way read and against the truth, all normalised."""
    same = sum(a == b for a, b in zip(first, texts, strict=True))
    changed, wrong = (
        total(character_edits(a, b) for a, b in zip(against, texts, strict=True)) for against in (first, truths)
    )
    return Agreement(len(texts), same, changed, wrong)


def fitted_lines(lines: Lines) -> tuple[list[FittedLine], list[str]]:
    """Lines of a store as a Recognizer reads them, and their normalised texts."""
    items = [lines[index].pixels for index in range(len(lines))]
    return [FittedLine(pixels, pixels.shape[1]) for pixels in items], [
        normalise(lines.store.text(int(row))) for row in lines.rows
    ]
