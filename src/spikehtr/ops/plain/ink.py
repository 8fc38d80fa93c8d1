"""InkCoder's evidence (Appendix A): how dark, how edgy, fused over time and cleaned of speckle.

Every spatial operator below sees a line as if nothing stood to its right: columns past its width repeat the last valid
one, and quantiles count valid pixels only. So nothing depends on padding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.ops.masks import at_least_fp32, column_mask
from spikehtr.ops.settings import Ink

_EPS = 1e-6
_NO_CONTRAST = 1e-3  # a quarter of a grey level


def extend(a: Tensor, widths: Tensor) -> Tensor:
    """Repeat each line's last valid column over its padding; a [B, 1, H, W], widths [B]."""
    columns = torch.minimum(torch.arange(a.shape[-1], device=a.device), widths[:, None] - 1)  # [B, W]
    return a.gather(3, columns[:, None, None, :].expand_as(a))


def box_blur(a: Tensor, widths: Tensor, side: int) -> Tensor:
    """Mean over a side x side box, edges repeated."""
    r = side // 2
    return F.avg_pool2d(F.pad(extend(a, widths), (r, r, r, r), mode="replicate"), side, stride=1)


def sobel(a: Tensor, widths: Tensor) -> Tensor:
    """Sobel gradient magnitude (kernels scaled to unit gain), edges repeated."""
    p = F.pad(extend(a, widths), (1, 1, 1, 1), mode="replicate")
    # Shifted differences instead of a convolution, which autocast would move to half precision.
    across = (p[..., 2:] - p[..., :-2]) / 2  # [B, 1, H+2, W]
    down = (p[..., 2:, :] - p[..., :-2, :]) / 2  # [B, 1, H, W+2]
    gx = (across[..., :-2, :] + 2 * across[..., 1:-1, :] + across[..., 2:, :]) / 4
    gy = (down[..., :-2] + 2 * down[..., 1:-1] + down[..., 2:]) / 4
    return torch.sqrt(gx.square() + gy.square() + _EPS**2)


def quantiles(a: Tensor, widths: Tensor, *qs: float) -> list[Tensor]:
    """Per-line quantiles over valid pixels, linearly interpolated; each [B, 1, 1, 1]."""
    outside = ~column_mask(widths, a.shape[-1])
    ordered = a.masked_fill(outside, torch.inf).flatten(1).sort(dim=1).values  # [B, H*W], padding last
    last = widths[:, None] * a.shape[2] - 1  # [B, 1], index of the largest valid value
    values = []
    for q in qs:
        place = last.to(a.dtype) * q
        low = place.floor().long()
        below = ordered.gather(1, low)
        above = ordered.gather(1, torch.minimum(low + 1, last))
        values.append((below + (above - below) * (place - low))[:, :, None, None])
    return values


def normalise_ink(a: Tensor, widths: Tensor, q_low: float, q_high: float) -> Tensor:
    """Q of Eq. 22: 1 at and below the low quantile (ink), 0 at and above the high one (paper)."""
    low, high = quantiles(a, widths, q_low, q_high)
    ink = 1 - ((a - low) / (high - low + _EPS)).clamp(0, 1)
    return ink * (high - low > _NO_CONTRAST)  # by the formula alone an even page would be all ink


def soft_gate(a: Tensor, kappa: float, tau: float) -> Tensor:
    """G of Eq. 23."""
    return torch.sigmoid(kappa * (a - tau))


class InkMaps(NamedTuple):
    """Every map on the way to the evidence; [B, 1, H, W], or [T, B, 1, H, W] where it changes with t."""

    intensity: Tensor  # I_int
    edge_magnitude: Tensor  # E, normalised
    edge: Tensor  # I_edge
    keep: Tensor  # density keep mask on the fused evidence, [T, ...]
    evidence: Tensor  # D_t, [T, ...]


@torch.no_grad()
def ink_maps(gray: Tensor, widths: Tensor, weight: Tensor, ink: Ink) -> InkMaps:
    """gray [B, 1, H, W], widths [B], weight w_t [T] of the edges."""
    intensity, magnitude, edge = _proxies(at_least_fp32(gray), widths, ink)
    fused, kept = [], []
    for w in weight.unbind(0):
        raw = ((1 - w) * intensity + w * edge).clamp(0, 1)  # Eq. 3
        keep = soft_gate(box_blur(raw, widths, ink.density), ink.kappa_density, ink.tau_density) ** ink.gamma_density
        fused.append(raw * keep)  # Eq. 30
        kept.append(keep)
    return InkMaps(intensity, magnitude, edge, torch.stack(kept), torch.stack(fused))


def ink_evidence(gray: Tensor, widths: Tensor, weight: Tensor, ink: Ink) -> Tensor:
    """gray [B, 1, H, W], widths [B], weight w_t [T] of the edges -> D_t [T, B, 1, H, W]; its padding means nothing."""
    return ink_maps(gray, widths, weight, ink).evidence


def _proxies(gray: Tensor, widths: Tensor, ink: Ink) -> tuple[Tensor, Tensor, Tensor]:
    """I_int (Eq. 25), normalised edge magnitude and I_edge (Eqs. 26-28); each [B, 1, H, W]."""
    smooth = box_blur(gray, widths, ink.blur)
    intensity = normalise_ink(smooth, widths, ink.q_low, ink.q_high)
    edges = torch.maximum(sobel(smooth, widths), _coarse_edges(smooth, widths, ink.edge_scale))
    (high,) = quantiles(edges, widths, ink.q_edge)
    magnitude = (edges / (high + _EPS)).clamp(0, 1)
    supported = magnitude * soft_gate(intensity, ink.kappa_int, ink.tau_int)  # edges where there is ink
    coherent = soft_gate(box_blur(supported, widths, ink.density), ink.kappa_edge, ink.tau_edge)
    return intensity, magnitude, supported * coherent


def _coarse_edges(smooth: Tensor, widths: Tensor, s: int) -> Tensor:
    """E^(s): Sobel on the s-times smaller line, enlarged again."""
    height, width = smooth.shape[-2:]
    padded = F.pad(extend(smooth, widths), (0, -width % s, 0, -height % s), mode="replicate")
    small = F.avg_pool2d(padded, s)  # [B, 1, ceil(H/s), ceil(W/s)]
    narrow = (widths + s - 1) // s
    edges = extend(sobel(small, narrow), narrow)
    return F.interpolate(edges, scale_factor=s, mode="bilinear")[..., :height, :width]
