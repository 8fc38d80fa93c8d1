"""Every segmenter by its name: the line network, the rules, kraken's, or a line network of one's own by its file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from spikehtr.assets import SEGMENTER
from spikehtr.data.formats.outlines import Points
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.found import FoundLayout, FoundLine, FoundRegion, LayoutOptions, Segmenter
from spikehtr.pages.quarter_turns import as_it_lies, upright_image

NAMES = ("network", "rules", "kraken")
DEFAULT = "network"  # what `builtin` stands for
SUFFIX = ".safetensors"


def segmenter(name: str, device: str = "cpu", layout: LayoutOptions | None = None) -> Segmenter:
    """One of NAMES, `builtin`, or the weight file of a line network; `device` is for networks."""
    layout = layout or LayoutOptions()
    name = DEFAULT if name == "builtin" else name
    if name == "rules":
        from spikehtr.pages.rule_segmenter import RuleSegmenter, find_lines

        return _turned(RuleSegmenter(layout) if layout.spread != "auto" else find_lines, layout)
    if name == "kraken":
        from spikehtr.pages.kraken_segmenter import kraken_segmenter

        if layout.spread != "auto":
            raise SpikeHTRError("kraken's segmenter takes no word on spreads: leave --spread and --single out")
        return _turned(kraken_segmenter(), layout)
    if name == "network":
        if not SEGMENTER.is_file():
            raise SpikeHTRError(
                "this version comes without a line network: train one (`spikehtr segmenter train`) and name its file, "
                "or take --segmenter rules"
            )
        return _network(SEGMENTER, device, layout)
    if name.endswith(SUFFIX):
        return _network(Path(name), device, layout)
    raise SpikeHTRError(f"no segmenter {name!r}: there are {', '.join(NAMES)}, and weight files ({SUFFIX})")


def _network(weights: Path, device: str, layout: LayoutOptions) -> Segmenter:
    """A file that is none is found out now, not page by page."""
    from spikehtr.pages.network_segmenter import NetworkSegmenter
    from spikehtr.pages.segment.network_weights import line_network_header

    line_network_header(weights)
    return NetworkSegmenter(weights.absolute(), device, layout)


def _turned(find: Segmenter, layout: LayoutOptions) -> Segmenter:
    return TurnedFirst(find, layout.turns) if layout.turns else find


@dataclass(frozen=True)
class TurnedFirst:
    """For segmenters that know upright pages only: turns a page upright, and what they find back."""

    find: Segmenter
    turns: int

    def __call__(self, page: Image.Image) -> FoundLayout:
        found = self.find(upright_image(page, self.turns))
        layout = found if isinstance(found, FoundLayout) else FoundLayout(found)

        def back(points: Points) -> Points:
            return tuple((x, y) for x, y in as_it_lies(np.array(points), self.turns, page.size[::-1]).tolist())

        regions = [
            FoundRegion([FoundLine(back(one.baseline), back(one.polygon)) for one in region.lines], region.kind)
            for region in layout.regions
        ]
        return FoundLayout(regions, layout.remarks)
