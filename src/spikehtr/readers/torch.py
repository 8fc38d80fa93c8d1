"""Every network on every device: its own forward pass, in fp32, under bf16 autocast, or in double precision.

In bf16 a map is rounded to 8 bits of mantissa between two operators; norms and membranes are fp32 inside them. Without
spikes logits stay within 3 % of the reference's (in norm). With them no such bound exists, in any precision: a membrane
within rounding of the threshold fires or not, and one spike changes others, so that noise of 1e-7 on the pixels can
change a character the network is unsure of; those it is sure of stay, as a rule. `benchmarks/reading.py` counts both on
lines of yours. In fp64 rounding is a billion times smaller: slow, but no text depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy

import torch
from torch import Tensor

from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network, Output
from spikehtr.readers.base import as_floats, join_outputs, send

_CPU_LINES, _GPU_LINES = 16, 128


@contextmanager
def full_precision() -> Iterator[None]:
    """No autocast, no TF32."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False  # not `cudnn.flags`: what is not named there is switched off
    try:
        with torch.autocast("cuda", enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


class TorchReader:
    """The network's own forward pass, in fp32 or under bf16 autocast."""

    def __init__(self, net: Network, half: bool = False) -> None:
        self.net, self.half, self.precision = net, half, "bf16" if half else "fp32"
        self.batch_size = _GPU_LINES if self.device.type == "cuda" else _CPU_LINES
        self._most: int | None = None  # pixels of a batch that fit, once more did not

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    def autocast(self) -> AbstractContextManager[object]:
        kind = self.device.type
        if self.half:  # without autocast's cache: a recording would hold on to what is in it
            return torch.autocast(kind, torch.bfloat16, cache_enabled=False)
        return full_precision() if kind == "cuda" else nullcontext()

    @torch.no_grad()
    def __call__(self, images: Tensor, widths: Tensor) -> Output:
        """Where memory does not suffice for the batch, in halves; such sizes are halved at once from then on."""
        lines, pixels = len(images), images[:, 0].numel()
        if lines == 1 or self._most is None or pixels <= self._most:
            try:
                return self.read(images, widths)
            except torch.OutOfMemoryError:
                if lines == 1:
                    raise SpikeHTRError(
                        f"out of memory on a line of {images.shape[-1]} px: use a smaller data.max_width, or the CPU"
                    ) from None
                self._most = pixels // 2
            if self.device.type == "cuda":  # not in the `except`: the traceback would keep alive what failed
                torch.cuda.empty_cache()
        half = -(-lines // 2)
        return join_outputs([self(*part) for part in zip(images.split(half), widths.split(half), strict=True)])

    def read(self, images: Tensor, widths: Tensor) -> Output:
        images, widths = (send(value, self.device) for value in (images, widths))
        with self.autocast():
            return self.net(as_floats(images), widths)  # type: ignore[no-any-return]


class DoubleReader(TorchReader):
    """The reference in double precision, from the same pixels."""

    def __init__(self, net: Network) -> None:
        super().__init__(deepcopy(net).double())
        self.precision = "fp64"

    def read(self, images: Tensor, widths: Tensor) -> Output:
        return super().read(as_floats(images).double(), widths)
