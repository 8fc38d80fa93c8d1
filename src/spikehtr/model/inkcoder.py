"""InkCoder (Section 3.2, Appendix A): one static line -> T spatial gates, coarse to fine.

Deterministic evidence of two kinds (how dark, how edgy), fused over time, cleaned of speckle (`ops.ink_evidence`) and
soft-thresholded. Only two scalars are learned, s_alpha and b_alpha (the sharpness of the gate). The gates do not depend
on padding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import InkCoderConfig
from spikehtr.errors import SpikeHTRError

_LUMA = (0.299, 0.587, 0.114)


def to_gray(images: Tensor) -> Tensor:
    """[B, 1 or 3, H, W] -> [B, 1, H, W] in fp32, by luminance."""
    images = ops.at_least_fp32(images)
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue


class InkTrace(NamedTuple):
    """Every map on the way from a grey line to its gates."""

    gray: Tensor  # [B, 1, H, W]
    maps: ops.InkMaps
    gates: Tensor  # g_t, [T, B, 1, H, W]
    theta: Tensor  # [T]


class InkCoder(nn.Module):
    """gray [B, 1, H, W] in [0, 1] (ink dark), widths [B] -> gates [T, B, 1, H, W] in [0, 1], 0 in the padding."""

    def __init__(self, config: InkCoderConfig, timesteps: int) -> None:
        super().__init__()
        if timesteps < 1:
            raise SpikeHTRError(f"timesteps must be 1 or more, not {timesteps}")
        self.config, self.timesteps = config, timesteps
        self.numbers = ops.Ink(**{name: getattr(config, name) for name in ops.Ink._fields})
        self.s_alpha = nn.Parameter(torch.ones(()))
        self.b_alpha = nn.Parameter(torch.zeros(()))

    def forward(self, gray: Tensor, widths: Tensor) -> Tensor:
        if gray.dim() != 4 or gray.shape[1] != 1 or widths.shape != gray.shape[:1]:
            shapes = f"{list(gray.shape)} and {list(widths.shape)}"
            raise SpikeHTRError(f"InkCoder takes gray lines [B, 1, H, W] and their widths [B], not {shapes}")
        return self._gates(ops.ink_evidence(gray, widths, self.schedules()[2], self.numbers), widths)

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
        """The gates, and all that leads to them."""
        theta, _, weight = self.schedules()
        maps = ops.ink_maps(gray, widths, weight, self.numbers)
        return InkTrace(gray, maps, self._gates(maps.evidence, widths), theta)

    def _gates(self, evidence: Tensor, widths: Tensor) -> Tensor:
        """Evidence D_t [T, B, 1, H, W] -> gates g_t (Eq. 4), 0 in the padding."""
        theta, sharpness, _ = self.schedules()
        along_t = (-1, 1, 1, 1, 1)
        a = (sharpness * self.s_alpha + self.b_alpha).view(along_t)
        return torch.sigmoid(a * (evidence - theta.view(along_t))) * ops.column_mask(widths, evidence.shape[-1])
