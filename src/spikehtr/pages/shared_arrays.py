"""Arrays in memory that two processes see, so that none of their bytes goes through a pipe."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Arrays = Sequence[NDArray[Any]]


class Place(NamedTuple):
    """Where in the memory an array lies."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


class SharedArrays:
    """Room for the arrays that were put last, by this process or the other. The memory goes when both have ended."""

    def __init__(self, handle: int | None = None) -> None:
        """`handle`: of the memory that another process made and this one has inherited."""
        self.handle = _memory() if handle is None else handle
        self._map: mmap.mmap | None = None

    def put(self, arrays: Arrays) -> list[Place]:
        places, end = [], 0
        for array in arrays:
            places.append(Place(end, array.shape, array.dtype.str))
            end += -(-array.nbytes // 64) * 64
        if end > os.fstat(self.handle).st_size:
            os.ftruncate(self.handle, end + end // 2)
        for array, room in zip(arrays, self.get(places), strict=True):
            np.copyto(room, array)
        return places

    def get(self, places: Sequence[Place]) -> list[NDArray[Any]]:
        """Views: they show what either process puts there next."""
        if not places:
            return []
        size = os.fstat(self.handle).st_size
        if size and (self._map is None or len(self._map) < size):
            self._map = mmap.mmap(self.handle, size)  # the one before goes with the last view of it
        return [
            np.ndarray(shape, dtype, self._map, offset) if 0 not in shape else np.empty(shape, dtype)
            for offset, shape, dtype in places
        ]

    def close(self) -> None:
        """What views there are keep what they show."""
        os.close(self.handle)
        self.handle, self._map = -1, None


def _memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("arrays")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
