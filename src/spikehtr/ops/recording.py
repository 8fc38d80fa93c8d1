"""Work recorded as a CUDA graph: once for a shape, then replayed by a single launch.

A spiking network launches hundreds of small kernels a pass, and a host that launches them one by one is slower than the
device that runs them. Recorded work reads and writes the very tensors it was recorded with, so whoever records it keeps
tensors for its input, copies each input into them, and takes what it needs of the results before the next replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")

_SIGHTINGS = 2  # of a shape before it is recorded: recording costs a few passes
_ROOM = 0.4  # of the device's memory: work that takes more is not recorded, since it would be there twice


class Recordings(Generic[T]):
    """Recordings of some work by key (its shapes), `most` of them; T is what the work needs and gives, kept alive.

    They share their memory: no two are replayed at the same time, and what must last is held by their T.
    """

    def __init__(self, device: torch.device, most: int = 24) -> None:
        self.device, self.most = device, most
        self.seen: Counter[Hashable] = Counter()
        self.kept: dict[Hashable, tuple[Callable[[], None], T]] = {}
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.pool = self._new_pool()

    def wanted(self, key: Hashable) -> bool:
        """Count a sighting; whether the key is recorded, or should be now."""
        self.seen[key] += 1
        return key in self.kept or (self.seen[key] >= _SIGHTINGS and len(self.kept) < self.most and self.has_room())

    def has_room(self) -> bool:
        """Other programs may share the device: what they hold is not free."""
        needed, (free, whole) = torch.cuda.max_memory_allocated(self.device), torch.cuda.mem_get_info(self.device)
        return needed < _ROOM * whole and needed < free

    def get(self, key: Hashable) -> T | None:
        found = self.kept.get(key)
        return found[1] if found else None

    def add(self, key: Hashable, work: Callable[[], T], rehearse: bool = True) -> T:
        """Record what `work` asks of the device. It is done once before, too: what is made on first use (a compiled
        kernel, a library's workspace) must not be in the recording. Not to `rehearse` is for work that must not be done
        twice, and whose like was done before: what it gives is there after the first replay, and what a library makes
        for a stream is made in the recording, which keeps it."""
        replay, held = self.capture(work, rehearse)
        self.kept[key] = (replay, held)
        return held

    def capture(self, work: Callable[[], T], rehearse: bool) -> tuple[Callable[[], None], T]:
        assert self.stream is not None
        torch.cuda.empty_cache()  # what passes before it have left is another stream's, and of no use here
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        if rehearse:
            with torch.cuda.stream(self.stream):
                work()
        torch.cuda.current_stream(self.device).wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        # Only this thread must keep from what cannot be recorded: others may prepare batches meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            held = work()
        return graph.replay, held

    def replay(self, key: Hashable) -> T:
        replay, held = self.kept[key]
        replay()
        return held

    def forget(self) -> None:
        """Drop all recordings: something they hold as a constant has changed. Sizes met again are recorded at once."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # one may still be running
        self.kept.clear()
        self.pool = self._new_pool()  # the old one goes with its recordings

    def _new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
