"""Quantiles of each line's valid pixels without sorting them: the same numbers as `ops.plain.ink.quantiles`.

A program takes one line and one rank k. Seen as integers in the right order, floats can be searched two bits at a time:
the k-th smallest is the largest number v with at most k values below it. So 16 counting passes over a line, which stays
in the cache, give it exactly; one more finds the next, for the interpolation. Counts are whole numbers: no rounding, no
order of sums, no atomics. A pass is all arithmetic, so values are compared as they are, and only v is ever converted.
"""
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from spikehtr.ops.triton.launch import launch
from spikehtr.ops.triton.layout import on_device, power_of_two

_COLUMNS, _WARPS = 64, 16  # of a tile


@triton.jit
def _value(key):
    """The float of an integer that orders as floats do; beyond the infinities, the infinity."""
    key = tl.minimum(tl.maximum(key, -2139095041), 2139095040)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _load(a, x0, y, width, H, W, BW: tl.constexpr):
    """A tile of a line, infinite outside it."""
    x = x0 + tl.arange(0, BW)[None, :]
    return tl.load(a + y * W + x, mask=(y < H) & (x < width), other=float("inf"))


@triton.jit
def select_rank(
    a, widths, ranks, found, B, H, W, RANKS: tl.constexpr, FIRST: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr
):
    """a [maps, B, H, W], ranks [B, RANKS] -> found [B, RANKS, 2]: the value of that rank among a line's own, and the
    next. The FIRST ranks are of the first map, the others of the second."""
    line, place = tl.program_id(0), tl.program_id(0) * RANKS + tl.program_id(1)
    width = tl.load(widths + line).to(tl.int32)
    k = tl.load(ranks + place).to(tl.int32)
    a += ((tl.program_id(1) >= FIRST).to(tl.int32) * B + line).to(tl.int64) * H * W
    y = tl.arange(0, BH)[:, None]
    key = tl.full([], -2147483648, tl.int32)
    for i in range(16):
        step = tl.full([], 1, tl.int32) << (30 - 2 * i)
        one, two, three = _value(key + step), _value(key + step + step), _value(key + step + step + step)
        n1 = tl.zeros([BH, BW], tl.int32)
        n2 = tl.zeros([BH, BW], tl.int32)
        n3 = tl.zeros([BH, BW], tl.int32)
        for x0 in range(0, width, BW):
            values = _load(a, x0, y, width, H, W, BW)
            n1 += (values < one).to(tl.int32)
            n2 += (values < two).to(tl.int32)
            n3 += (values < three).to(tl.int32)
        steps = (tl.sum(n1) <= k).to(tl.int32) + (tl.sum(n2) <= k).to(tl.int32) + (tl.sum(n3) <= k).to(tl.int32)
        key += steps * step
    value = _value(key)
    upto = tl.zeros([BH, BW], tl.int32)
    above = tl.full([BH, BW], float("inf"), tl.float32)
    for x0 in range(0, width, BW):
        values = _load(a, x0, y, width, H, W, BW)
        upto += (values <= value).to(tl.int32)
        above = tl.minimum(above, tl.where(values > value, values, float("inf")))
    alike = (tl.sum(upto) > k + 1) | (k + 1 >= width * H)  # an equal value comes next, or none at all
    tl.store(found + 2 * place, value)
    tl.store(found + 2 * place + 1, tl.where(alike, value, tl.min(above)))


def quantiles(a: Tensor, widths: Tensor, *qs: float) -> list[Tensor]:
    """Per-line quantiles of a [B, 1, H, W] over valid pixels, linearly interpolated; each [B, 1, 1, 1]."""
    return quantiles_of_two(a[None], widths, qs, ())


def quantiles_of_two(maps: Tensor, widths: Tensor, first: Sequence[float], second: Sequence[float]) -> list[Tensor]:
    """Those of two maps [2, B, 1, H, W], at once: one map's lines alone do not fill the device."""
    _, batch, _, height, width = maps.shape
    maps, widths, qs = maps.float().contiguous(), widths.contiguous(), (*first, *second)
    last = widths[:, None] * height - 1  # [B, 1], rank of the largest valid value
    place = torch.cat([last * q for q in qs], dim=1)  # [B, qs]
    low = place.floor().long()
    found = torch.empty(batch, len(qs), 2, device=maps.device)
    tile = {"BH": power_of_two(height), "BW": _COLUMNS, "num_warps": _WARPS}
    with on_device(maps):
        launch(
            select_rank,
            (batch, len(qs)),
            maps,
            widths,
            low,
            found,
            batch,
            height,
            width,
            RANKS=len(qs),
            FIRST=len(first),
            **tile,
        )
    below, above = found.unbind(-1)
    values = below + (above - below) * (place - low)  # [B, qs]
    return [value[:, None, None, None] for value in values.unbind(1)]
