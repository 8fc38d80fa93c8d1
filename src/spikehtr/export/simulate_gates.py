"""Temporal entries for the simulation of an exported network: image [C, H, W] in [0, 1] -> gates [T, 1, H, W].

The docstring of an operation is what a manifest says of it. Nothing here comes from `model/`: it is a second
implementation, for one unpadded line.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Parameters = dict[str, Any]


def gray(image: Tensor) -> Tensor:
    """[C, H, W] -> [H, W]"""
    if len(image) == 1:
        return image[0]
    return 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def repeat_gates(p: Parameters, image: Tensor) -> Tensor:
    """Gates of 1 at every step."""
    return torch.ones_like(gray(image)).expand(p["timesteps"], 1, -1, -1)


def ttfs_gates(p: Parameters, image: Tensor) -> Tensor:
    """A pixel's gate is 1 at step floor((1 - darkness) * T), counted from 0, and 0 else; darkness = 1 - grey level."""
    when = ((1 - (1 - gray(image))) * p["timesteps"]).floor()
    return torch.stack([(when == t).to(image.dtype)[None] for t in range(p["timesteps"])])


def poisson_gates(p: Parameters, image: Tensor) -> Tensor:
    """1 where noise < darkness (1 - grey level). The noise of (t, y, x), counted from 0: h = 73856093 t + 19349663 y +
    83492791 x + 1; three times h <- (((h >> 15) xor h) * 0x2C1B3C6D) mod 2^32; noise = (h >> 8) / 2^24."""
    dark = 1 - gray(image)
    t, y, x = (torch.arange(n) for n in (p["timesteps"], *dark.shape))
    h = t[:, None, None] * 73856093 + y[:, None] * 19349663 + x * 83492791 + 1
    for _ in range(3):
        h = (((h >> 15) ^ h) * 0x2C1B3C6D) % 2**32
    return ((h >> 8).to(image.dtype) / 2**24 < dark).to(image.dtype)[:, None]


def inkcoder_gates(p: Parameters, image: Tensor) -> Tensor:
    """Coarse-to-fine gates. With S(a, k, m) = sigmoid(k (a - m)), box(a, n) the mean over n x n pixels, edges repeated,
    and quantiles linearly interpolated over the pixels: smooth = box(grey, blur); ink = 1 - clip((smooth - low) / (high
    - low + 1e-6), 0, 1), low and high its q_low and q_high quantiles (0 everywhere where they are within 0.001). edge =
    the larger of the Sobel magnitudes (kernels of unit gain, edges repeated, sqrt(gx^2 + gy^2 + 1e-12)) of smooth, and
    of smooth averaged over edge_scale x edge_scale cells (edges repeated where cells are cut), enlarged bilinearly with
    half-pixel centres; divided by its q_edge quantile + 1e-6 and clipped to [0, 1]; times S(ink, kappa_int, tau_int);
    times S(box(of that, density), kappa_edge, tau_edge). At step t: raw = clip((1 - edge_weight) ink + edge_weight
    edge, 0, 1); evidence = raw * S(box(raw, density), kappa_density, tau_density) ^ gamma_density; gate =
    sigmoid(sharpness (evidence - theta))."""
    smooth = _box(gray(image), p["blur"])
    low, high = _quantile(smooth, p["q_low"]), _quantile(smooth, p["q_high"])
    ink = (1 - ((smooth - low) / (high - low + 1e-6)).clamp(0, 1)) * (high - low > 1e-3)
    edge = torch.maximum(_sobel(smooth), _coarse(smooth, p["edge_scale"]))
    edge = (edge / (_quantile(edge, p["q_edge"]) + 1e-6)).clamp(0, 1)
    edge = edge * _soft(ink, p["kappa_int"], p["tau_int"])
    edge = edge * _soft(_box(edge, p["density"]), p["kappa_edge"], p["tau_edge"])
    gates = []
    for theta, sharpness, w in zip(p["theta"], p["sharpness"], p["edge_weight"], strict=True):
        raw = ((1 - w) * ink + w * edge).clamp(0, 1)
        keep = _soft(_box(raw, p["density"]), p["kappa_density"], p["tau_density"]) ** p["gamma_density"]
        gates.append(torch.sigmoid(sharpness * (raw * keep - theta)))
    return torch.stack(gates)[:, None]


def _soft(a: Tensor, kappa: float, tau: float) -> Tensor:
    return torch.sigmoid(kappa * (a - tau))


def _around(a: Tensor, left: int, right: int, top: int, bottom: int) -> Tensor:
    """Edges repeated: [H, W] -> [top + H + bottom, left + W + right]"""
    rows = torch.arange(-top, a.shape[0] + bottom).clamp(0, a.shape[0] - 1)
    columns = torch.arange(-left, a.shape[1] + right).clamp(0, a.shape[1] - 1)
    return a[rows][:, columns]


def _box(a: Tensor, side: int) -> Tensor:
    r = side // 2
    return _around(a, r, r, r, r).unfold(0, side, 1).unfold(1, side, 1).mean((-1, -2))


def _quantile(a: Tensor, q: float) -> Tensor:
    return torch.quantile(a.flatten(), q)


def _sobel(a: Tensor) -> Tensor:
    kernel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=a.dtype) / 8
    gx, gy = F.conv2d(_around(a, 1, 1, 1, 1)[None, None], torch.stack([kernel, kernel.T])[:, None])[0]
    return torch.sqrt(gx**2 + gy**2 + 1e-12)


def _coarse(smooth: Tensor, s: int) -> Tensor:
    height, width = smooth.shape
    cells = _around(smooth, 0, -width % s, 0, -height % s).unfold(0, s, s).unfold(1, s, s).mean((-1, -2))
    large = F.interpolate(_sobel(cells)[None, None], scale_factor=float(s), mode="bilinear")[0, 0]
    return large[:height, :width]
