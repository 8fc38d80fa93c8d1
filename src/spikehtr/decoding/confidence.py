"""How sure a network is of what it wrote: at several temperatures at once, and with a language model.

Dividing the logits by a temperature changes no greedy text, only how sure the network says it is: one reading gives the
confidences at all of them, and a temperature can be chosen afterwards. What a search with a language model chose has a
`Calibration` instead.
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
AROUND = 4
LEAST = 0.01  # others less likely than this are not named
MOST_ODDS = 10.0  # log-odds beyond are no surer
_NOTHING = 1e-12


class Sureness(NamedTuple):
    """How sure of one line, at each of K temperatures."""

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
        characters = [np.exp(frames[:, span.start : span.end].max(1)) for span in line.spans]
        stacked = np.stack(characters) if characters else np.zeros((0, len(temperatures)), np.float32)
        out.append(Sureness(line.text, stacked, stacked.sum(0) / max(1, len(characters))))
    return out


class Calibration(NamedTuple):
    """How the evidence for a character becomes its confidence where a language model took part; fitted on validation
    lines, with the weights of a search.

    A search is too sure of itself: the model has seen the characters around, which may be wrong with this one. So what
    the frame says alone counts beside it, and so does how clear the neighbours are.
    """

    search: float = 0.3  # of log-odds against the other candidates, by frame and language model
    frame: float = 0.3  # of log-odds by the clearest frame alone
    around: float = 0.2  # of the mean of both, over the characters up to AROUND places away
    bias: float = -0.6

    def confidences(self, evidence: Floats) -> Floats:
        """[C, 4] -> [C]. Added up one by one: a product of matrices may round otherwise in another batch."""
        odds = sum((weight * column for weight, column in zip(self, evidence.T, strict=True)), np.zeros(len(evidence)))
        return 1 / (1 + np.exp(-odds))


def evidence_of(choices: Choices, sizes: Sequence[int]) -> Floats:
    """What `Calibration` weighs, of characters of lines of these sizes, one after the other: [C, 4]; the last is 1."""
    rows = np.arange(len(choices.chosen))
    own = choices.log_weights[rows, choices.chosen]
    rest = choices.log_weights.copy()
    rest[rows, choices.chosen] = -np.inf
    highest = np.maximum(rest.max(1, initial=-np.inf), own - 2 * MOST_ODDS)
    search = own - highest - np.log(np.maximum(np.exp(rest - highest[:, None]).sum(1), _NOTHING))
    sure = np.minimum(choices.log_probs[rows, choices.chosen].astype(np.float64), -_NOTHING)
    frame = sure - np.log(-np.expm1(sure))
    search, frame = (np.clip(odds, -MOST_ODDS, MOST_ODDS) for odds in (search, frame))
    around = _mean_around((search + frame) / 2, np.repeat(np.arange(len(sizes)), sizes))
    return np.stack([search, frame, around, np.ones(len(rows))], 1)


def _mean_around(values: Floats, line: NDArray[np.int64]) -> Floats:
    """The mean of each value and of those up to AROUND places away in the same line."""
    total, count = values.copy(), np.ones(len(values))
    for shift in range(1, min(AROUND, len(values) - 1) + 1):
        same = line[shift:] == line[:-shift]
        total[shift:] += np.where(same, values[:-shift], 0.0)
        total[:-shift] += np.where(same, values[shift:], 0.0)
        count[shift:] += same
        count[:-shift] += same
    found: Floats = total / count
    return found


def shares_of(choices: Choices) -> Floats:
    """[C, K], how likely each candidate is by frame and language model, not calibrated."""
    if not choices.log_weights.size:
        return choices.log_weights
    shares = np.exp(choices.log_weights - choices.log_weights.max(1, keepdims=True))
    found: Floats = shares / shares.sum(1, keepdims=True)
    return found


class Judged(NamedTuple):
    """Of C characters: how sure each is, calibrated, and what else it may be."""

    confidences: Floats  # [C]
    counts: NDArray[np.int32]  # [C], of others
    labels: NDArray[np.int32]  # of the others of all, likeliest first; the blank: it may well not be there
    shares: Floats  # of each other; what is left of 1 is shared between all there are


def judge(choices: Choices, sizes: Sequence[int], calibration: Calibration) -> Judged:
    """Of characters of lines of these sizes, one after the other."""
    confidences = calibration.confidences(evidence_of(choices, sizes))
    shares = shares_of(choices)
    np.put_along_axis(shares, choices.chosen[:, None], 0.0, 1)
    total = shares.sum(1)
    shares *= (np.divide(1 - confidences, total, out=np.zeros_like(total), where=total > 0))[:, None]
    rows, columns = np.nonzero(shares >= LEAST)
    order = np.lexsort((-shares[rows, columns], rows))
    rows, columns = rows[order], columns[order]
    counts = np.bincount(rows, minlength=len(shares)).astype(np.int32)
    return Judged(confidences, counts, choices.labels[rows, columns], shares[rows, columns])
