"""kraken's baseline segmenter with the model it ships, as one of ours. Slow on a CPU, and it wants torchvision."""

from __future__ import annotations

import threading
from importlib import import_module
from typing import Any

from PIL import Image

from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLine, FoundRegion, Segmenter

HOW = (
    "the segmenter kraken needs kraken and torchvision, which pin other versions than ours. In an environment of its "
    "own: pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu, then "
    "pip install '.[kraken]' in a checkout of spikehtr"
)


def kraken_segmenter() -> Segmenter:
    try:
        blla = import_module("kraken.blla")
    except ImportError as error:
        raise SpikeHTRError(f"{HOW} ({error})") from None
    except RuntimeError as error:  # a torchvision that was built for another torch
        raise SpikeHTRError(f"torchvision does not fit this torch ({error}). {HOW}") from None
    lock = threading.Lock()  # its network keeps state while it runs

    def find(page: Image.Image) -> list[FoundRegion]:
        with lock:
            return regions_of(blla.segment(page.convert("RGB")))

    return find


def regions_of(segmentation: Any) -> list[FoundRegion]:
    """Lines in kraken's reading order; those of one region that follow each other stay together."""
    regions: list[FoundRegion] = []
    before: object = None
    for line in segmentation.lines:
        if not line.baseline or not line.boundary:
            continue
        region = line.regions[0] if line.regions else None
        if not regions or region != before:
            regions.append(FoundRegion())
        before = region
        baseline, polygon = (tuple((float(x), float(y)) for x, y in part) for part in (line.baseline, line.boundary))
        regions[-1].lines.append(FoundLine(baseline, polygon))
    return regions
