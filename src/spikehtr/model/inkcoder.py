"""InkCoder (Section 3.2, Appendix A): one static line -> T spatial gates, coarse to fine.

Deterministic evidence of two kinds (how dark, how edgy), fused over time, cleaned of speckle and soft-thresholded.
Only two scalars are learned, s_alpha and b_alpha (the sharpness of the gate). Every spatial operator below sees a
line as if nothing stood to its right: columns past its width repeat the last valid one, and quantiles count valid
pixels only. So the gates do not depend on padding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr import kernels
from spikehtr.config import InkCoderConfig
from spikehtr.errors import SpikeHTRError
from spikehtr.model.masking import column_mask, wide

_EPS = 1e-6
_NO_CONTRAST = 1e-3  # a quarter of a grey level
_LUMA = (0.299, 0.587, 0.114)


def to_gray(images: Tensor) -> Tensor:
    """[B, 1 or 3, H, W] -> [B, 1, H, W] in fp32, by luminance."""
    images = wide(images)
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


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


class InkTrace(NamedTuple):
    """Every map on the way from a grey line to its gates; [B, 1, H, W], or [T, B, 1, H, W] where it changes with t."""

    gray: Tensor
    intensity: Tensor  # I_int
    edge_magnitude: Tensor  # E, normalised
    edge: Tensor  # I_edge
    keep: Tensor  # density keep mask on the fused evidence, [T, ...]
    evidence: Tensor  # D_t, [T, ...]
    gates: Tensor  # g_t, [T, ...]
    theta: Tensor  # [T]


class InkCoder(nn.Module):
    """gray [B, 1, H, W] in [0, 1] (ink dark), widths [B] -> gates [T, B, 1, H, W] in [0, 1], 0 in the padding."""

    def __init__(self, config: InkCoderConfig, timesteps: int) -> None:
        super().__init__()
        if timesteps < 1:
            raise SpikeHTRError(f"timesteps must be 1 or more, not {timesteps}")
        self.config, self.timesteps = config, timesteps
        self.s_alpha = nn.Parameter(torch.ones(()))
        self.b_alpha = nn.Parameter(torch.zeros(()))

    def forward(self, gray: Tensor, widths: Tensor) -> Tensor:
        if gray.dim() != 4 or gray.shape[1] != 1 or widths.shape != gray.shape[:1]:
            shapes = f"{list(gray.shape)} and {list(widths.shape)}"
            raise SpikeHTRError(f"InkCoder takes gray lines [B, 1, H, W] and their widths [B], not {shapes}")
        if kernels.fast(gray):
            from spikehtr.kernels.evidence import evidence

            return self._gates(evidence(wide(gray), widths, self.schedules()[2], self.config), widths)
        return self.trace(gray, widths).gates

    def schedules(self) -> tuple[Tensor, Tensor, Tensor]:
        """theta_t, a_t before its learned calibration, w_t (Eq. 32); each [T]."""
        c = self.config
        step = torch.arange(self.timesteps, device=self.s_alpha.device, dtype=self.s_alpha.dtype)
        lam = step / max(self.timesteps - 1, 1)
        theta = c.theta_min + (c.theta_max - c.theta_min) * lam**c.gamma_theta
        if c.theta == "fixed":
            theta = torch.full_like(theta, (c.theta_min + c.theta_max) / 2)
        weight = {"both": torch.sigmoid(c.s_w * (lam + c.b_w)), "intensity": 0 * lam, "edge": 0 * lam + 1}[c.evidence]
        return theta, c.a0 * (1 - c.eta_a * lam), weight

    def trace(self, gray: Tensor, widths: Tensor) -> InkTrace:
        c = self.config
        theta, _, weight = self.schedules()
        with torch.no_grad():
            intensity, magnitude, edge = self._proxies(wide(gray), widths)
            fused, kept = [], []
            for w in weight.unbind(0):
                raw = ((1 - w) * intensity + w * edge).clamp(0, 1)  # Eq. 3
                keep = soft_gate(box_blur(raw, widths, c.density), c.kappa_density, c.tau_density) ** c.gamma_density
                fused.append(raw * keep)  # Eq. 30
                kept.append(keep)
            evidence, keeps = torch.stack(fused), torch.stack(kept)  # [T, B, 1, H, W]
        return InkTrace(gray, intensity, magnitude, edge, keeps, evidence, self._gates(evidence, widths), theta)

    def _gates(self, evidence: Tensor, widths: Tensor) -> Tensor:
        """Evidence D_t [T, B, 1, H, W] -> gates g_t (Eq. 4), 0 in the padding."""
        theta, sharpness, _ = self.schedules()
        along_t = (-1, 1, 1, 1, 1)
        a = (sharpness * self.s_alpha + self.b_alpha).view(along_t)
        return torch.sigmoid(a * (evidence - theta.view(along_t))) * column_mask(widths, evidence.shape[-1])

    def _proxies(self, gray: Tensor, widths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """I_int (Eq. 25), normalised edge magnitude and I_edge (Eqs. 26-28); each [B, 1, H, W]."""
        c = self.config
        smooth = box_blur(gray, widths, c.blur)
        intensity = normalise_ink(smooth, widths, c.q_low, c.q_high)
        edges = torch.maximum(sobel(smooth, widths), self._coarse_edges(smooth, widths))
        (high,) = quantiles(edges, widths, c.q_edge)
        magnitude = (edges / (high + _EPS)).clamp(0, 1)
        supported = magnitude * soft_gate(intensity, c.kappa_int, c.tau_int)  # edges where there is ink
        coherent = soft_gate(box_blur(supported, widths, c.density), c.kappa_edge, c.tau_edge)
        return intensity, magnitude, supported * coherent

    def _coarse_edges(self, smooth: Tensor, widths: Tensor) -> Tensor:
        """E^(s): Sobel on the s-times smaller line, enlarged again."""
        s, (height, width) = self.config.edge_scale, smooth.shape[-2:]
        padded = F.pad(extend(smooth, widths), (0, -width % s, 0, -height % s), mode="replicate")
        small = F.avg_pool2d(padded, s)  # [B, 1, ceil(H/s), ceil(W/s)]
        narrow = (widths + s - 1) // s
        edges = extend(sobel(small, narrow), narrow)
        return F.interpolate(edges, scale_factor=s, mode="bilinear")[..., :height, :width]
