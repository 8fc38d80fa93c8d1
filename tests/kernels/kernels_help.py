"""Import this before any kernel: they are tested on a GPU where there is one, in Triton's interpreter elsewhere."""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
pytest.importorskip("triton", reason="Triton is not installed", exc_type=ImportError)
needs_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")


def soft(neuron: torch.nn.Module, softness: float) -> torch.nn.Module:
    """The neuron with spikes so soft."""
    neuron.softness = softness
    return neuron
