"""What the network is held to: where lines run, begin and end, how high they are, and which way they read."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.pages.segment.draw_labels import OUTSIDE
from spikehtr.pages.segment.line_network import Maps
from spikehtr.pages.segment.maps import FINE_NAMES, UNIT

WEIGHTS = (1.0, 0.6, 0.6, 0.25)  # of the fine maps
POSITIVE = (2.0, 4.0, 4.0, 2.0)  # how much more a pixel counts where the map should be on


class PartBatch(NamedTuple):
    """Parts of pages and their targets, as `drawing.Targets` has them."""

    images: Tensor  # [B, 1, H, W] in [0, 1]
    fine: Tensor  # [B, H/2, W/2] uint8, bits
    heights: Tensor  # [B, 2, H/4, W/4]
    turn: Tensor  # [B, H/4, W/4] uint8
    upright: Tensor  # [B] bool


class MapLosses(NamedTuple):
    total: Tensor
    fine: Tensor
    body: Tensor
    heights: Tensor
    turn: Tensor


def losses(maps: Maps, batch: PartBatch) -> MapLosses:
    bits = 2 ** torch.arange(len(FINE_NAMES), device=batch.fine.device, dtype=torch.uint8)
    wanted = (batch.fine[:, None].bitwise_and(bits[:, None, None]) > 0).float()  # [B, 4, h, w]
    fine = _overlap(maps.fine.float(), wanted, batch.upright)
    coarse = maps.coarse.float()
    inside = batch.turn != OUTSIDE
    body = F.binary_cross_entropy_with_logits(coarse[:, 0], inside.float())
    some = inside.sum().clamp(min=1)
    true = torch.log(batch.heights.clamp(min=1.0) / UNIT)
    heights = (F.smooth_l1_loss(coarse[:, 1:3], true, reduction="none", beta=0.2).sum(1) * inside).sum() / some
    classes = torch.where(inside, batch.turn.long(), 0)
    entropy = F.cross_entropy(coarse[:, 3:7], classes, reduction="none") * inside
    # Every direction counts alike: else the network learns how often pages are upright before it learns to see it.
    counts = torch.bincount(classes[inside], minlength=4).clamp(min=1)
    share = inside / counts[classes]
    turn = (entropy * share).sum() / share.sum().clamp(min=1e-6)
    return MapLosses(fine + 0.3 * body + 0.3 * heights + 0.3 * turn, fine, body, heights, turn)


def _overlap(logits: Tensor, wanted: Tensor, upright: Tensor) -> Tensor:
    """Cross-entropy and soft dice of each fine map, over the upright parts."""
    weights = torch.tensor(WEIGHTS, device=logits.device)
    positive = torch.tensor(POSITIVE, device=logits.device)[:, None, None]
    counts = upright.float()[:, None, None, None]
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none", pos_weight=positive) * counts
    pixels = counts.sum().clamp(min=1) * logits.shape[-1] * logits.shape[-2]
    share = logits.sigmoid() * counts
    both = (share * wanted).sum((0, 2, 3))
    dice = 1 - (2 * both + 1) / (share.sum((0, 2, 3)) + (wanted * counts).sum((0, 2, 3)) + 1)
    per_map = 4 * entropy.sum((0, 2, 3)) / pixels + dice
    return (per_map * weights).sum() / weights.sum()
