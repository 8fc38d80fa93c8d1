"""How sure a network is of what it wrote, at several temperatures at once.

Dividing the logits by a temperature changes no greedy text, only how sure the network says it is: one reading gives the
confidences at all of them, and a temperature can be chosen afterwards. What a search with a language model chose from
is weighed by that, too: there the temperature divides the weights of each character's choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.decoding.beam import Choices
from spikehtr.decoding.greedy import Decoded

Floats = NDArray[np.float64]


class Sureness(NamedTuple):
    """What `decode_greedy` says of one line at each of K temperatures."""

    text: str  # a character of the charset each, as decoded
    characters: NDArray[np.float32]  # [len(text), K]
    line: NDArray[np.float32]  # [K]


@torch.no_grad()
def sureness(
    logits: Tensor, lengths: Tensor, decoded: Sequence[Decoded], temperatures: Sequence[float]
) -> list[Sureness]:
    """logits [B, L, V], lengths [B] and their `decode_greedy` -> confidences at every temperature, line by line."""
    # [K, B, L]: the chosen label is the likeliest at any temperature, so only its probability is worked out anew.
    chosen = torch.stack([(logits.float() / t).log_softmax(-1).amax(-1) for t in temperatures]).cpu().numpy()
    out = []
    for row, (line, n) in enumerate(zip(decoded, lengths.tolist(), strict=True)):
        frames = chosen[:, row, :n]  # [K, l_b]
        if line.choices is not None:
            out.append(sureness_of_choices(line, temperatures))
            continue
        characters = [np.exp(frames[:, span.start : span.end].max(1)) for span in line.spans]
        stacked = np.stack(characters) if characters else np.zeros((0, len(temperatures)), np.float32)
        out.append(Sureness(line.text, stacked, stacked.sum(0) / max(1, len(characters))))
    return out


def sureness_of_choices(line: Decoded, temperatures: Sequence[float]) -> Sureness:
    """The same of a line that a search with a language model chose."""
    assert line.choices is not None
    found = [of_chosen(shares_of(line.choices, temperature), line.choices) for temperature in temperatures]
    characters = np.stack(found, 1).astype(np.float32)  # [C, K]
    return Sureness(line.text, characters, characters.sum(0) / max(1, len(characters)))


def shares_of(choices: Choices, temperature: float) -> Floats:
    """[C, K], how likely each candidate is."""
    return softmax(choices.log_weights, temperature)


def of_chosen(shares: Floats, choices: Choices) -> Floats:
    """[C], of the characters that were read."""
    return shares[np.arange(len(shares)), choices.chosen]


def softmax(log_weights: Floats, temperature: float = 1.0) -> Floats:
    """Over the last axis."""
    highest = log_weights.max(-1, keepdims=True) if log_weights.size else 0.0
    shares = np.exp((log_weights - highest) / temperature)
    found: Floats = shares / shares.sum(-1, keepdims=True)
    return found
