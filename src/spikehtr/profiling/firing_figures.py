"""The figures of the spike diagnostics: four panels about firing rates, and the energy ratio against rho."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spikehtr.plotting import BLUE, GREEN, ORANGE, PINK, new_figure, plain_axes, plain_numbers
from spikehtr.profiling.energy import RHO, RHOS, EnergyRow
from spikehtr.profiling.firing import Firing, shares
from spikehtr.profiling.paper_names import ENCODER, MIXER

_LOOK = {ENCODER: (BLUE, "o"), MIXER: (ORANGE, "s")}  # told apart by shape too
_TOP = 10


def firing_figure(rows: Sequence[Firing]) -> Figure:
    """CDF, histogram, top modules by rate, and spike share against rate (fig:snn_sparsity_main)."""
    figure = new_figure(11, 8)
    (cdf, histogram), (top, scatter) = figure.subplots(2, 2)
    rates = np.sort([row.rate for row in rows])
    cdf.step([0, *rates], [0, *(np.arange(len(rates)) + 1) / len(rates)], where="post", color="0.2")
    cdf.set(title="(a) Firing rates, cumulative", xlabel="firing rate $r_m$", ylabel="share of modules", ylim=(0, 1.02))
    edges = np.linspace(0, max(float(rates[-1]), 1e-6), 21)
    groups = [name for name in (ENCODER, MIXER) if any(row.group == name for row in rows)]
    histogram.hist(
        [[row.rate for row in rows if row.group == name] for name in groups],
        edges,
        stacked=True,
        color=[_LOOK[name][0] for name in groups],
        label=groups,
        edgecolor="white",
    )
    histogram.set(title="(b) Firing rates, histogram", xlabel="firing rate $r_m$", ylabel="modules")
    histogram.yaxis.get_major_locator().set_params(integer=True)
    histogram.legend(frameon=False)
    _top_panel(top, sorted(rows, key=lambda row: -row.rate)[:_TOP])
    _scatter_panel(scatter, rows, groups)
    plain_axes(cdf, histogram, top, scatter)
    return figure


def _top_panel(panel: Axes, rows: Sequence[Firing]) -> None:
    panel.barh([row.name for row in rows], [row.rate for row in rows], color=[_LOOK[row.group][0] for row in rows])
    panel.invert_yaxis()
    panel.set(title="(c) Top modules by firing rate", xlabel="firing rate $r_m$")


def _scatter_panel(panel: Axes, rows: Sequence[Firing], groups: Sequence[str]) -> None:
    share = shares(rows)
    for name in groups:
        colour, marker = _LOOK[name]
        points = [(row.rate, 100 * s) for row, s in zip(rows, share, strict=True) if row.group == name and s > 0]
        if points:
            panel.scatter(*zip(*points, strict=True), color=colour, marker=marker, alpha=0.75, label=name)
    panel.set_yscale("log")
    plain_numbers(panel.yaxis)
    panel.set(title="(d) Share of all spikes against rate", xlabel="firing rate $r_m$", ylabel="spike share $s_m$, %")
    panel.set_xlim(left=0)
    panel.legend(frameon=False)


def energy_figure(rows: Sequence[EnergyRow]) -> Figure:
    """E / E_dense of each accounting against rho (fig:ideal_sweep); log scale: the ideal is far below the others."""
    figure = new_figure(6.5, 4.5)
    panel = figure.subplots()
    looks = ((BLUE, "o", "-"), (GREEN, "^", "--"), (PINK, "v", ":"), (ORANGE, "s", "-"))
    for row, (colour, marker, line) in zip(rows, looks, strict=False):
        panel.plot(RHOS, [row.ratio(r) for r in RHOS], color=colour, marker=marker, linestyle=line, label=row.name)
    panel.axvline(RHO, color="0.5", linewidth=1, linestyle=":")
    panel.text(
        RHO + 0.3, 0.5, f"45 nm, fp32: {RHO:.2f}", transform=panel.get_xaxis_transform(), color="0.35", fontsize=9
    )
    panel.axhline(1, color="0.5", linewidth=1)
    panel.set_yscale("log")
    panel.set_xticks(RHOS)
    panel.set(xlabel=r"$\rho = E_{MAC} / E_{AC}$", ylabel=r"$E / E_{dense}$ (arithmetic only)")
    plain_numbers(panel.yaxis)
    plain_axes(panel)
    panel.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.45))
    return figure
