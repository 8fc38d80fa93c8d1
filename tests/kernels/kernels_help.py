"""Import this before any kernel: they are tested on a GPU where there is one, in Triton's interpreter elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch


def patch_the_language_once() -> None:
    """Triton's interpreter patches its language again for every function that a kernel calls, which takes a third of a
    kernel's time; once a launch for each module whose functions are called is enough."""
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "_LangPatchScope")):
        return  # another version's, which is only slower
    patch, restore = interpreter._patch_lang, interpreter._LangPatchScope.restore
    patched = set()  # the modules' names, since the kernel was launched

    def patch_once(function: Callable[..., object]) -> object:
        module = function.__globals__["__name__"]
        if module in patched:
            return None  # only a launch, which is the first to come here, asks for it
        patched.add(module)
        return patch(function)

    def restore_after_a_launch(scope: object) -> None:
        patched.clear()
        restore(scope)

    interpreter._patch_lang = patch_once
    interpreter._LangPatchScope.restore = restore_after_a_launch


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
pytest.importorskip("triton", reason="Triton is not installed", exc_type=ImportError)
if DEVICE.type == "cpu":
    patch_the_language_once()
needs_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")


def soft(neuron: torch.nn.Module, softness: float) -> torch.nn.Module:
    """The neuron with spikes so soft."""
    neuron.softness = softness
    return neuron
