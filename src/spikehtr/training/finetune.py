"""Going on from a trained model: which characters the new one knows, and the weights it starts with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.registry import build
from spikehtr.text import BLANK, Charset, show
from spikehtr.weights import Loaded

Mode = Literal["keep", "extend", "replace"]
_LEAST = 0.5  # share of a network that must come from the start: with less it is not the same network any more


@dataclass(frozen=True)
class CharsetChange:
    charset: Charset
    added: list[str]  # the start did not know them
    dropped: list[str]  # the start knew them, the new model will not

    @property
    def message(self) -> str:
        parts = [f"{len(self.charset) - 1} characters"]
        parts += [f"added {len(self.added)}: {show(self.added)}"] if self.added else []
        parts += [f"dropped {len(self.dropped)}: {show(self.dropped)}"] if self.dropped else []
        return "; ".join(parts if len(parts) > 1 else [*parts, "none added, none dropped"])


def change_charset(known: Charset, texts: Iterable[str], mode: Mode) -> CharsetChange:
    """keep: the start's characters; extend: those and the new texts'; replace: the new texts' alone."""
    found = set().union(*texts)
    new = sorted(found - set(known.characters))
    if mode == "keep":
        return CharsetChange(known, [], [])
    if mode == "extend":
        return CharsetChange(Charset((*known.characters, *new)), new, [])
    return CharsetChange(Charset(tuple(sorted(found))), new, sorted(set(known.characters) - found))


class Handover(NamedTuple):
    """Weights for a new network, and a word on those that did not fit."""

    weights: dict[str, Tensor]
    remark: str | None


def starting_weights(loaded: Loaded, config: Config, charset: Charset) -> Handover:
    """The model's weights for a network of `config` and `charset`.

    Rows of known characters are kept, others new. A changed network (another neuron, more timesteps, a deeper mixer)
    keeps what has the same name and shape; the rest starts fresh, and is told.
    """
    torch.manual_seed(config.training.seed)
    start = build(config.model, len(charset)).state_dict()
    old = loaded.net.state_dict()
    heads = [name for name in loaded.net.per_label if name in start and name in old]
    heads = [name for name in heads if old[name].shape[1:] == start[name].shape[1:]]
    kept = [name for name in start if name not in heads and name in old and old[name].shape == start[name].shape]
    fresh = [name for name in start if name not in heads and name not in kept]
    share = sum(start[name].numel() for name in kept) / sum(v.numel() for n, v in start.items() if n not in heads)
    if share < _LEAST:
        raise SpikeHTRError(
            f"a changed model setting does not fit the weights to start from: {share:.0%} of the network could be kept "
            f"({_few(fresh)} differ); leave it as it is, or train without --from"
        )
    unused = [name for name in old if name not in heads and name not in kept]
    remark = None
    if fresh or unused:
        remark = f"{share:.1%} of the network's weights are those of the start; fresh: {_few(fresh)}; "
        remark += f"of the start not used: {_few(unused)}"
    start |= {name: old[name] for name in kept}
    rows = [(new, loaded.charset.encode(c)[0]) for new, c in enumerate(charset.characters, 1) if c in loaded.charset]
    to, source = (list(column) for column in zip((BLANK, BLANK), *rows, strict=True))
    for name in heads:
        start[name][to] = old[name][source]
    return Handover(start, remark)


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "none"
