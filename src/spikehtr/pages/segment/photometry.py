"""Distortions of grey parts on their device: light, paper, print-through, blur, noise. Shapes stay where they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def distort(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Images [B, 1, H, W] in [0, 1]; every one gets its own mixture."""
    device, number = images.device, len(images)

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(number, 1, 1, 1, device=device, generator=generator) * (high - low) + low

    def chance(share: float) -> Tensor:
        return (torch.rand(number, 1, 1, 1, device=device, generator=generator) < share).float()

    def field(cells: int) -> Tensor:
        """Smooth noise, standard deviation about 1."""
        coarse = torch.randn(number, 1, cells, cells, device=device, generator=generator)
        return F.interpolate(coarse, images.shape[-2:], mode="bicubic", align_corners=False)

    # Ink of the other side shows through: another part's, mirrored and soft. Writing in the mirror is ground.
    other_side = _blurred(1 - images.flip(-1).roll(1, 0), uniform(0.3, 1.6))
    through = other_side * uniform(0.05, 0.45) * chance(0.3)
    x = images - through * images
    x = x.clamp(0, 1) ** torch.exp(uniform(-0.5, 0.5))  # gamma
    # Contrast about the paper's level, down to faded ink.
    paper = (
        x.flatten(1).quantile(0.7, 1)[:, None, None, None] if x.shape[-1] <= 512 else x.mean((1, 2, 3), keepdim=True)
    )
    x = paper + (x - paper) * torch.exp(uniform(-1.1, 0.25))
    x = x + uniform(-0.2, 0.12)
    # Shade across the page, stains, and the paper's grain.
    x = x * (1 + uniform(0, 0.22) * chance(0.5) * field(3)) * (1 - uniform(0, 0.35) * chance(0.2) * (field(7) > 1.3))
    x = x + uniform(0, 0.05) * chance(0.5) * field(max(8, images.shape[-1] // 10))
    x = _blurred(x, uniform(0.3, 1.4) * chance(0.35))
    x = x + uniform(0, 0.06) * chance(0.5) * torch.randn(x.shape, device=device, generator=generator)
    inverted = chance(0.03)  # a negative on film
    x = x.clamp(0, 1)
    return x + inverted * (1 - 2 * x)


def _blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Each image by its own Gaussian, [B, 1, 1, 1] pixels wide; 0 leaves it as it is."""
    reach = 4
    at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
    kernel = torch.exp(-0.5 * (at / sigma[:, :, 0].clamp(min=1e-2)) ** 2)  # [B, 1, 9]
    kernel = kernel / kernel.sum(-1, keepdim=True)
    flat = x.transpose(0, 1)  # [1, B, H, W]: one group an image
    flat = F.conv2d(F.pad(flat, (reach, reach, 0, 0), mode="replicate"), kernel[:, :, None], groups=len(x))
    flat = F.conv2d(F.pad(flat, (0, 0, reach, reach), mode="replicate"), kernel[:, :, :, None], groups=len(x))
    return flat.transpose(0, 1)
