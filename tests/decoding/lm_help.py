"""Small language models and frames to try decoders on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spikehtr.decoding.beam import BeamOptions, Candidates, Scorer
from spikehtr.decoding.kneser_ney import train_ngrams
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.text import Charset

LINES = ["the cat sat on the mat", "a cat and a hat", "that hat", "the end", "at the end of the mat", "tea at ten"]
EXACT = BeamOptions(beam=100_000, floor=0.0, candidates=100, best=100_000)


def small_model(order: int = 3, lines: list[str] | None = None) -> LanguageModel:
    return LanguageModel.from_ngrams(train_ngrams(LINES if lines is None else lines, order))


def scorer_of(model: LanguageModel | None, characters: str) -> Scorer:
    charset = Charset(tuple(characters))
    tokens = np.zeros(len(charset), np.int32) if model is None else model.tokens_of(charset)
    return Scorer(model, tokens)


def random_logits(seed: int, lines: int, frames: int, labels: int, sharp: float = 2.0) -> tuple[Tensor, Tensor]:
    """Logits [B, L, V] and lengths [B], of which the first is L."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, frames + 1, (lines,), generator=generator)
    lengths[0] = frames
    return sharp * torch.randn(lines, frames, labels, generator=generator), lengths


def random_candidates(seed: int, lines: int, frames: int, labels: int, options: BeamOptions) -> Candidates:
    return Candidates.of(*random_logits(seed, lines, frames, labels), options)
