"""Figures in one manner: drawn without a display, with plain axes, in colours that colour-blind people tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from spikehtr.errors import SpikeHTRError
from spikehtr.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"


def new_figure(width: float, height: float, dpi: int = 110) -> Figure:
    """An empty figure, inches wide and high, whose panels find their own places."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(*panels: Axes) -> None:
    """A pale grid behind what is drawn, and no frame at the top and at the right."""
    for panel in panels:
        panel.grid(color="0.92")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)


def plain_numbers(axis: Any) -> None:
    """On a logarithmic axis 0.1 and 1 instead of powers of ten, and nothing between them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG."""
    try:
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="png")
    except OSError as error:
        raise SpikeHTRError(f"{path}: cannot be written ({error.strerror or error})") from None
