"""What a forward pass does, heard layer by layer: every product, and which places of the batch are lines' own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from spikehtr.baselines.autoregressive import Lookup
from spikehtr.baselines.htr_vt import Attention
from spikehtr.model.encoder import DepthwiseConv2d
from spikehtr.model.masking import shrink
from spikehtr.model.mixer import MatchedMean, TokenConv
from spikehtr.model.reducer import Reduction
from spikehtr.model.spike_htr import SpikeHTR

PRODUCTS = (nn.Conv1d, nn.Conv2d, nn.Linear, nn.LSTM, MatchedMean, Attention, Lookup)
LayerHook = Callable[[str, nn.Module, tuple[Any, ...], Any], None]  # name, module, inputs, output


class Extent:
    """The size of the batch under way, kept up to date by `watched_extent`: padding is never counted."""

    def __init__(self) -> None:
        self.widths = torch.ones(1, dtype=torch.long)  # [B], pixels
        self.canvas = 1  # pixels, padding included
        self.tokens = self.widths  # [B], of the sequence as it is now: before the reducer, or after it

    def columns(self, size: int) -> Tensor:
        """[B], the valid columns of a map that is `size` columns wide."""
        return shrink(self.widths, self.canvas // size)

    @property
    def batch(self) -> int:
        return len(self.widths)


@contextmanager
def watched_extent(net: SpikeHTR) -> Iterator[Extent]:
    """An Extent that follows every forward pass of `net`, or of its parts, until it is closed."""
    extent = Extent()

    def begin(_: Any, inputs: tuple[Tensor, Tensor]) -> None:
        images, extent.widths = inputs
        extent.canvas = images.shape[-1]
        extent.tokens = shrink(extent.widths, net.stride)

    def reduced(_: Any, __: Any, output: Reduction) -> None:
        extent.tokens = output.lengths

    handles = [net.encoder.register_forward_pre_hook(begin), net.reducer.register_forward_hook(reduced)]
    try:
        yield extent
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def watched_layers(net: nn.Module, hook: LayerHook, kinds: tuple[type[nn.Module], ...] = PRODUCTS) -> Iterator[None]:
    """While open, `hook` hears of every call of a layer of these kinds; closing removes all hooks."""

    def named(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        return lambda module, inputs, output: hook(name, module, *layer_call(module, inputs, output))

    handles = [m.register_forward_hook(named(name)) for name, m in net.named_modules() if isinstance(m, kinds)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def layer_call(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> tuple[tuple[Any, ...], Any]:
    """What a layer multiplies, and its result, as torch's own layers have them: maps [N, C, H, W], tokens [N, d, L];
    of attention q, k and v [T, B, L, h, d/h]; of an LSTM its tokens without the last states."""
    if isinstance(module, DepthwiseConv2d):
        return (inputs[0].flatten(0, 1),), output[0].flatten(0, 1)
    if isinstance(module, TokenConv):
        x, mask = inputs
        own = (x * mask[:, :, None]).flatten(0, 1).transpose(1, 2)
        return (own,), output.flatten(0, 1).transpose(1, 2)
    if isinstance(module, MatchedMean):
        qkv, mask = inputs
        q, k, v = qkv.unflatten(-1, (3, module.heads, -1)).unbind(3)
        return (q, k * mask[:, :, None, None], v), output.unflatten(-1, (module.heads, -1))
    return inputs, output[0] if isinstance(module, nn.LSTM) else output


def layer_macs(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Dense multiply-accumulates of one call, zero padding included."""
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return y.numel() * (module.in_channels // module.groups) * int(np.prod(module.kernel_size))
    if isinstance(module, nn.Linear):
        return y.numel() * module.in_features
    if isinstance(module, MatchedMean):  # three products: k v^T, q (k v^T), q . sum k
        return x.numel() * (2 * x.shape[-1] + 1)
    if isinstance(module, nn.LSTM):  # every weight meets every token once
        weights = sum(p.numel() for name, p in module.named_parameters() if name.startswith("weight"))
        return x.shape[:-1].numel() * weights
    if isinstance(module, Attention):  # q k^T and its product with v; its linear maps are counted by themselves
        return 2 * x.shape[0] * x.shape[1] ** 2 * x.shape[2]
    if isinstance(module, Lookup):  # every query meets every key, and every value
        return 2 * y.numel() * x.shape[2]
    return 0


def component(name: str) -> str:
    """encoder.stage1.blocks.0.pw1.conv -> stage1; mixer.blocks.0... -> mixer."""
    parts = name.split(".")
    return parts[1] if parts[0] == "encoder" else parts[0]
