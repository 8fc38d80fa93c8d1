"""Import this before any kernel: they are tested on a GPU where there is one, in Triton's interpreter elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from conftest import ask_for


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


def both_ways(module, inputs, monkeypatch, *rest):
    """Outputs and gradients (of inputs, then parameters), reference first.

    The gradient that comes in is all of one sign: a parameter's own is a sum over the map, and would else be a small
    difference of large numbers, which no tolerance fits.
    """
    answers = []
    for way in ("reference", "triton"):
        ask_for(monkeypatch, way)
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        y = module(*leaves, *rest)
        g = torch.Generator().manual_seed(1)
        weights = torch.rand(y.shape, generator=g).to(y.device, y.dtype)
        found = torch.autograd.grad((y * weights).sum(), [*leaves, *module.parameters()])
        answers.append([y, *found])
    return answers


def assert_close(answers, tolerance):
    for plain, quick in zip(*answers, strict=True):
        assert plain.shape == quick.shape
        assert plain.dtype == quick.dtype
        error = (plain.double() - quick.double()).norm() / plain.double().norm().clamp(min=1e-9)
        assert error <= tolerance
