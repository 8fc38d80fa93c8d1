"""Confidences beside a language model, fitted on validation lines so that they mean what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spikehtr.decoding.confidence import Calibration, Sureness, evidence_of
from spikehtr.decoding.greedy import Decoded
from spikehtr.evaluation.calibration import (
    CERTAIN,
    FEW,
    Floats,
    calibration_error,
    equal_items,
    judge_characters,
    judge_words,
    kept_places,
    word_places,
)

_STIFFNESS = 1.0  # how much the usual values count, as if some ten characters had been seen with them


class _Judged(NamedTuple):
    """Lines as a fit sees them."""

    evidence: Tensor  # [n, 4], of all their characters
    kept: Tensor  # [m], those that count
    right: Tensor  # [m]
    word: Tensor  # [n], the word that each character is part of; W for spaces
    words_right: Tensor  # [W]


def fit_calibration(references: Sequence[str], lines: Sequence[Decoded]) -> Calibration | None:
    """The likeliest calibration by the characters and the words of these lines; None where errors are too few to tell.

    Words count as well: beside a language model errors come together more than a product of characters says.
    """
    judged = _judge(references, lines)
    wrong = int((judged.right == 0).sum())
    if min(wrong, len(judged.right) - wrong) < FEW:
        return None
    usual = torch.tensor(Calibration(), dtype=torch.float64)
    weights = usual.clone().requires_grad_()
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        log_sure = torch.nn.functional.logsigmoid(judged.evidence @ weights)
        of_words = torch.zeros(len(judged.words_right) + 1, dtype=torch.float64)
        of_words = of_words.index_add(0, judged.word, log_sure)[:-1]
        loss = _log_loss(log_sure[judged.kept], judged.right) + _log_loss(of_words, judged.words_right)
        loss = (loss + _STIFFNESS * (weights - usual).square().sum()) / len(judged.right)
        loss.backward()
        return loss

    optimiser.step(closure)
    return Calibration(*weights.tolist())


def cross_fitted_errors(references: Sequence[str], lines: Sequence[Decoded]) -> dict[str, float]:
    """The calibration error of characters and words, each half of the lines by what was fitted on the other."""
    pairs: list[tuple[str, Sureness]] = []
    for half in (0, 1):
        found = fit_calibration(references[1 - half :: 2], lines[1 - half :: 2]) or Calibration()
        for reference, line in zip(references[half::2], lines[half::2], strict=True):
            sure = found.confidences(_evidence(line)).astype(np.float32)[:, None]
            pairs.append((reference, Sureness(line.text, sure, sure.mean(0) if len(sure) else np.zeros(1, np.float32))))
    judged = {"characters": judge_characters(pairs), "words": judge_words(pairs)}
    return {name: calibration_error(of.confidences[:, 0], of.right) for name, of in judged.items()}


def _judge(references: Sequence[str], lines: Sequence[Decoded]) -> _Judged:
    kept, right, words_right = list[int](), list[bool](), list[bool]()
    word: list[int] = []
    for reference, line in zip(references, lines, strict=True):
        first, text = len(word), line.text
        places = kept_places(text)
        kept += [first + place for place in places]
        right += equal_items(reference, "".join(text[place] for place in places))
        word += [-1] * len(text)
        words = word_places(text)
        for number, own in enumerate(words, start=len(words_right)):
            for place in own:
                word[first + place] = number
        words_right += equal_items(reference.split(), ["".join(text[place] for place in own) for own in words])
    evidence = np.concatenate([_evidence(line) for line in lines]) if lines else np.zeros((0, 4))
    word_of = torch.tensor(word, dtype=torch.int64)
    return _Judged(
        torch.from_numpy(evidence),
        torch.tensor(kept, dtype=torch.int64),
        torch.tensor(right, dtype=torch.float64),
        word_of.where(word_of >= 0, torch.tensor(len(words_right))),
        torch.tensor(words_right, dtype=torch.float64),
    )


def _evidence(line: Decoded) -> Floats:
    assert line.choices is not None
    return evidence_of(line.choices, [len(line.text)])


def _log_loss(log_sure: Tensor, right: Tensor) -> Tensor:
    sure = log_sure.exp().clamp(CERTAIN, 1 - CERTAIN)
    return -(right * sure.log() + (1 - right) * (1 - sure).log()).sum()
