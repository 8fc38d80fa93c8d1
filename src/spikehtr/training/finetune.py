"""Going on from a trained model: which characters the new one knows, and the weights it starts with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spikehtr.baselines import build
from spikehtr.config import Config
from spikehtr.errors import SpikeHTRError
from spikehtr.text import BLANK, Charset, show
from spikehtr.weights import Loaded

Mode = Literal["keep", "extend", "replace"]


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


def starting_weights(loaded: Loaded, config: Config, charset: Charset) -> dict[str, Tensor]:
    """The model's weights for a network of `config` and `charset`: rows of known characters kept, others new."""
    torch.manual_seed(config.training.seed)
    start = build(config.model, len(charset)).state_dict()
    old = loaded.net.state_dict()
    heads = [name for name in loaded.net.per_label if name in start and name in old]
    unlike = [name for name in start if name not in old or (name not in heads and old[name].shape != start[name].shape)]
    if unlike or old.keys() - start.keys():
        names = ", ".join((unlike or sorted(old.keys() - start.keys()))[:3])
        raise SpikeHTRError(
            f"a changed model setting does not fit the weights to start from ({names}); leave it as it is"
        )
    start |= {name: value for name, value in old.items() if name not in heads}
    rows = [(new, loaded.charset.encode(c)[0]) for new, c in enumerate(charset.characters, 1) if c in loaded.charset]
    to, source = (list(column) for column in zip((BLANK, BLANK), *rows, strict=True))
    for name in heads:
        start[name][to] = old[name][source]
    return start
