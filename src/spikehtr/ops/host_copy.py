"""Tensors on their way to the host."""

from __future__ import annotations

import torch
from torch import Tensor


class HostCopy:
    """A small tensor on its way to the host.

    `wait` gives it as soon as it is there: it does not wait for what the device was asked for after the copy, so a
    host that asks late finds the device still at work.
    """

    def __init__(self, values: Tensor) -> None:
        self._values, self._ready = values, None
        if values.device.type == "cuda":
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._ready = torch.cuda.current_stream(values.device).record_event()

    def wait(self) -> Tensor:
        if self._ready is not None:
            self._ready.synchronize()
        return self._values
