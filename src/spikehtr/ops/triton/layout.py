"""What the host's sides of the kernels share: memory layout, the result's dtype, block sizes, device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

COLUMNS = 64  # of a tile. Never chosen by an image's width: a line's sums must not hang on its padding.


def channels_last(x: Tensor) -> Tensor:
    """[T, B, C, H, W] -> contiguous [T, B, H, W, C]; nothing is moved if it lies so already."""
    return x.movedim(2, 4).contiguous()


def channels_second(x: Tensor) -> Tensor:
    """[T, B, H, W, C] -> [T, B, C, H, W], a view."""
    return x.movedim(4, 2)


def result_dtype(x: Tensor) -> torch.dtype:
    """What a fast path hands on: autocast's dtype where it is on (no round trip through fp32), else the input's."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def channel_block(channels: int) -> int:
    """Channels of a tile: 64 or 32, whichever leaves the fewest idle lanes, 64 if equal; 16 for very few."""
    return 16 if channels <= 16 else min((64, 32), key=lambda block: -(-channels // block) * block)


def power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def on_device(x: Tensor) -> AbstractContextManager[object]:
    """Kernels start on the current device; make that the tensor's."""
    return torch.cuda.device(x.device) if x.is_cuda and x.device.index != torch.cuda.current_device() else nullcontext()
