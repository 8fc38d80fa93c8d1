"""Quantiles of each line's valid pixels without sorting them: the same numbers as `model.inkcoder.quantiles`.

A program takes one line and one rank k. Seen as integers in the right order, floats can be searched two bits at a time:
the k-th smallest is the largest number v with at most k values below it. So 16 counting passes over a line, which stays
in the cache, give it exactly; one more finds the next, for the interpolation. Counts are whole numbers: no rounding, no
order of sums, no atomics.
"""
# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.kernels.layout import on_device, power_of_two

_COLUMNS = 128  # of a tile


@triton.jit
def select_rank(a, widths, ranks, found, H, W, RANKS, BH: tl.constexpr, BW: tl.constexpr):
    """a [B, H, W], ranks [B, RANKS] -> found [B, RANKS, 2]: the value of that rank among a line's own, and the next."""
    line, place = tl.program_id(0), tl.program_id(0) * RANKS + tl.program_id(1)
    width = tl.load(widths + line).to(tl.int32)
    k = tl.load(ranks + place).to(tl.int32)
    a += line.to(tl.int64) * H * W
    y = tl.arange(0, BH)[:, None]
    value = tl.full([], -2147483648, tl.int32)
    for i in range(16):
        step = tl.full([], 1, tl.int32) << (30 - 2 * i)
        one, two, three = value + step, value + step + step, value + step + step + step
        n1 = tl.zeros([BH, BW], tl.int32)
        n2 = tl.zeros([BH, BW], tl.int32)
        n3 = tl.zeros([BH, BW], tl.int32)
        for x0 in range(0, width, BW):
            x = x0 + tl.arange(0, BW)[None, :]
            inside = (y < H) & (x < width)
            bits = tl.load(a + y * W + x, mask=inside, other=0.0).to(tl.int32, bitcast=True)
            keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers that order as the floats do
            n1 += ((keys < one) & inside).to(tl.int32)
            n2 += ((keys < two) & inside).to(tl.int32)
            n3 += ((keys < three) & inside).to(tl.int32)
        value = tl.where(tl.sum(n1) <= k, one, value)
        value = tl.where(tl.sum(n2) <= k, two, value)
        value = tl.where(tl.sum(n3) <= k, three, value)
    upto = tl.zeros([BH, BW], tl.int32)
    above = tl.full([BH, BW], 0x7FFFFFFF, tl.int32)
    for x0 in range(0, width, BW):
        x = x0 + tl.arange(0, BW)[None, :]
        inside = (y < H) & (x < width)
        bits = tl.load(a + y * W + x, mask=inside, other=0.0).to(tl.int32, bitcast=True)
        keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        upto += ((keys <= value) & inside).to(tl.int32)
        above = tl.minimum(above, tl.where((keys > value) & inside, keys, 0x7FFFFFFF))
    alike = (tl.sum(upto) > k + 1) | (k + 1 >= width * H)  # an equal value comes next, or none at all
    following = tl.where(alike, value, tl.min(above))
    tl.store(found + 2 * place, (value ^ ((value >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))
    tl.store(found + 2 * place + 1, (following ^ ((following >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True))


def quantiles(a: Tensor, widths: Tensor, *qs: float) -> list[Tensor]:
    """Per-line quantiles of a [B, 1, H, W] over valid pixels, linearly interpolated; each [B, 1, 1, 1]."""
    batch, _, height, width = a.shape
    a, widths = a.float().contiguous(), widths.contiguous()
    last = widths[:, None] * height - 1  # [B, 1], rank of the largest valid value
    place = torch.cat([last * q for q in qs], dim=1)  # [B, qs]
    low = place.floor().long()
    found = torch.empty(batch, len(qs), 2, device=a.device)
    tile = {"BH": power_of_two(height), "BW": _COLUMNS, "num_warps": 16}
    with on_device(a):
        select_rank[(batch, len(qs))](a, widths, low, found, height, width, len(qs), **tile)
    below, above = found.unbind(-1)
    values = below + (above - below) * (place - low)  # [B, qs]
    return [value[:, None, None, None] for value in values.unbind(1)]
