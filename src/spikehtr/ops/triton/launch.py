"""Where every kernel is started, and where they are compiled side by side before they are first needed.

Work that meets its kernels one by one waits for each to be compiled, about a minute in all before the first step of a
training is done. `compile_together` does the work once without starting any kernel, which only says which there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

_waiting: dict[Hashable, Callable[[], object]] | None = None  # what is to be compiled, while kernels are not started


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
    """`kernel[grid](*args, **options)`, on the current device."""
    if _waiting is None:
        kernel[grid](*args, **options)
        return
    key = (kernel, *map(_kind, args), *sorted(options.items()))
    # Tensors by their dtype alone, which holds no memory: that is taken for an aligned one, as nearly all are.
    shown = [arg.dtype if isinstance(arg, Tensor) and arg.data_ptr() % 16 == 0 else arg for arg in args]
    _waiting.setdefault(key, lambda: kernel.warmup(*shown, grid=grid, **options))


def compile_together(work: Callable[[], object], device: torch.device) -> int:
    """Compile every kernel that `work` would start, as many at a time as there are processors; how many there were.

    While `work` runs no kernel is started, so what it computes means nothing: the caller drops what it leaves behind.
    """
    global _waiting
    _waiting = {}
    try:
        work()
        found = list(_waiting.values())
    finally:
        _waiting = None

    def make(compiled: Callable[[], object]) -> None:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():  # of this thread
            compiled()

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(make, found))
    return len(found)


def _kind(value: Any) -> Hashable:
    """What of an argument decides which compiled form of a kernel is taken."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    if isinstance(value, int):
        return value == 1, value % 16 == 0, value.bit_length() < 32
    return type(value).__name__
