"""What is carried from token to token along a line."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from spikehtr.ops.masks import at_least_fp32

_TRACED_PASSES = 12  # where a graph holds for any length: enough for lines of 4,096 tokens


def leaky_scan(driven: Tensor, mask: Tensor) -> Tensor:
    """u_i = f_i u_{i-1} + (1 - f_i) v_i, f = sigmoid(leak): membranes that each token fills and empties as it says.

    Values v and leaks side by side [T, B, L, 2 d], mask [B, L] -> u [T, B, L, d]. The first half of the channels goes
    from a line's first token to its last, the other half the other way; padding adds nothing to either, and has 0.
    """
    value, leak = at_least_fp32(driven).chunk(2, dim=-1)
    kept = torch.sigmoid(leak)
    own = mask[:, :, None]
    given = torch.where(own, (1 - kept) * value, 0.0)
    half = value.shape[-1] // 2
    ahead = _scan(given[..., :half], kept[..., :half])
    behind = _scan(given[..., half:].flip(2), kept[..., half:].flip(2)).flip(2)
    return torch.where(own, torch.cat([ahead, behind], dim=-1), 0.0)


def _scan(given: Tensor, kept: Tensor) -> Tensor:
    """u_i = kept_i u_{i-1} + given_i along dimension 2, in log2(L) passes over all tokens: after each a token has what
    twice as many before it gave."""
    length = given.shape[2]
    passes = (length - 1).bit_length() if isinstance(length, int) else _TRACED_PASSES
    u, a = given, kept
    for reach in (2**number for number in range(passes)):
        earlier_u, earlier_a = (F.pad(x, (0, 0, reach, 0))[:, :, :length] for x in (u, a))
        u, a = u + a * earlier_u, a * earlier_a
    return u
