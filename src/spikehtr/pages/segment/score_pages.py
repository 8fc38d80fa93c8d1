"""A line network on packed pages: a row of figures for each page, and tables of them."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from spikehtr.pages.quarter_turns import as_it_lies
from spikehtr.pages.segment.arrange_lines import ordered
from spikehtr.pages.segment.decode_maps import DecodeOptions
from spikehtr.pages.segment.find_lines import FindOptions, find, first_scale, orient, resized
from spikehtr.pages.segment.line_network import LineNetwork
from spikehtr.pages.segment.measures import page_score
from spikehtr.pages.segment.packed_pages import PackedPage

Row = dict[str, Any]
SCORES = ("recall", "precision", "f", "whole", "split", "merged", "missed", "false", "disorder", "jumps")


def evaluate(
    network: LineNetwork,
    pages: Iterable[PackedPage],
    options: FindOptions | None = None,
    decoding: DecodeOptions | None = None,
) -> Iterator[Row]:
    """Scores, seconds, and which way up every quarter turn of a page was held to be."""
    for page in pages:
        start = time.perf_counter()
        (found,) = find(network, [page.image], options, decoding)
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
    lying = [np.ascontiguousarray(np.rot90(small, -k)) for k in range(4)]
    return sum(one.turns == k for k, one in enumerate(orient(network, lying, [scale] * 4, options))) / 4


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
