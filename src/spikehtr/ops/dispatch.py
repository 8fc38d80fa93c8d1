"""Which side of an operator is taken: the plain one or Triton's. Decided here, and nowhere else.

By itself Triton's side serves tensors on a CUDA device where Triton can be imported. SPIKEHTR_KERNELS, read once, has
the last word: `reference` never takes it, `triton` takes it for any tensor (on a CPU that needs TRITON_INTERPRET=1, as
in the tests). `with ops.reference():` asks for the plain side in a block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor

from spikehtr.errors import SpikeHTRError

Side = Literal["auto", "reference", "triton"]
P = ParamSpec("P")
R = TypeVar("R")

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@cache
def _asked() -> str:
    """What the environment asks for."""
    asked = os.environ.get("SPIKEHTR_KERNELS", "auto")
    if asked not in get_args(Side):
        raise SpikeHTRError(f"SPIKEHTR_KERNELS is auto, reference or triton, not {asked!r}")
    return asked


_side: ContextVar[Side | None] = ContextVar("spikehtr_kernels", default=None)


@contextmanager
def using(side: Side) -> Iterator[None]:
    """In the block, whatever the environment says: `auto`, `reference` or `triton`."""
    before = _side.set(side)
    try:
        yield
    finally:
        _side.reset(before)


def reference() -> AbstractContextManager[None]:
    """In the block all operators are plain PyTorch: for tracing, for watching every part, for comparing."""
    return using("reference")


def reference_asked() -> bool:
    """Whether the block or the environment asks for the plain side."""
    return (_side.get() or _asked()) == "reference"


@cache
def _have_triton() -> bool:
    return find_spec("triton") is not None


def uses_triton(tensor: Tensor) -> bool:
    """Whether Triton's side takes this tensor; float64 and traced graphs always take the plain one."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    side = _side.get() or _asked()
    if side == "reference" or tensor.dtype not in _FLOATS or tensor.numel() == 0:
        return False
    return (tensor.is_cuda or side == "triton") and _have_triton()


def dispatched(plain: Callable[P, R]) -> Callable[P, R]:
    """The operator whose plain side this is: the function of its name in `ops.triton.functions` where its first
    argument, a tensor, is one for Triton."""
    name = plain.__name__
    found: list[Callable[P, R]] = []

    @wraps(plain)
    def operator(*args: P.args, **kwargs: P.kwargs) -> R:
        first = args[0]
        assert isinstance(first, Tensor)
        if not uses_triton(first):
            return plain(*args, **kwargs)
        if not found:
            found.append(getattr(import_module("spikehtr.ops.triton.functions"), name))
        return found[0](*args, **kwargs)

    return operator
