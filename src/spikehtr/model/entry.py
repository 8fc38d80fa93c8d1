"""Temporal entry: how one static line becomes T steps of input (Eq. 7 and the baselines of Table 4).

    X_t = S * (beta + (1 - beta) * g_t)

S is the stem's feature map, the same at every step; the gate g_t is all that changes with time.

- inkcoder: the paper's coarse-to-fine gates.
- repeat: g_t = 1, the same input T times.
- poisson: g_t = 1 with probability 'darkness', drawn anew for each pixel and step.
- ttfs: time to first spike; a pixel opens once, at a step that is earlier the darker it is.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spikehtr import ops
from spikehtr.config import ModelConfig
from spikehtr.model.inkcoder import InkCoder, to_gray
from spikehtr.model.masking import column_mask


def fixed_noise(steps: int, height: int, width: int, device: torch.device) -> Tensor:
    """Uniform noise [T, H, W] in [0, 1): a hash of (t, y, x), so the same for any batch and width."""
    t, y, x = (torch.arange(n, device=device) for n in (steps, height, width))
    h = t[:, None, None] * 73856093 + y[:, None] * 19349663 + x * 83492791 + 1
    for _ in range(3):
        h = (((h >> 15) ^ h) * 0x2C1B3C6D) & 0xFFFFFFFF
    return (h >> 8).float() / 2**24


def poisson_gates(darkness: Tensor, steps: int, training: bool) -> Tensor:
    """Bernoulli samples [T, B, 1, H, W]; fresh in training, from `fixed_noise` otherwise so that results repeat."""
    if training:
        noise = torch.rand((steps, *darkness.shape), device=darkness.device)
    else:
        noise = fixed_noise(steps, darkness.shape[2], darkness.shape[3], darkness.device)[:, None, None]
    return (noise < darkness).to(darkness.dtype)


def ttfs_gates(darkness: Tensor, steps: int) -> Tensor:
    """One-hot in time [T, B, 1, H, W]: step floor((1 - darkness) * T); pure white never opens."""
    when = ((1 - darkness) * steps).floor()
    return torch.stack([(when == t).to(darkness.dtype) for t in range(steps)])


def pool_gates(gates: Tensor, widths: Tensor, stride: tuple[int, int]) -> Tensor:
    """Mean over each cell of a coarser grid, valid columns only: [T, B, 1, H, W] -> [T, B, 1, H/sh, W/sw]."""
    if stride == (1, 1):
        return gates
    inside = column_mask(widths, gates.shape[-1]).to(gates.dtype).expand(*gates.shape[1:3], *gates.shape[-2:])
    share = F.avg_pool2d(inside, stride)  # [B, 1, H/sh, W/sw]
    return F.avg_pool2d(gates.flatten(0, 1), stride).unflatten(0, gates.shape[:2]) / share.clamp(min=1 / stride[1])


class Entry(nn.Module):
    """Gates [T, B, 1, H, W] for a batch of images, and their injection into the stem's features."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind, self.timesteps, self.stride = config.entry, config.timesteps, config.encoder.stem_stride
        self.inkcoder = InkCoder(config.inkcoder, config.timesteps) if config.entry == "inkcoder" else None
        self.beta_logit = nn.Parameter(torch.logit(torch.tensor(config.beta)))

    @property
    def beta(self) -> Tensor:
        """The injection's baseline, learned, in (0, 1)."""
        return torch.sigmoid(self.beta_logit)

    def gates(self, images: Tensor, widths: Tensor) -> Tensor:
        """images [B, C, H, W] in [0, 1], widths [B] -> [T, B, 1, H, W], 0 in the padding."""
        gray = to_gray(images)
        if self.inkcoder is not None:
            return self.inkcoder(gray, widths)
        if self.kind == "poisson":
            gates = poisson_gates(1 - gray, self.timesteps, self.training)
        elif self.kind == "ttfs":
            gates = ttfs_gates(1 - gray, self.timesteps)
        else:
            gates = torch.ones((self.timesteps, *gray.shape), device=gray.device)
        return gates * column_mask(widths, gray.shape[-1])

    def forward(self, features: Tensor, images: Tensor, widths: Tensor) -> Tensor:
        """features S [B, c1, H, W] on the stem's grid, images and widths in pixels -> X_t [T, B, c1, H, W]."""
        gates = pool_gates(self.gates(images, widths), widths, self.stride)  # [T, B, 1, H, W] of the stem's grid
        gain = self.beta + (1 - self.beta) * gates
        return ops.inject(features, gain)
