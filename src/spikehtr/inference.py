"""From fitted lines to frames, as fast as the device allows: what `Recognizer` reads with.

A `Reader` takes a batch of lines and gives the network's `Output`. `PlainReader` serves every network on every device.
`spikehtr.engine.Engine` serves Spike-HTR on a CPU, by compiled functions where they could be built.
`GraphReader` serves Spike-HTR on a GPU: it rounds a batch up to one of few sizes and replays a recording of the pass
(`ops.recording`), so that the host launches a pass at once instead of kernel by kernel. Rounding up changes no
line's result but for the last digits, since padding does not reach it.

In bf16 (`precision`) a map is rounded to 8 bits of mantissa between two kernels; norms and membranes are fp32 inside
them. Without spikes logits stay within 3 % of the reference's (in norm). With them no such bound exists, in any
precision: a membrane within rounding of the threshold fires or not, and one spike changes others, so that noise of 1e-7
on the pixels can change a character the network is unsure of; those it is sure of stay, as a rule.
`benchmarks/reading.py` counts both on lines of yours. `evaluation.predict`, which makes the figures, always reads in
fp32. In fp64 (`Exact`) rounding is a billion times smaller: slow, but no text hangs on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr import ops
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network, Output
from spikehtr.model.recognizer import SpikeHTR
from spikehtr.ops.recording import Recordings

Precision = Literal["auto", "fp32", "bf16", "fp64"]

_COLUMNS = 64  # canvas widths are rounded up to multiples of it
_CPU_LINES, _GPU_LINES = 16, 128


@runtime_checkable
class Reader(Protocol):
    """`reader(images, widths)`: images [B, 1, H, W], bytes or floats in [0, 1] (`as_floats`), widths [B] -> Output.

    On the host or on the reader's device. L of the result may be longer than any line's length.
    """

    batch_size: int  # lines a call, where the caller has no wish of its own

    def __call__(self, images: Tensor, widths: Tensor) -> Output: ...


def make_reader(net: Network, precision: Precision = "auto", recorded: bool = True) -> Reader:
    """The fastest reader there is for a network, on the device where it lies. `recorded`: on a GPU, where possible."""
    if precision == "fp64":
        return Exact(net)
    device = next(net.parameters()).device
    half = in_half(precision, device)
    if device.type == "cpu":
        from spikehtr.engine.engine import Engine, unsupported_reason

        half = half or (precision == "auto" and unsupported_reason(net, half=True) is None)
        if unsupported_reason(net, half) is None:
            return Engine(net, "bf16" if half else "fp32")
    if recorded and isinstance(net, SpikeHTR) and can_record(net):
        return GraphReader(net, half)
    return PlainReader(net, half)


def in_half(precision: Precision, device: torch.device) -> bool:
    """Whether PyTorch computes in bf16; by itself only on a GPU that has it (the engine knows what CPUs have)."""
    if precision not in ("auto", "fp32", "bf16"):
        raise SpikeHTRError(f"precision must be auto, fp32, bf16 or fp64, not {precision!r}")
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return precision == "bf16"


def can_record(net: Network) -> bool:
    """Whether a pass can be recorded: on a GPU, by kernels of which none waits for the device."""
    weight = next(net.parameters())
    return weight.device.type == "cuda" and isinstance(net, SpikeHTR) and ops.uses_triton(weight)


def as_floats(images: Tensor) -> Tensor:
    """Bytes as floats in [0, 1]; floats as they are."""
    return images if images.is_floating_point() else images.float() / 255


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


class PlainReader:
    """The network's own forward pass, in fp32 or under bf16 autocast."""

    def __init__(self, net: Network, half: bool = False) -> None:
        self.net, self.half = net, half
        self.batch_size = _GPU_LINES if self.device.type == "cuda" else _CPU_LINES
        self._most: int | None = None  # pixels of a batch that fit, once more did not

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    def precision(self) -> AbstractContextManager[object]:
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
        return join([self(*part) for part in zip(images.split(half), widths.split(half), strict=True)])

    def read(self, images: Tensor, widths: Tensor) -> Output:
        images, widths = (send(value, self.device) for value in (images, widths))
        with self.precision():
            return self.net(as_floats(images), widths)  # type: ignore[no-any-return]


class Exact(PlainReader):
    """The reference in double precision, from the same pixels."""

    def __init__(self, net: Network) -> None:
        super().__init__(deepcopy(net).double())

    def read(self, images: Tensor, widths: Tensor) -> Output:
        return super().read(as_floats(images).double(), widths)


def precision_of(reader: Reader) -> str:
    """What a reader computes in, fp32, bf16 or fp64; empty where it does not say."""
    if isinstance(reader, Exact):
        return "fp64"
    if isinstance(reader, PlainReader):
        return "bf16" if reader.half else "fp32"
    said = getattr(reader, "precision", "")
    return said if isinstance(said, str) else ""


class Held(NamedTuple):
    """What a recorded pass reads and writes, on the device."""

    images: Tensor  # [B, 1, H, W], as they came
    widths: Tensor  # [B]
    output: Output


class GraphReader(PlainReader):
    """Spike-HTR by recordings of the whole pass, with L = L0: the host never waits for the device.

    Sizes are rounded up, so that few recordings serve all batches: canvases to multiples of 64 px, lines to powers of
    two. A size is recorded when it is met the second time.
    """

    net: SpikeHTR

    def __init__(self, net: SpikeHTR, half: bool = True) -> None:
        super().__init__(net, half)
        self._lock = threading.Lock()  # threads may share a reader, but not the tensors of a recording
        self.recordings: Recordings[Held] = Recordings(self.device)

    def read(self, images: Tensor, widths: Tensor) -> Output:
        if ops.reference_asked():  # a replay would not be that
            return super().read(images, widths)
        lines = len(images)
        images, widths = round_up(images, widths, self.net.config.max_width)
        with self._lock, self.precision():
            found = self._replay(images, widths)
            return Output(*(None if v is None else v[:lines].clone() for v in found))  # type: ignore[arg-type]  # the next replay writes over them

    def _replay(self, images: Tensor, widths: Tensor) -> Output:
        key = (images.shape, images.dtype)
        if not self.recordings.wanted(key):
            return self._run(send(images, self.device), send(widths, self.device)).output
        held = self.recordings.get(key)
        if held is None:
            mine, own = images.to(self.device, copy=True), widths.to(self.device, copy=True)
            self.recordings.add(key, lambda: self._run(mine, own))
        else:
            held.images.copy_(pinned(images, self.device), non_blocking=True)
            held.widths.copy_(pinned(widths, self.device), non_blocking=True)
        return self.recordings.replay(key).output

    def _run(self, images: Tensor, widths: Tensor) -> Held:
        return Held(images, widths, self.net(as_floats(images), widths, full=True))


def round_up(images: Tensor, widths: Tensor, widest: int) -> tuple[Tensor, Tensor]:
    """White columns up to a multiple of 64 (or to `widest`), and white lines one pixel wide up to a power of two."""
    lines, width = images.shape[0], images.shape[-1]
    right = max(0, min(-width % _COLUMNS, widest - width))
    missing = (1 << (lines - 1).bit_length()) - lines
    if not (right or missing):
        return images, widths
    white = 1.0 if images.is_floating_point() else 255
    images = F.pad(images, (0, right, 0, 0, 0, 0, 0, missing), value=white)
    return images, F.pad(widths, (0, missing), value=1)


def pinned(value: Tensor, device: torch.device) -> Tensor:
    """From where a device can fetch it while the host goes on."""
    return value.pin_memory() if value.device.type == "cpu" and device.type == "cuda" else value


def send(value: Tensor, device: torch.device) -> Tensor:
    return pinned(value, device).to(device, non_blocking=True)


def join(parts: list[Output]) -> Output:
    """The Output of several batches as one: rows are filled up with 0 to the longest."""
    size = max(part.logits.shape[1] for part in parts)

    def rows(of: Callable[[Output], Tensor]) -> Tensor:
        return torch.cat([F.pad(of(part), (0, 0, 0, size - of(part).shape[1])) for part in parts])

    aux = None
    if all(part.aux_logits is not None for part in parts):
        aux = rows(lambda part: part.logits if part.aux_logits is None else part.aux_logits)
    lengths, ratios = (torch.cat([part[place] for part in parts]) for place in (1, 4))  # type: ignore[misc]
    return Output(rows(lambda part: part.logits), lengths, aux, rows(lambda part: part.spans), ratios)
