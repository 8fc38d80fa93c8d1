"""Batches of lines of similar width: deterministic, resumable at any batch, the same lines on any number of devices.

The plan of an epoch is a pure function of (widths, batch size, seed, epoch). To resume, make it again and skip what was
done; with several devices every one makes the same plan and takes its share of each batch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.config import Config
from spikehtr.data.compiling import Progress, open_lines
from spikehtr.data.geometry import shrink_line
from spikehtr.data.store import LineStore, StoreError, no_line_of
from spikehtr.text import Charset, normalise, plain

Indices = NDArray[np.int64]
_WINDOW = 64  # batches that are sorted by width together: enough for little padding, few enough for good shuffling


_MOST = 4  # times that a line is shown in an epoch, however small its set


def plan_epoch(
    widths: NDArray[np.int32],
    batch_size: int,
    seed: int,
    epoch: int,
    shuffle: bool = True,
    sets: Sequence[Indices] = (),
    balance: float = 0.0,
) -> list[Indices]:
    """Every index once, in batches of similar width. Without shuffling: sorted by width, the same each time.

    With `balance`, of each of `sets` (indices) as many as `balanced_sizes` says; the whole is as long every epoch.
    """
    if not shuffle:
        order = np.argsort(widths, kind="stable")
        return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    rng = np.random.default_rng((seed, epoch))
    order = _balanced(sets, balance, rng) if balance and len(sets) > 1 else rng.permutation(len(widths))
    batches: list[Indices] = []
    for start in range(0, len(order), batch_size * _WINDOW):
        window = order[start : start + batch_size * _WINDOW]
        window = window[np.argsort(widths[window], kind="stable")]
        batches += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))]


def balanced_sizes(sizes: Sequence[int], balance: float) -> list[int]:
    """How many lines of each set an epoch shows: in proportion to size^(1 - balance), together about as many as there
    are, but none of a set more than `_MOST` times as many as it has."""
    if not balance:
        return list(sizes)
    total = sum(sizes)
    weights = np.array(sizes, np.float64) ** (1 - balance)
    return [
        min(max(1, round(total * part)), _MOST * size)
        for part, size in zip(weights / weights.sum(), sizes, strict=True)
    ]


def _balanced(sets: Sequence[Indices], balance: float, rng: np.random.Generator) -> Indices:
    """So many of each set; none of its lines twice before all others were shown once."""
    chosen: list[Indices] = []
    for indices, wanted in zip(sets, balanced_sizes([len(one) for one in sets], balance), strict=True):
        rounds = -(-wanted // len(indices))
        chosen.append(np.concatenate([rng.permutation(indices) for _ in range(rounds)])[:wanted])
    return rng.permutation(np.concatenate(chosen))


def share(batch: Indices, rank: int, world: int) -> Indices:
    """One device's part of a batch: every `world`-th line, so that all parts have the same number and like widths.

    Where the batch does not divide, its first lines fill up the last round.
    """
    missing = -len(batch) % world
    return np.concatenate([batch, np.resize(batch, missing)])[rank::world]


def padding_waste(widths: NDArray[np.int32], plan: Sequence[Indices]) -> float:
    """The share of all pixels in padded batches that is padding."""
    real = sum(int(widths[batch].sum()) for batch in plan)
    padded = sum(int(widths[batch].max()) * len(batch) for batch in plan)
    return 1 - real / padded


class Batch(NamedTuple):
    """What the network and the losses take; images are 8-bit until they reach the device."""

    images: Tensor  # [B, 1, H, W] uint8, white where padded
    widths: Tensor  # [B]
    targets: Tensor  # [B, U] labels
    target_lengths: Tensor  # [B]
    rows: Tensor  # [B], rows of the store, to name a line in a message

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(value.to(device, non_blocking=True) for value in self))

    def lines(self) -> Tensor:
        """The images in [0, 1]."""
        return self.images.float() / 255


class Item(NamedTuple):
    """A line ready for a batch."""

    pixels: NDArray[np.uint8]
    labels: list[int]
    row: int


class Lines:
    """Rows of a store as fitted pixels and labels, with a cache of decoded lines up to `cache_mb` megabytes.

    Without `labelled` the labels stay empty: to read lines whose texts the charset may not cover.
    """

    def __init__(
        self,
        store: LineStore,
        rows: Indices,
        charset: Charset,
        max_width: int,
        cache_mb: int = 0,
        labelled: bool = True,
        transcripts: Literal["as-is", "plain"] = "as-is",
    ) -> None:
        if store.max_width not in (None, max_width):
            raise StoreError(
                f"{store.path} was compiled for a width of {store.max_width}, not {max_width}: "
                f"set data.max_width={store.max_width}, or compile it again"
            )
        self.store, self.rows, self.charset, self.max_width = store, rows, charset, max_width
        self.labelled = labelled
        self.taught = plain if transcripts == "plain" else normalise  # what of a transcript becomes labels
        self._room = cache_mb << 20
        self._cache: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()  # oldest first
        self._cached = 0
        self._lock = threading.Lock()

    @property
    def widths(self) -> NDArray[np.int32]:
        """The width of each line as the network will see it."""
        return np.minimum(self.store.widths[self.rows], self.max_width)

    def by_set(self) -> list[Indices]:
        """The indices of each set that the lines are of."""
        names, places = np.unique(self.store.sets()[self.rows], return_inverse=True)
        return [np.flatnonzero(places == number) for number in range(len(names))]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        row = int(self.rows[index])
        labels = self.charset.encode(self.taught(self.store.text(row))) if self.labelled else []
        return Item(self._pixels(row), labels, row)

    def batch(self, indices: Indices) -> Batch:
        return collate([self[int(index)] for index in indices])

    def _pixels(self, row: int) -> NDArray[np.uint8]:
        with self._lock:
            if row in self._cache:
                self._cache.move_to_end(row)
                return self._cache[row]
        pixels = shrink_line(self.store.line(row), self.max_width)
        with self._lock:
            if row not in self._cache and pixels.nbytes <= self._room:
                self._cache[row] = pixels
                self._cached += pixels.nbytes
                while self._cached > self._room:
                    self._cached -= self._cache.popitem(last=False)[1].nbytes
        return pixels


def open_split(
    sources: Sequence[str],
    split: str,
    config: Config,
    charset: Charset,
    progress: Progress | None = None,
    count: int | None = None,
) -> Lines:
    """The (first `count`) lines of a split (`all`: of any), sized as the model of these settings takes them."""
    c = config
    store = open_lines(sources, c.model.height, c.data.max_width, progress, straighten=c.data.straighten)
    rows = store.rows(split)
    if not len(rows):
        raise no_line_of(split, store.meta["lines"])
    return Lines(store, rows[:count], charset, c.data.max_width, labelled=False)


def pad_right(lines: Sequence[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """Fitted lines of one height -> images [B, 1, H, W] uint8, white to the right, and widths [B]."""
    widths = [line.shape[1] for line in lines]
    images = np.full((len(lines), 1, lines[0].shape[0], max(widths)), 255, np.uint8)
    for image, line in zip(images, lines, strict=True):
        image[0, :, : line.shape[1]] = line
    return torch.from_numpy(images), torch.tensor(widths)


def to_batch(lines: Sequence[NDArray[np.uint8]]) -> tuple[Tensor, Tensor]:
    """As `pad_right`, with images in [0, 1]: what the network takes."""
    images, widths = pad_right(lines)
    return images.float() / 255, widths


def collate(items: Sequence[Item]) -> Batch:
    """Items -> Batch, padded to the widest and the longest."""
    images, widths = pad_right([item.pixels for item in items])
    lengths = torch.tensor([len(item.labels) for item in items])
    targets = torch.zeros(len(items), int(lengths.max()), dtype=torch.long)
    for row, item in zip(targets, items, strict=True):
        row[: len(item.labels)] = torch.tensor(item.labels)
    return Batch(images, widths, targets, lengths, torch.tensor([item.row for item in items]))


def load_batches(lines: Lines, plan: Sequence[Indices], workers: int = 0, pin_memory: bool = False) -> Iterator[Batch]:
    """The batches of (what is left of) an epoch's plan, in order, prepared ahead by `workers` threads.

    Threads, not processes: decompressing, resizing and copying leave Python's lock, and all share one cache.
    """

    def make(indices: Indices) -> Batch:
        batch = lines.batch(indices)
        return Batch(*(value.pin_memory() for value in batch)) if pin_memory else batch

    if workers == 0:
        yield from map(make, plan)
        return
    todo = iter(plan)
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Batch]] = deque(pool.submit(make, indices) for indices in islice(todo, 2 * workers))
        try:
            while ahead:
                batch = ahead.popleft().result()
                ahead.extend(pool.submit(make, indices) for indices in islice(todo, 1))
                yield batch
        finally:  # the caller may stop early: do not prepare what nobody will read
            for future in ahead:
                future.cancel()
