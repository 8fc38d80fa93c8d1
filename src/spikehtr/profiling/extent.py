"""Which columns and tokens of the batch under way are lines' own: padding is never counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from spikehtr.model.masking import shrink
from spikehtr.model.reducer import Reduction
from spikehtr.model.spike_htr import SpikeHTR


class Extent:
    """Kept up to date by `watched`, while the network runs."""

    def __init__(self) -> None:
        self.widths = torch.ones(1, dtype=torch.long)  # [B], pixels
        self.canvas = 1  # pixels, padding included
        self.tokens = self.widths  # [B], of the sequence as it is now: before the reducer, or after it

    def columns(self, size: int) -> Tensor:
        """[B], the valid columns of a map that is `size` columns wide."""
        return shrink(self.widths, self.canvas // size)

    @property
    def batch(self) -> int:
        return len(self.widths)


@contextmanager
def watched(net: SpikeHTR) -> Iterator[Extent]:
    """An Extent that follows every forward pass of `net`, or of its parts, until it is closed."""
    extent = Extent()

    def begin(_: Any, inputs: tuple[Tensor, Tensor]) -> None:
        images, extent.widths = inputs
        extent.canvas = images.shape[-1]
        extent.tokens = shrink(extent.widths, net.stride)

    def reduced(_: Any, __: Any, output: Reduction) -> None:
        extent.tokens = output.lengths

    handles = [net.encoder.register_forward_pre_hook(begin), net.reducer.register_forward_hook(reduced)]
    try:
        yield extent
    finally:
        for handle in handles:
            handle.remove()
