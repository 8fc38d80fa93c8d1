"""Hearing of what norms and neurons read and give. They are parts of fused operators, so hooks do not reach them;
layers and blocks are called as modules, and take hooks as any module does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from spikehtr import ops

Hook = Callable[[str, nn.Module, Tensor, Tensor], None]  # name, module, input, output


@contextmanager
def watch(net: nn.Module, hook: Hook, *kinds: type[nn.Module]) -> Iterator[None]:
    """While open, every pass of `net` runs on the reference operators, and `hook(name, module, input, output)` hears of
    every norm or neuron of these kinds (`MaskedGroupNorm`, `TokenNorm`, `MultiStepLIF`)."""
    watched: list[tuple[str, Any]] = [(name, m) for name, m in net.named_modules() if isinstance(m, kinds)]
    before = [module.numbers for _, module in watched]
    try:
        for name, module in watched:
            module.numbers = module.numbers._replace(tap=_tap(hook, name, module, module.numbers.tap))
        with ops.reference():
            yield
    finally:
        for (_, module), numbers in zip(watched, before, strict=True):
            module.numbers = numbers


def _tap(hook: Hook, name: str, module: nn.Module, other: ops.Tap | None) -> ops.Tap:
    def tell(x: Tensor, y: Tensor) -> None:
        if other is not None:
            other(x, y)
        hook(name, module, x, y)

    return tell
