"""A line network on packed pages: a row of figures for each page, and tables of them."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from spikehtr.pages.order_lines import Placed, in_order
from spikehtr.pages.segment.decode_maps import DecodedLine, DecodeOptions
from spikehtr.pages.segment.find_lines import FindOptions, as_it_lies, find, first_scale, orient, resized
from spikehtr.pages.segment.line_network import LineNetwork
from spikehtr.pages.segment.measures import page_score
from spikehtr.pages.segment.packed_pages import PackedPage

Row = dict[str, Any]
SCORES = ("recall", "precision", "f", "whole", "split", "merged", "missed", "false", "disorder", "jumps")
SIZES_TO_A_LINE = 4.5  # the height of a line in the sizes that `pages.order_lines` counts in


def ordered(lines: Sequence[DecodedLine]) -> list[DecodedLine]:
    """Lines in reading order."""
    placed = [Placed(_rightward(line.points), line.polygon, line.height / SIZES_TO_A_LINE) for line in lines]
    numbers = {id(one.polygon): number for number, one in enumerate(placed)}
    return [lines[numbers[id(one.polygon)]] for region, _ in in_order(placed, []) for one in region]


def _rightward(points: Any) -> Any:
    return points if points[-1, 0] >= points[0, 0] else points[::-1]


def evaluate(
    network: LineNetwork,
    pages: Iterable[PackedPage],
    options: FindOptions | None = None,
    decoding: DecodeOptions | None = None,
) -> Iterator[Row]:
    """Scores, seconds, and which way up every quarter turn of a page was held to be."""
    for page in pages:
        start = time.perf_counter()
        found = find(network, page.image, options, decoding)
        lines = ordered(found.lines)
        seconds = time.perf_counter() - start
        points = [as_it_lies(line.points, found.turns, page.image.shape) for line in lines]
        scores = page_score([line.points for line in page.labels.lines], points)
        yield {
            "page": page.name,
            "collection": page.collection,
            "group": page.group,
            **{name: round(value, 4) for name, value in scores._asdict().items()},
            "found": len(lines),
            "height": round(page.labels.height, 1),
            "seen height": round(found.height, 1),
            "scale": round(found.scale, 3),
            "seconds": round(seconds, 3),
            "turns right": turns_right(network, page, options or FindOptions()),
        }


def turns_right(network: LineNetwork, page: PackedPage, options: FindOptions) -> float:
    """The share of the four ways to lay a page of which it is found which it is."""
    scale = first_scale(page.image, options)
    small = resized(page.image, scale)
    lying = (np.ascontiguousarray(np.rot90(small, -k)) for k in range(4))
    return sum(orient(network, one, scale, options).turns == k for k, one in enumerate(lying)) / 4


def table(rows: Iterable[Row], by: str) -> list[str]:
    """Means over pages, a line for each value of `by` and one for all."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[by]].append(row)
        groups["all"].append(row)
    names = (*SCORES, "turns right", "seconds")
    out = [f"{by:20} pages " + " ".join(f"{name[:9]:>9}" for name in names)]
    for group in sorted(groups, key=lambda name: (name == "all", name)):
        means = [statistics.fmean(row[name] for row in groups[group]) for name in names]
        out.append(f"{group[:20]:20} {len(groups[group]):5} " + " ".join(f"{mean:9.3f}" for mean in means))
    return out
