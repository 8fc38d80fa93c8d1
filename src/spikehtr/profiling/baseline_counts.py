"""What a baseline holds and what one line costs it: parameters and multiply-accumulates of the built network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from spikehtr.baselines.common import Baseline, Columns
from spikehtr.baselines.htr_vt import Attention
from spikehtr.config import Config
from spikehtr.profiling.counts import PAPER_RATIO, layer_macs
from spikehtr.registry import build


@dataclass(frozen=True)
class BaselineCounts:
    arch: str
    parameters: int
    dense_macs: int
    macs: dict[str, int]  # of the features, the sequence part and the heads
    height: int
    width: int
    tokens_in: int  # L0
    tokens_read: int  # by the sequence part
    vocab_size: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def count_baseline(config: Config, vocab_size: int, width: int, ratio: float | None = None) -> BaselineCounts:
    """Count a line of `width` pixels; with the reducer on, `ratio` (or the paper's) of its tokens are read."""
    with torch.random.fork_rng(devices=[]):
        net = build(config.model, vocab_size).eval()
    assert isinstance(net, Baseline)
    if ratio is None:
        ratio = PAPER_RATIO if net.reduces else 1.0
    macs: Counter[str] = Counter()
    tokens_in, tokens_read = _run(net, width, ratio, macs)
    return BaselineCounts(
        arch=config.model.arch,
        parameters=sum(p.numel() for p in net.parameters()),
        dense_macs=sum(macs.values()),
        macs=dict(macs),
        height=config.model.height,
        width=width,
        tokens_in=tokens_in,
        tokens_read=tokens_read,
        vocab_size=vocab_size,
    )


@torch.no_grad()
def _run(net: Baseline, width: int, ratio: float, macs: Counter[str]) -> tuple[int, int]:
    """One forward pass over a blank line, part by part: which tokens are merged shall not hang on training."""
    part = "features"

    def watch(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            macs["heads" if name.startswith(("head", "shortcut")) else part] += _macs(module, inputs[0], output)

        return hook

    kinds = (nn.Conv1d, nn.Conv2d, nn.Linear, nn.LSTM, Attention)
    handles = [m.register_forward_hook(watch(name)) for name, m in net.named_modules() if isinstance(m, kinds)]
    try:
        images, widths = net.prepare(torch.ones(1, 1, net.config.height, width))
        tokens = net.features(1 - images, Columns(widths, images.shape[-1]))
        if net.reduces and net.shortcut is not None:
            net.shortcut.preview(tokens)
        left = max(1, round(ratio * tokens.shape[1]))
        lengths = torch.tensor([left])
        part = "sequence part"
        net.read(tokens[:, :left], lengths)
    finally:
        for handle in handles:
            handle.remove()
    return tokens.shape[1], left


def _macs(module: nn.Module, x: Tensor, y: Any) -> int:
    if isinstance(module, nn.LSTM):  # every weight meets every token once
        weights = sum(p.numel() for name, p in module.named_parameters() if name.startswith("weight"))
        return x.shape[:-1].numel() * weights
    if isinstance(module, Attention):  # q k^T and its product with v; its linear maps are counted by themselves
        return 2 * x.shape[0] * x.shape[1] ** 2 * x.shape[2]
    return layer_macs(module, x, y)
