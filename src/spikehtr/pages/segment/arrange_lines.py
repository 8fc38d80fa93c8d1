"""Lines that a network found, as regions in reading order: level ones by columns and rows, upright ones beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spikehtr.pages.order_lines import Placed, in_order
from spikehtr.pages.quarter_turns import quarter
from spikehtr.pages.segment.decode_maps import DecodedLine

SIZES_TO_A_LINE = 4.5  # the height of a line in the sizes that `pages.order_lines` counts in


class LineRegion(NamedTuple):
    lines: list[DecodedLine]
    kind: str


def arrange(lines: Sequence[DecodedLine], folds: Sequence[float] = ()) -> list[LineRegion]:
    """Regions of an upright page in reading order; `folds`: the x of the gutter between two pages.

    Lines that run up or down the page are regions of their own, after the others: notes in the margin mostly.
    """
    directions = [quarter(line.points[[0, -1]].tolist()) for line in lines]
    level = [line for line, turns in zip(lines, directions, strict=True) if turns % 2 == 0]
    placed = [Placed(_rightward(line.points), line.points, line.height / SIZES_TO_A_LINE) for line in level]
    of = {id(one): line for one, line in zip(placed, level, strict=True)}
    regions = [LineRegion([of[id(one)] for one in part], kind) for part, kind in in_order(placed, folds)]
    for turns in (1, 3):
        steep = [line for line, its in zip(lines, directions, strict=True) if its == turns]
        regions += [LineRegion(part, "marginalia") for part in _side_by_side(steep, turns)]
    return regions


def ordered(lines: Sequence[DecodedLine], folds: Sequence[float] = ()) -> list[DecodedLine]:
    """Lines in reading order."""
    return [line for region in arrange(lines, folds) for line in region.lines]


def _rightward(points: Any) -> Any:
    return points if points[-1, 0] >= points[0, 0] else points[::-1]


def _side_by_side(lines: Sequence[DecodedLine], turns: int) -> list[list[DecodedLine]]:
    """Upright lines in parts that lie beside each other, each part as it is read with the page turned: lines that run
    down the page from right to left, those that run up from left to right."""
    parts: list[list[DecodedLine]] = []
    for line in sorted(lines, key=lambda one: float(one.points[:, 0].mean()), reverse=turns == 1):
        for part in parts:
            last = part[-1]
            apart = abs(float(line.points[:, 0].mean() - last.points[:, 0].mean()))
            low = max(line.points[:, 1].min(), last.points[:, 1].min())
            high = min(line.points[:, 1].max(), last.points[:, 1].max())
            if apart < 2.5 * max(line.height, last.height) and high > low:
                part.append(line)
                break
        else:
            parts.append([line])
    return sorted(parts, key=lambda part: float(np.mean([one.points[:, 1].mean() for one in part])))
