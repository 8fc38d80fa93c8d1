"""From line images to text: the one path by which pages, evaluations, the Python API and the kraken plug-in read.

Lines are read in batches of like width, so that little is padded, and a GPU reads a batch while the host decodes the
one before it.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from threading import Lock
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.batching import pad_right
from spikehtr.data.geometry import FittedLine, LineFitting
from spikehtr.decoding.decoders import Begun, Decoder, GreedyDecoder
from spikehtr.decoding.greedy import Decoded
from spikehtr.decoding.records import records
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network, Output
from spikehtr.ops.host_copy import HostCopy
from spikehtr.readers.base import Reader
from spikehtr.readers.factory import make_reader
from spikehtr.results.expected_error import ErrorEstimate
from spikehtr.results.line import Character, Line
from spikehtr.text import Charset

POOLED_BATCHES = 16  # batches whose lines are sorted by width together: callers that have many lines pass so many

K = TypeVar("K")


class ReadBatch(NamedTuple, Generic[K]):
    """A batch that was read."""

    key: K  # the caller's
    output: Output
    spans: NDArray[np.int64]  # [B, L, 2], positions that each frame covers
    lines: list[Decoded]


@torch.no_grad()
def read_batches(
    reader: Reader, batches: Iterable[tuple[K, Tensor, Tensor]], decoder: Decoder
) -> Iterator[ReadBatch[K]]:
    """Batches (key, images [B, 1, H, W], widths [B]) in order: while one is made into lines, the next is searched and
    the one after it is read."""
    reading: deque[Waiting[K]] = deque()
    searched: deque[Waiting[K]] = deque()
    for key, images, widths in batches:
        reading.append(_begin(reader, key, images, widths, decoder))
        if len(reading) > 1:
            searched.append(reading.popleft().search())
        if len(searched) > 1:
            yield searched.popleft().finish()
    searched.extend(waiting.search() for waiting in reading)
    for waiting in searched:
        yield waiting.finish()


class Waiting(NamedTuple, Generic[K]):
    """A batch that is being read or searched."""

    key: K
    output: Output
    spans: HostCopy
    begun: Begun

    def search(self) -> Self:
        self.begun.search()
        return self

    def finish(self) -> ReadBatch[K]:
        lines = self.begun()
        return ReadBatch(self.key, self.output, self.spans.wait().numpy(), lines)


def _begin(reader: Reader, key: K, images: Tensor, widths: Tensor, decoder: Decoder) -> Waiting[K]:
    """Ask for a batch, which a GPU then begins with."""
    output = reader(images, widths)
    begun = decoder.begin(output.logits, output.lengths)
    return Waiting(key, output, HostCopy(output.spans), begun)


class LineReader:
    """Reads line images with a network. Keeps no state between calls; a line's text does not depend on others."""

    def __init__(
        self,
        net: Network,
        config: Config,
        charset: Charset,
        temperature: float = 1.0,
        name: str = "a model",
        reader: Reader | None = None,
        precision: str | None = None,
        decoder: Decoder | None = None,
        estimate: ErrorEstimate | None = None,
    ) -> None:
        """`temperature` divides the logits: above 1 it lowers confidences that are too high, and changes no text.

        `reader` runs the network; by default the fastest way there is on its device. `precision` is what results say
        of it; by default what the reader computes in. `decoder` makes text of frames; by default greedily. `estimate`
        tells how much is likely wrong by how sure lines are.
        """
        if not temperature > 0:
            raise SpikeHTRError(f"temperature must be above 0, not {temperature}")
        self.net, self.config, self.charset = net.eval(), config, charset
        self.temperature, self.name = temperature, name
        self.reader = reader or make_reader(self.net)
        self.decoder = decoder or GreedyDecoder(charset, temperature)
        self.precision = self.reader.precision if precision is None else precision
        self.estimate = estimate

    @property
    def fitting(self) -> LineFitting:
        data = self.config.data
        return LineFitting(self.config.model.height, data.max_width, data.straighten)

    def fit(self, gray: Image.Image) -> FittedLine:
        """A grey line image made the network's input."""
        return self.fitting(gray)

    def read_lines(
        self,
        lines: Sequence[FittedLine],
        batch_size: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Line]:
        """Any number of lines, in the order they came. `progress` hears how many each batch had."""
        batch_size = self.check_batch_size(batch_size)
        order = sorted(range(len(lines)), key=lambda index: lines[index].pixels.shape[1])
        batches = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
        padded = ((rows, *pad_right([lines[row].pixels for row in rows])) for rows in batches)
        found: dict[int, Line] = {}
        with _uncollected:
            for batch in read_batches(self.reader, padded, self.decoder):
                own = [lines[row] for row in batch.key]
                found.update(zip(batch.key, _lines(batch.lines, batch.spans * self.net.stride, own), strict=True))
                if progress:
                    progress(len(batch.key))
        return [found[index] for index in range(len(lines))]

    def check_batch_size(self, batch_size: int | None) -> int:
        """By default what suits the device."""
        if batch_size is None:
            return self.reader.batch_size
        if batch_size < 1:
            raise SpikeHTRError(f"batch_size must be 1 or more, not {batch_size}")
        return batch_size


class _Uncollected:
    """Thousands of tuples that stay make Python look for garbage again and again, a third of the host's time. While any
    thread is in here it does not."""

    def __init__(self) -> None:
        self._lock, self._inside, self._was = Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._was:
                gc.enable()


_uncollected = _Uncollected()


def _lines(decoded: list[Decoded], spans: NDArray[np.int64], lines: list[FittedLine]) -> list[Line]:
    """Frames -> fitted pixels, by `spans` [B, L, 2] -> each image's own columns. Of all characters at once: a GPU reads
    lines faster than they could be looked at one by one."""
    sizes = [len(one.text) for one in decoded]
    row = np.repeat(np.arange(len(decoded)), sizes)
    first, end = (
        np.fromiter(chain.from_iterable(column), np.int64, len(row))
        for column in ((one.starts for one in decoded), (one.ends for one in decoded))
    )
    fitted = np.array([line.pixels.shape[1] for line in lines])
    scale = np.array([line.original_width for line in lines]) / fitted
    x0 = spans[row, first, 0] * scale[row]
    x1 = np.minimum(spans[row, end - 1, 1], fitted[row]) * scale[row]
    confidences = chain.from_iterable(one.confidences for one in decoded)
    others = chain.from_iterable(one.alternatives or [()] * len(one.text) for one in decoded)
    characters = "".join(one.text for one in decoded)
    found = records(Character, characters, confidences, x0.tolist(), x1.tolist(), others)
    ends = accumulate(sizes, initial=0)
    return [
        Line(one.text, one.confidence, found[begin:end], one.texts)
        for one, (begin, end) in zip(decoded, pairwise(ends), strict=True)
    ]
