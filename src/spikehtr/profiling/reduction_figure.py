"""The reduction drawn on a line: what the preview thinks, what is kept and why, what is merged, and what is read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.config import ReducerConfig
from spikehtr.data.batching import to_batch
from spikehtr.data.sheet import printable
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.model.network import Network
from spikehtr.model.reducer import Reduction
from spikehtr.plotting import BLUE, GREEN, ORANGE, new_figure, plain_axes
from spikehtr.text import BLANK, Charset

LIKELY, UNCERTAIN, FILLED, LEFT = range(4)
_COLOURS = (BLUE, "#e69f00", GREEN, "#d9d9d9")
_SECOND_GREY = "#a6a6a6"  # every other merged span, so that neighbours can be told apart


class ReductionTrace(NamedTuple):
    """One line of L0 positions, `stride` pixels each."""

    blank: NDArray[np.float64]  # [L0] posterior
    entropy: NDArray[np.float64]  # [L0] nats
    kind: NDArray[np.int64]  # [L0] why it is kept, or LEFT
    spans: NDArray[np.int64]  # [L, 2] positions of each token
    characters: list[tuple[str, float, float]]  # and the pixels they were read from
    text: str
    ratio: float  # r, l_b / L0
    stride: int


@torch.no_grad()
def trace_reduction(net: Network, charset: Charset, line: NDArray[np.uint8]) -> ReductionTrace:
    """Read one fitted line and note what the reducer did."""
    c = net.config.reducer
    if c.mode == "none":
        raise SpikeHTRError("this model does not reduce its tokens (model.reducer.mode is none): nothing to draw")
    seen: list[tuple[Tensor, Reduction]] = []

    def note(_: Any, inputs: tuple[Tensor, ...], output: Reduction) -> None:
        seen.append((inputs[2], output))

    handle = net.reducer.register_forward_hook(note)  # type: ignore[union-attr]
    try:
        images, widths = to_batch([line])
        out = net(images.to(next(net.parameters()).device), widths)
    finally:
        handle.remove()
    preview, reduction = seen[0]
    log_pi = preview[0].float().log_softmax(-1).cpu()  # [L0, V]
    blank, entropy = log_pi[:, BLANK].exp(), torch.special.entr(log_pi.exp()).sum(-1)
    whole = -(-line.shape[1] // net.stride)
    kind = _kinds(blank, entropy, reduction.kept[0].cpu(), c)[:whole]
    count = int(out.lengths[0])
    spans = out.spans[0, :count].cpu().numpy()
    decoded = decode_greedy(out.logits, out.lengths, charset)[0]
    places = [
        (s.character, float(spans[s.start, 0] * net.stride), float(spans[s.end - 1, 1] * net.stride))
        for s in decoded.spans
    ]
    numbers = (blank[:whole].double().numpy(), entropy[:whole].double().numpy(), kind.numpy(), spans)
    return ReductionTrace(*numbers, places, decoded.text, float(out.keep_ratio[0]), net.stride)


def _kinds(blank: Tensor, entropy: Tensor, kept: Tensor, c: ReducerConfig) -> Tensor:
    kind = torch.full(blank.shape, LEFT)
    kind[kept] = FILLED
    if c.mode != "merge-only":
        kind[kept & (entropy > c.eta)] = UNCERTAIN
    kind[kept & (blank < c.tau)] = LIKELY
    return kind


def reduction_figure(line: NDArray[np.uint8], trace: ReductionTrace, config: ReducerConfig, title: str) -> Figure:
    """From the top: the line, blank posterior with tau, entropy with eta, what became of each position, the text."""
    width = line.shape[1]
    across = min(max(width / 36, 7.0), 16.0)
    heights = [max(0.9, across * line.shape[0] / width), 1.3, 1.0, 0.45, 0.45]
    figure = new_figure(across, sum(heights) + 2.2)
    figure.suptitle(printable(title, 110), fontsize=11, parse_math=False)
    image, posterior, entropy, strip, text = figure.subplots(5, 1, sharex=True, height_ratios=heights)
    image.imshow(line, cmap="gray", vmin=0, vmax=255, aspect="auto", extent=(0, width, line.shape[0], 0))
    image.set_yticks([])
    centres = (np.arange(len(trace.blank)) + 0.5) * trace.stride
    _curve(posterior, centres, trace.blank, config.tau, r"$\tau$", "blank\nposterior")
    posterior.set_ylim(-0.03, 1.08)
    _curve(entropy, centres, trace.entropy, config.eta, r"$\eta$", "entropy,\nnats")
    _strip(strip, trace, "pruned" if config.mode == "prune-only" else "merged", figure)
    _text(text, trace)
    text.set_xlim(0, width)
    text.set_xlabel("pixels along the line, as the network sees it")
    return figure


def _curve(panel: Axes, x: NDArray[Any], y: NDArray[Any], bound: float, name: str, label: str) -> None:
    panel.plot(x, y, color="0.2", linewidth=1.2, drawstyle="steps-mid")
    panel.axhline(bound, color=ORANGE, linestyle="--", linewidth=1)
    panel.annotate(
        f"{name} = {bound:g}", (1, bound), (3, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8
    )
    panel.set_ylabel(label, fontsize=8)
    plain_axes(panel)


def _strip(panel: Axes, trace: ReductionTrace, left: str, figure: Figure) -> None:
    """A box for each token, as wide as the positions it covers; pruned positions, which have none, one by one."""
    covered = np.zeros(len(trace.kind), dtype=bool)
    for number, (first, end) in enumerate(trace.spans):
        covered[first:end] = True
        kind = int(trace.kind[first])
        colour = _SECOND_GREY if kind == LEFT and number % 2 else _COLOURS[kind]
        _box(panel, first, end, trace.stride, colour)
    for place in np.flatnonzero(~covered):
        _box(panel, int(place), int(place) + 1, trace.stride, _COLOURS[LEFT])
    panel.set(ylim=(0, 1), yticks=[])
    panel.set_ylabel("tokens", fontsize=8)
    counts = [int((trace.kind == kind).sum()) for kind in range(4)]
    names = ("likely a character", "else uncertain", "kept to fill the minimum", left)
    told = [Patch(color=c, label=f"{n}: {k}") for c, n, k in zip(_COLOURS, names, counts, strict=True)]
    figure.legend(handles=told, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def _box(panel: Axes, first: int, end: int, stride: int, colour: str) -> None:
    panel.axvspan(first * stride, end * stride, facecolor=colour, edgecolor="white", linewidth=0.5)


def _text(panel: Axes, trace: ReductionTrace) -> None:
    for character, x0, x1 in trace.characters:
        shown = "\u2423" if character == " " else printable(character, 2)
        panel.text((x0 + x1) / 2, 0.5, shown, ha="center", va="center", fontsize=10, parse_math=False, clip_on=True)
    panel.set(ylim=(0, 1), yticks=[])
    panel.set_ylabel("read", fontsize=8)
    panel.spines[["top", "right", "left"]].set_visible(False)
