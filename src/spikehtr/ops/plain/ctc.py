"""CTC's cost of each line."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from spikehtr.text import BLANK


def ctc_costs(log_probs: Tensor, lengths: Tensor, targets: Tensor, target_lengths: Tensor) -> Tensor:
    """log_probs [B, L, V], lengths [B], targets [B, U] of labels, target_lengths [B] -> -log p(target) [B].

    A line too short to spell its target costs 0 and gives no gradient.
    """
    frames = log_probs.transpose(0, 1)
    return F.ctc_loss(frames, targets, lengths, target_lengths, blank=BLANK, reduction="none", zero_infinity=True)
