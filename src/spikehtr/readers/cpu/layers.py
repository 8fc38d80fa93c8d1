"""What the engine is made of: memory that is kept, maps in the forms that products read, and layers that are packed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ctypes import Structure
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from spikehtr.readers.cpu.library import BLOCK, DENSE, EVENTS, TILES, Library, Source, Weights, library

Floats = NDArray[np.float32]
_SLACK = 64 * 1024  # bytes behind every buffer: vectors are read whole, also at the end of a map
_TILE = 32  # rows and columns that the tile unit reads at a time


class Memory:
    """Buffers by name, kept from line to line and only ever enlarged: fresh pages cost more than the arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, count: int, dtype: Any = np.float32) -> NDArray[Any]:
        """A flat array of `count` numbers; its content is whatever was there."""
        size = count * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < size + _SLACK:
            raw = np.zeros(size + size // 4 + _SLACK + 64, np.uint8)
            buffer = raw[-raw.ctypes.data % 64 :]
            self._buffers[name] = buffer
        return buffer[:size].view(dtype)


def pointer(array: NDArray[Any] | None) -> int | None:
    """Its address; this way of asking is the quickest there is."""
    if array is None:
        return None
    address: int = array.__array_interface__["data"][0]
    return address


@dataclass
class Map:
    """Values [T, H, W, C] of one line, in one or more forms: single numbers, bfloat16 (as bits), lists of spikes."""

    steps: int
    height: int
    width: int
    channels: int
    dense: Floats | None = None
    half: NDArray[np.uint16] | None = None
    fired: NDArray[np.uint16] | None = None
    counts: NDArray[np.int32] | None = None
    reader: str | None = None  # the layer it is written for
    burst: int = 1  # most spikes of a channel in a step: its lists have room for them

    @property
    def positions(self) -> int:
        return self.height * self.width

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.steps, self.height, self.width, self.channels

    @property
    def sizes(self) -> dict[str, Any]:
        """As compiled functions name them."""
        return {"steps": self.steps, "height": self.height, "width": self.width, "channels": self.channels}

    def forms(self) -> dict[str, int | None]:
        return {name: pointer(getattr(self, name)) for name in ("half", "fired", "counts")}


def half_bits(w: Floats) -> NDArray[np.uint16]:
    """w in bfloat16, as bits."""
    bits: NDArray[np.uint16] = torch.from_numpy(np.ascontiguousarray(w)).to(torch.bfloat16).view(torch.uint16).numpy()
    return bits


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


@dataclass
class Layer:
    """A linear map or convolution, its weights packed for each way it can be carried out."""

    name: str
    weight: Floats  # [K, N]
    bias: Floats | None
    kernel: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    spikes: bool = False  # whether it reads nothing but spikes
    mode: int = DENSE
    _packed: dict[str, NDArray[Any]] = field(default_factory=dict)
    _structure: Weights | None = None

    @classmethod
    def of(cls, name: str, module: nn.Module, spikes: bool = False) -> Layer:
        assert isinstance(module, nn.Linear | nn.Conv2d)
        weight = module.weight.detach().float().cpu()
        kernel, stride = (1, 1), (1, 1)
        if isinstance(module, nn.Conv2d):
            kernel, stride = _pair(module.kernel_size), _pair(module.stride)
            weight = weight.permute(0, 2, 3, 1).flatten(1)  # [N, kh kw cin]
        bias = None if module.bias is None else module.bias.detach().float().cpu().numpy()
        return cls(name, np.ascontiguousarray(weight.numpy().T), bias, kernel, stride, spikes)

    @property
    def outputs(self) -> int:
        return int(self.weight.shape[1])

    def choose(self, mode: int) -> None:
        """How it is carried out from now on. Packed at once: threads that read side by side share what is packed."""
        self.mode, self._structure = mode, None
        self.structure()

    def structure(self) -> Weights:
        if self._structure is None:
            k, n = self.weight.shape
            pack = {DENSE: self._panels, TILES: self._tiles, EVENTS: self._rows}[self.mode]
            pack()
            fields: dict[str, Any] = {name: pointer(array) for name, array in self._packed.items()}
            self._structure = Weights(k=k, n=n, bias=pointer(self.bias), **fields)
        return self._structure

    def _padded(self, rows: int) -> Floats:
        k, n = self.weight.shape
        padded = np.zeros((rows, _round_up(n, 32)), np.float32)
        padded[:k, :n] = self.weight
        return padded

    def _panels(self) -> None:
        if "panels" not in self._packed:
            k, strip = len(self.weight), library().strip
            self._packed["panels"] = np.ascontiguousarray(self._padded(k).reshape(k, -1, strip).transpose(1, 0, 2))

    def _tiles(self) -> None:
        if "tiles" not in self._packed:
            k = _round_up(len(self.weight), 32)
            pairs = self._padded(k).reshape(k // 2, 2, -1, 16).transpose(2, 0, 3, 1)  # [N/16, K/2, 16, 2]
            self._packed["tiles"] = half_bits(pairs)

    def _rows(self) -> None:
        self._packed["rows"] = self.weight


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    return int(first), int(second)


def layer_source(layer: Layer, x: Map) -> Structure:
    return Source(
        dense=pointer(x.dense),
        **x.forms(),
        **x.sizes,
        kernel_h=layer.kernel[0],
        kernel_w=layer.kernel[1],
        stride_h=layer.stride[0],
        stride_w=layer.stride[1],
        burst=x.burst,
    )


def blocks(positions: int) -> int:
    return -(-positions // BLOCK)


class Products:
    """Carries out layers and the calls between them; keeps, where asked to, what they cost and how many spikes came."""

    def __init__(self, library: Library, memory: Memory) -> None:
        self.library, self.memory = library, memory
        self.seconds: dict[str, float] | None = None  # by layer, the making of its input in its form included
        self.density: dict[str, float] | None = None  # by layer: spikes an input, where they are listed

    def call(self, name: str, reader: str | None = None, **fields: Any) -> None:
        """A compiled function, on account of the layer that reads its result."""
        start = time.perf_counter()
        self.library.call(name, **fields)
        self._count(reader, start)

    def _count(self, layer: str | None, start: float) -> None:
        if self.seconds is not None and layer is not None:
            self.seconds[layer] = self.seconds.get(layer, 0.0) + time.perf_counter() - start

    def map(
        self, name: str, like: Sequence[int], layer: Layer | None = None, dense: bool = True, burst: int = 1
    ) -> Map:
        """Memory for a map [T, H, W, C]: the form `layer` reads, and single numbers where `dense` says so."""
        steps, height, width, channels = like
        count, take = steps * height * width * channels, self.memory.take
        out = Map(steps, height, width, channels, reader=None if layer is None else layer.name, burst=burst)
        if dense or (layer is not None and layer.mode == DENSE):
            out.dense = take(name, count)
        if layer is not None and layer.mode == TILES:
            behind = _TILE * channels + _TILE  # tiles are read whole: what lies behind is there, and does not count
            out.half = take(f"{name}.half", count + behind, np.uint16)[:count]
        if layer is not None and layer.mode == EVENTS:
            out.fired = take(f"{name}.fired", count * burst, np.uint16)
            out.counts = take(f"{name}.counts", steps * height * width, np.int32)
        return out

    def product(self, layer: Layer, x: Map, name: str, sums: bool = False) -> tuple[Map, Floats | None]:
        """x [T, H, W, C] -> [T, H', W', N], and the sums a norm needs where asked for."""
        height, width = -(-x.height // layer.stride[0]), -(-x.width // layer.stride[1])
        out = self.map(name, (x.steps, height, width, layer.outputs))
        found = None
        if sums:
            found = self.memory.take("sums", x.steps * blocks(height * width) * 2 * layer.outputs)
        assert out.dense is not None
        weights, source, start = layer.structure(), layer_source(layer, x), time.perf_counter()
        self.library.product(weights, source, layer.mode, out.dense.ctypes.data, pointer(found))
        self._count(layer.name, start)
        if self.density is not None and x.counts is not None and layer.mode == EVENTS:
            self.density[layer.name] = float(x.counts.sum()) / (x.steps * x.positions * x.channels)
        return out, found


def array(tensor: Tensor) -> Floats:
    """A tensor's numbers, copied, in single precision."""
    return np.array(tensor.detach().float().cpu().numpy(), np.float32, order="C")
