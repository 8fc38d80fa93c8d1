"""What turns frames into text: greedy, or by beam search with a language model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from spikehtr.assets import LANGUAGE_MODEL
from spikehtr.decoding.beam import BeamOptions, Candidates, Scorer, SearchedLine, search_reference
from spikehtr.decoding.beam_native import search_native
from spikehtr.decoding.beam_torch import DeviceScorer, search_on_device
from spikehtr.decoding.confidence import softmax
from spikehtr.decoding.greedy import Decoded, best_frames, decode_frames
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.text import BLANK, CharacterSpan, Charset

NO_MODEL, BUNDLED = "none", "bundled"
LEAST = 0.01  # alternatives less likely than this are not named


class Decoder(Protocol):
    """`begin` asks for what it needs of a batch and gives a function that waits for it and decodes."""

    charset: Charset
    temperature: float  # that the logits are divided by
    confidence_temperature: float  # of confidences beside that, where frames do not give them

    def begin(self, logits: Tensor, lengths: Tensor) -> Callable[[], list[Decoded]]: ...


class GreedyDecoder:
    """The likeliest label of each frame."""

    confidence_temperature = 1.0

    def __init__(self, charset: Charset, temperature: float = 1.0) -> None:
        self.charset, self.temperature = charset, temperature

    def begin(self, logits: Tensor, lengths: Tensor) -> Callable[[], list[Decoded]]:
        frames = best_frames(logits / self.temperature, lengths)
        return lambda: decode_frames(frames, self.charset)


class BeamDecoder:
    """Prefix beam search. A GPU gives the likeliest labels of its frames; the search runs in C on the host, beside it.

    Where the C functions could not be built, a GPU searches by itself, and a CPU does so in Python, which is slow.
    """

    def __init__(
        self, charset: Charset, model: LanguageModel, options: BeamOptions | None = None, temperature: float = 1.0
    ) -> None:
        """`options`: by default those that the model was tuned to."""
        self.charset, self.model, self.temperature = charset, model, temperature
        self.options = options or tuned_options(model)
        self.scorer = Scorer(model, model.tokens_of(charset))
        tuned = model.notes.get("tuned", {})
        self.confidence_temperature = float(tuned.get("confidence_temperature", 1.5))
        self.confidence_share = float(tuned.get("confidence_share", 0.5))

    @property
    def about(self) -> dict[str, Any]:
        """What figures depend on, ready for JSON."""
        sources = [source.get("name") for source in self.model.notes.get("sources", [])]
        return {"sources": sources, "order": self.model.order, "ngrams": self.model.arcs, **asdict(self.options)}

    def begin(self, logits: Tensor, lengths: Tensor) -> Callable[[], list[Decoded]]:
        candidates = Candidates.of(logits / self.temperature, lengths, self.options)
        if candidates.log_probs.is_cuda and not _has_native():
            scorer = DeviceScorer(self.scorer, candidates.log_probs.device)
            return lambda: self._decoded(search_on_device(candidates, scorer, self.scorer, self.options))
        copies = [HostCopy(part) for part in candidates]
        return lambda: self.search(Candidates(*(copy.wait() for copy in copies)))

    def search(self, candidates: Candidates) -> list[Decoded]:
        """For candidates on the host."""
        search = search_native if _has_native() else search_reference
        return self._decoded(search(candidates, self.scorer, self.options))

    def _decoded(self, lines: Sequence[SearchedLine]) -> list[Decoded]:
        share, temperature = self.confidence_share, self.confidence_temperature
        shared = [line._replace(choices=[choice.with_share(share) for choice in line.choices]) for line in lines]
        return [_decoded(line, self.charset, temperature) for line in shared]


def tuned_options(
    model: LanguageModel, beam: int | None = None, weight: float | None = None, bonus: float | None = None
) -> BeamOptions:
    """What the model was tuned to, or what usually does, where nothing else is asked for."""
    tuned = {name: model.notes.get("tuned", {}).get(name) for name in ("weight", "bonus", "floor")}
    asked = tuned | {name: value for name, value in (("weight", weight), ("bonus", bonus)) if value is not None}
    return replace(
        BeamOptions(), **{name: value for name, value in (asked | {"beam": beam}).items() if value is not None}
    )


def decoder_for(
    charset: Charset,
    temperature: float,
    asked: str | os.PathLike[str] | LanguageModel | None = None,
    carried: LanguageModel | None = None,
    beam: int | None = None,
    weight: float | None = None,
) -> Decoder:
    """The decoder with the language model that is `asked` for, by default the one that the model's file carries.

    A language model is a file's path; 'bundled', the one that comes along; or 'none', to decode greedily.
    """
    model = carried if asked is None else None if asked == NO_MODEL else asked
    if isinstance(model, str | os.PathLike):
        model = LanguageModel.load(LANGUAGE_MODEL if model == BUNDLED else model)
    if model is None:
        if beam is not None or weight is not None:
            raise SpikeHTRError("a beam and a weight are for a language model, and there is none: name one")
        return GreedyDecoder(charset, temperature)
    return BeamDecoder(charset, model, tuned_options(model, beam, weight), temperature)


@cache
def _has_native() -> bool:
    from spikehtr.readers.cpu.library import library

    try:
        library()
    except SpikeHTRError:
        return False
    return True


def _decoded(line: SearchedLine, charset: Charset, temperature: float) -> Decoded:
    def text_of(labels: Sequence[int]) -> str:
        return "".join(charset.characters[label - 1] for label in labels)

    best = line.hypotheses[0].labels
    spans = [
        CharacterSpan(charset.characters[label - 1], choice.start, choice.end)
        for label, choice in zip(best, line.choices, strict=True)
    ]
    confidences, alternatives = [], []
    for choice in line.choices:
        shares = softmax(choice.log_weights, temperature).tolist()
        confidences.append(shares.pop(choice.chosen))
        labels = np.delete(choice.labels, choice.chosen).tolist()
        others = sorted(((p, o) for p, o in zip(shares, labels, strict=True) if p >= LEAST), reverse=True)
        alternatives.append(tuple(("" if o == BLANK else charset.characters[o - 1], p) for p, o in others))
    shares = softmax(np.array([h.score for h in line.hypotheses]), temperature).tolist()
    texts = [(text_of(h.labels), share) for h, share in zip(line.hypotheses[1:], shares[1:], strict=True)]
    texts = [(text, share) for text, share in texts if share >= LEAST]
    mean = sum(confidences) / max(1, len(confidences))
    return Decoded(spans, confidences, mean, tuple(alternatives), tuple(texts), tuple(line.choices))
