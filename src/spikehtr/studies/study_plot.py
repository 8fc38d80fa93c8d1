"""The plot of a study: our error rates with intervals, a panel for each data set, and the paper's at the right."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from spikehtr.plotting import BLUE, GREEN, ORANGE, PINK, new_figure, plain_axes
from spikehtr.studies.comparisons import number
from spikehtr.studies.study_overlay import Study, Variant
from spikehtr.studies.study_runs import Block, Estimate

_SPLITS = (("validation", BLUE, "o", -0.16), ("test", ORANGE, "s", 0.16))  # shapes differ, too
_PAPER = ((GREEN, "^"), (PINK, "D"), ("0.35", "v"), ("#e69f00", "P"), ("#56b4e9", "X"), ("0.6", "*"))
_RUN: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": 5, "alpha": 0.8}  # one seed's
_LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8, "loc": "lower center", "ncols": 3}
_ABOVE = 24  # points between a panel and its title, where the legend stands


def study_figure(study: Study, blocks: Sequence[Block]) -> Figure:
    """Rows from top to bottom as in the table, but for those with nothing to show, or curves over an axis; CER,
    %, and each seed's as a cross."""
    if study.axis:
        return _curves(study, blocks)
    rows = [row for block in blocks for row in block.rows]
    ran = {row.variant.name for row in rows if row.runs}
    asked = {row.variant.name for row in rows if row.shown}
    shown = [v for v in study.variants if v.name in ran or (v.paper and v.name in asked)]
    blocks = [Block(block.data, [block.row(variant.name) for variant in shown]) for block in blocks]
    high, panels = max(1, len(shown)), max(1, len(blocks) + bool(study.paper.rates))
    figure = new_figure(3.2 + 3.4 * panels, 1.7 + 0.42 * high)
    axes = figure.subplots(1, panels, squeeze=False, sharey=True)[0]
    for panel, block in zip(axes, blocks, strict=False):
        _ours(panel, block)
    if study.paper.rates:
        _papers(axes[-1], study, shown)
    axes[0].set_yticks(range(len(shown)), [fill(variant.label, 32) for variant in shown])
    axes[0].set_ylim(high - 0.5, -0.5)
    plain_axes(*axes)
    for panel in axes:
        panel.set_xlabel("CER, %")
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        if panel.get_legend_handles_labels()[0]:
            panel.legend(**_LEGEND, bbox_to_anchor=(0.5, 1.0))
    return figure


def _ours(panel: Axes, block: Block) -> None:
    panel.set_title(f"ours: {block.data}", fontsize=10, pad=_ABOVE)
    for split, colour, marker, shift in _SPLITS:
        found = [(place, block.estimate(row, split, "cer")) for place, row in enumerate(block.rows)]
        known = [(place, estimate) for place, estimate in found if estimate is not None]
        if not known:
            continue
        middles, reach = _bars([estimate for _, estimate in known])
        places = [place + shift for place, _ in known]
        panel.errorbar(
            middles, places, xerr=reach, fmt=marker, color=colour, capsize=3, markersize=5, linewidth=1.2, label=split
        )
        single = _runs([estimate for _, estimate in known], places)
        panel.plot(*reversed(single), color=colour, **_RUN)


def _curves(study: Study, blocks: Sequence[Block]) -> Figure:
    """A panel for each data set; test lines where there are any."""
    figure = new_figure(1.2 + 4.4 * max(1, len(blocks)), 3.8)
    ran = [row.variant for block in blocks for row in block.rows if row.runs]
    places = sorted({variant.at for variant in ran if variant.at is not None})
    series = list(dict.fromkeys(variant.series for variant in study.variants))
    panels = figure.subplots(1, max(1, len(blocks)), squeeze=False, sharey=True)[0]
    for panel, block in zip(panels, blocks, strict=False):
        split = "test" if any(row.seeds("test") for row in block.rows) else "validation"
        for (colour, marker), name in zip(_PAPER, series, strict=False):
            known = [
                (row.variant.at, estimate)
                for row in block.rows
                if row.variant.series == name and (estimate := block.estimate(row, split, "cer")) is not None
            ]
            if known:
                x, estimates = zip(*sorted(known, key=lambda pair: pair[0] or 0), strict=True)
                middles, reach = _bars(estimates)
                panel.errorbar(
                    x, middles, yerr=reach, color=colour, marker=marker, capsize=3, linewidth=1.4, label=name
                )
                panel.plot(*_runs(estimates, x), color=colour, **_RUN)
        panel.set_xscale("symlog", linthresh=next((place for place in places if place > 0), 1))
        panel.set_xticks(places, [f"{place:,.0f}" for place in places])
        panel.minorticks_off()
        panel.set_ylim(bottom=0)
        panel.set_xlabel(study.axis)
        panel.set_title(f"{block.data}, {split} lines", fontsize=10)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(frameon=False, fontsize=9)
    plain_axes(*panels)
    panels[0].set_ylabel("CER, %")
    return figure


def _bars(estimates: Sequence[Estimate]) -> tuple[list[float], list[list[float]]]:
    """Means, and how far their intervals reach down and up, in percent."""
    middles = [100 * e.mean for e in estimates]
    down = [100 * (e.mean - e.interval[0]) if e.interval else 0.0 for e in estimates]
    up = [100 * (e.interval[1] - e.mean) if e.interval else 0.0 for e in estimates]
    return middles, [down, up]


def _runs(estimates: Sequence[Estimate], places: Sequence[float]) -> tuple[list[float], list[float]]:
    """Where each run of those with several stands: its row's place, its rate in percent."""
    points = [
        (place, 100 * v) for place, e in zip(places, estimates, strict=True) if len(e.values) > 1 for v in e.values
    ]
    return [place for place, _ in points], [rate for _, rate in points]


def _papers(panel: Axes, study: Study, shown: Sequence[Variant]) -> None:
    panel.set_title(f"paper: {study.paper.split}", fontsize=10, pad=_ABOVE)
    for (colour, marker), name in zip(_PAPER, study.paper.rates, strict=False):
        column = study.paper.columns.index(name)
        printed = [(place, number(v.paper[column], "cer")) for place, v in enumerate(shown) if v.paper]
        points = [(value, place) for place, value in printed if value is not None]
        if points:
            x, y = zip(*points, strict=True)
            panel.plot(x, y, linestyle="none", marker=marker, color=colour, markerfacecolor="none", label=name)
