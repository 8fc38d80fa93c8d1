"""Spike-HTR: a spiking transformer that reads handwriting.

The names here are the public ones. They load on first use, so that `import spikehtr` (and `spikehtr --help`) is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spikehtr.version import __version__

if TYPE_CHECKING:
    from spikehtr.config import Config
    from spikehtr.model.spike_htr import SpikeHTR
    from spikehtr.recognizer import Recognizer
    from spikehtr.results import Line, Page

_HOMES = {
    "Config": "spikehtr.config",
    "SpikeHTR": "spikehtr.model.spike_htr",
    "Recognizer": "spikehtr.recognizer",
    "Line": "spikehtr.results",
    "Page": "spikehtr.results",
}

__all__ = ["Config", "Line", "Page", "Recognizer", "SpikeHTR", "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spikehtr' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
