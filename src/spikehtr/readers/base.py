"""What every reader is: a way from a batch of fitted lines to the network's `Output`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.model.network import Output

Precision = Literal["auto", "fp32", "bf16", "fp64"]


@runtime_checkable
class Reader(Protocol):
    """`reader(images, widths)`: images [B, 1, H, W], bytes or floats in [0, 1] (`as_floats`), widths [B] -> Output.

    On the host or on the reader's device. L of the result may be longer than any line's length.
    """

    batch_size: int  # lines a call, where the caller has no wish of its own
    precision: str  # that it computes in: fp32, bf16 or fp64

    def __call__(self, images: Tensor, widths: Tensor) -> Output: ...


def as_floats(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]; floats as they are."""
    return images if images.is_floating_point() else images.float() / 255


def pinned(value: Tensor, device: torch.device) -> Tensor:
    """From where a device can fetch it while the host goes on."""
    return value.pin_memory() if value.device.type == "cpu" and device.type == "cuda" else value


def send(value: Tensor, device: torch.device) -> Tensor:
    return pinned(value, device).to(device, non_blocking=True)


def join_outputs(parts: list[Output]) -> Output:
    """The Output of several batches as one: rows are filled up with 0 to the longest."""
    size = max(part.logits.shape[1] for part in parts)

    def rows(of: Callable[[Output], Tensor]) -> Tensor:
        return torch.cat([F.pad(of(part), (0, 0, 0, size - of(part).shape[1])) for part in parts])

    aux = None
    if all(part.aux_logits is not None for part in parts):
        aux = rows(lambda part: part.logits if part.aux_logits is None else part.aux_logits)
    lengths, ratios = (torch.cat([part[place] for part in parts]) for place in (1, 4))  # type: ignore[misc]
    return Output(rows(lambda part: part.logits), lengths, aux, rows(lambda part: part.spans), ratios)
