"""Kernels compiled before they are first needed, side by side.

Work that meets its kernels one by one waits for each to be compiled, half a minute in all before the first step of a
training is done. Here the work is done once on tensors that have a shape and no contents, which takes seconds and
nothing of the device; every kernel that it would start is noted instead, and all are compiled at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from filelock import FileLock, Timeout
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

_PATIENCE = 120  # seconds to wait for another process that compiles


@dataclass(frozen=True)
class _StandIn:
    """What the compiler asks of a tensor: its kind of number, and whether its address is a multiple of 16."""

    dtype: torch.dtype
    offset: int  # in bytes

    def data_ptr(self) -> int:
        return self.offset


class Launch(NamedTuple):
    """A kernel as some work starts it, without the tensors' contents."""

    kernel: Any
    args: tuple[Any, ...]
    named: dict[str, Any]


def launches(work: Callable[[], object]) -> list[Launch]:
    """Every kernel that `work` would start. It runs on tensors without contents: what it reads from others (weights,
    say) is left alone, but what it stores, as a gradient, is such a tensor, for the caller to take away."""
    from triton.runtime.jit import JITFunction

    found: list[Launch] = []

    def note(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
        found.append(Launch(kernel, tuple(map(_stand_in, args)), {k: _stand_in(v) for k, v in named.items()}))

    with FakeTensorMode(allow_non_fake_inputs=True), patch.object(JITFunction, "run", note):
        work()
    return found


def compile_ahead(work: Callable[[], object]) -> None:
    """Compile what `work` will need, as many kernels at a time as there are processors."""
    try:
        from triton.runtime._async_compile import AsyncCompileMode
    except ImportError:  # an older Triton: kernels are compiled as they are met
        return
    found = launches(work)
    with _after_another(), ThreadPoolExecutor(os.cpu_count()) as workers, AsyncCompileMode(workers):
        for kernel, args, named in found:
            kernel.warmup(*args, grid=(1,), **named)


@contextmanager
def _after_another() -> Iterator[None]:
    """Where another process compiles, when it is done: trainings that begin together mostly need the same kernels,
    which Triton keeps on disk. Those that waited go on side by side."""
    from triton import knobs

    folder = Path(knobs.cache.dir)
    lock = FileLock(folder / "spikehtr.lock")
    with suppress(OSError):  # where nothing can be written, or another takes too long, there is nothing to wait for
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            with lock.acquire(timeout=_PATIENCE):
                pass
    try:
        yield
    finally:
        lock.release()


def _stand_in(value: Any) -> Any:
    return (
        _StandIn(value.dtype, int(value.storage_offset()) * value.element_size())
        if isinstance(value, Tensor)
        else value
    )
