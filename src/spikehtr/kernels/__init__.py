"""Fast paths: the same functions as `model/`, in fewer passes over memory. Chosen here, and nowhere else.

`fast(tensor)` is true for a tensor on a CUDA device where Triton can be imported; everything else takes the plain
code in `model/`. The environment has the last word: SPIKEHTR_KERNELS=reference never takes a fast path,
SPIKEHTR_KERNELS=triton takes it for any tensor (on a CPU that needs TRITON_INTERPRET=1, as in the tests).
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


@cache
def _have_triton() -> bool:
    return find_spec("triton") is not None


def fast(tensor: Tensor) -> bool:
    """Whether a kernel may take this tensor; float64 and traced graphs always take the reference."""
    choice = os.environ.get("SPIKEHTR_KERNELS", "auto")
    if choice == "reference" or tensor.dtype not in _FLOATS or tensor.numel() == 0:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return False
    return (tensor.is_cuda or choice == "triton") and _have_triton()


_hooks: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()  # the tables of hooks of a module and its parts


def unwatched(*modules: nn.Module) -> bool:
    """Whether nobody hooks a part of these modules: a fused kernel would pass such a hook by."""
    for module in modules:
        tables = _hooks.get(module)
        if tables is None:  # found once: a training step asks hundreds of times
            tables = [table for m in module.modules() for table in (m._forward_hooks, m._forward_pre_hooks)]
            _hooks[module] = tables
        if any(tables):
            return False
    return True
