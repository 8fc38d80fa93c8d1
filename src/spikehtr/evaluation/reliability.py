"""The reliability picture: how often a model is right against how sure it says it is."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from spikehtr.plotting import BLUE, ORANGE, new_figure, plain_axes


def draw_reliability(calibration: dict[str, Any]) -> Figure:
    """`calibration_summary` as two panels, characters and words; a dot a bin, the larger the more it holds."""
    figure = new_figure(7.2, 3.4, dpi=100)
    kinds = [("raw", "as the network says", ORANGE)]
    if calibration["characters"]["calibrated"] != calibration["characters"]["raw"]:
        kinds.append(("calibrated", "calibrated", BLUE))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, name in zip(panels, ("characters", "words"), strict=True):
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle="--")
        part = calibration[name]
        for kind, label, colour in kinds:
            bins = [b for b in part[kind]["reliability"] if b["count"]]
            sure, right = [b["confidence"] for b in bins], [b["right"] for b in bins]
            sizes = [12 + 100 * (b["count"] / max(1, part["count"])) ** 0.5 for b in bins]
            panel.plot(sure, right, color=colour, linewidth=1, label=f"{label}: ECE {part[kind]['ece']:.3f}")
            panel.scatter(sure, right, s=sizes, color=colour, alpha=0.6, linewidths=0)
        panel.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=f"confidence of {name}")
        panel.legend(frameon=False, loc="upper left", fontsize=8)
    plain_axes(*panels)
    panels[0].set_ylabel("share that is right")
    return figure
