"""What turns frames into text: greedy, or by beam search with a language model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from spikehtr.assets import LANGUAGE_MODEL
from spikehtr.decoding.beam import BeamOptions, Candidates, Choices, Scorer, SearchedLine, search_reference
from spikehtr.decoding.beam_native import NativeSearch, search_native
from spikehtr.decoding.beam_torch import DeviceScorer, search_on_device
from spikehtr.decoding.confidence import LEAST, Calibration, Judged, Sureness, judge, shares_of
from spikehtr.decoding.greedy import Decoded, best_frames, decode_frames
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.records import records
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.results.line import Alternative
from spikehtr.text import CharacterSpan, Charset

NO_MODEL, BUNDLED = "none", "bundled"


class Decoder(Protocol):
    """`begin` asks for what it needs of a batch and gives a function that waits for it and decodes."""

    charset: Charset
    temperature: float  # that the logits are divided by

    def begin(self, logits: Tensor, lengths: Tensor) -> Callable[[], list[Decoded]]: ...


class GreedyDecoder:
    """The likeliest label of each frame."""

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
        self._codes = np.array([0, *map(ord, charset.characters)], "<u4")  # of labels, as Unicode has them
        self.calibration = fitted_calibration(model) or Calibration()

    @cached_property
    def _beside(self) -> ThreadPoolExecutor:
        """Searches a GPU's batch while the host makes results of the one before and sends the next."""
        return ThreadPoolExecutor(1, "spikehtr-beam")

    @property
    def about(self) -> dict[str, Any]:
        """What figures depend on, ready for JSON."""
        sources = [source.get("name") for source in self.model.notes.get("sources", [])]
        return {
            "sources": sources,
            "order": self.model.order,
            "ngrams": self.model.arcs,
            **asdict(self.options),
            "tuned": "tuned" in self.model.notes,
            "calibrated": fitted_calibration(self.model) is not None,
        }

    def sureness(self, lines: Sequence[Decoded]) -> list[Sureness]:
        """How sure of each line, not calibrated and calibrated."""
        out = []
        for line in lines:
            assert line.choices is not None
            raw = shares_of(line.choices)[np.arange(len(line.spans)), line.choices.chosen]
            both = np.stack([raw, line.confidences], 1).astype(np.float32)  # [C, 2]
            out.append(Sureness(line.text, both, both.sum(0) / max(1, len(both))))
        return out

    def begin(self, logits: Tensor, lengths: Tensor) -> Callable[[], list[Decoded]]:
        candidates = Candidates.of(logits / self.temperature, lengths, self.options)
        if candidates.log_probs.is_cuda and not _has_native():
            scorer = DeviceScorer(self.scorer, candidates.log_probs.device)
            return lambda: self.decoded(search_on_device(candidates, scorer, self.scorer, self.options))
        copies = [HostCopy(part) for part in candidates]

        def host() -> Candidates:
            return Candidates(*(copy.wait() for copy in copies))

        if not logits.is_cuda:
            return lambda: self.search(host())
        begun = self._beside.submit(lambda: search_native(host(), self.scorer, self.options, self.calibration))
        return lambda: self.decoded_native(begun.result())

    def search(self, candidates: Candidates) -> list[Decoded]:
        """For candidates on the host."""
        if _has_native():
            return self.decoded_native(search_native(candidates, self.scorer, self.options, self.calibration))
        return self.decoded(search_reference(candidates, self.scorer, self.options))

    def decoded(self, lines: Sequence[SearchedLine]) -> list[Decoded]:
        """What a search has found, judged in Python."""
        if not lines:
            return []
        sizes = [len(line.choices.chosen) for line in lines]
        choices = Choices.joined([line.choices for line in lines])
        texts = [self._texts([h.score for h in line.hypotheses]) for line in lines]
        others = [
            tuple(Alternative(self._text(line.hypotheses[place].labels), share) for place, share in found)
            for line, found in zip(lines, texts, strict=True)
        ]
        return self._made(sizes, choices, judge(choices, sizes, self.calibration), others)

    def decoded_native(self, found: NativeSearch) -> list[Decoded]:
        """What C has found and judged."""
        every = self._text(found.all_labels)
        others, first = [], 0
        for scores, sizes in zip(found.scores[..., 0].tolist(), found.text_lengths.tolist(), strict=True):
            ends = list(accumulate(sizes, lambda end, size: end + max(0, size), initial=first))
            there = [score for score, size in zip(scores, sizes, strict=True) if size >= 0]
            named = self._texts(there)
            others.append(tuple(Alternative(every[ends[n] : ends[n + 1]], share) for n, share in named))
            first = ends[-1]
        return self._made(found.sizes, found.choices(), found.judged(), others)

    def _made(
        self, sizes: Sequence[int], choices: Choices, judged: Judged, texts: Sequence[tuple[Alternative, ...]]
    ) -> list[Decoded]:
        """Of all characters of all lines at once: a GPU reads lines faster than they could be looked at one by one."""
        sure = judged.confidences.tolist()
        characters = self._text(choices.labels[np.arange(len(sure)), choices.chosen])
        spans = records(CharacterSpan, characters, *choices.spans.T.tolist())
        names = ["", *self.charset.characters]  # the blank: it may well not be there
        named = records(Alternative, [names[label] for label in judged.labels.tolist()], judged.shares.tolist())
        others: list[tuple[Alternative, ...]] = [()] * len(sure)
        which = np.flatnonzero(judged.counts)
        ends = np.cumsum(judged.counts[which]).tolist()
        for character, (begin, end) in zip(which.tolist(), pairwise([0, *ends]), strict=True):
            others[character] = tuple(named[begin:end])
        out, first = [], 0
        for own_texts, own_choices, size in zip(texts, choices.split(sizes), sizes, strict=True):
            own = slice(first, first := first + size)
            mean = sum(sure[own]) / max(1, size)
            out.append(Decoded(spans[own], sure[own], mean, tuple(others[own]), own_texts, own_choices))
        return out

    def _text(self, labels: ArrayLike) -> str:
        """Of any number of labels at once."""
        return self._codes[np.asarray(labels, np.int64)].tobytes().decode("utf-32-le", "surrogatepass")

    def _texts(self, scores: Sequence[float]) -> list[tuple[int, float]]:
        """Which other texts of a line are worth naming, likeliest first, and their shares; the first is the line's."""
        slope = self.calibration.search + self.calibration.frame + self.calibration.around
        weights = [math.exp((score - scores[0]) * slope) for score in scores]
        total = math.fsum(weights)
        return [(n, weight / total) for n, weight in enumerate(weights) if n and weight >= LEAST * total]


def tuned_options(
    model: LanguageModel, beam: int | None = None, weight: float | None = None, bonus: float | None = None
) -> BeamOptions:
    """What the model was tuned to, or what usually does, where nothing else is asked for."""
    tuned = {name: model.notes.get("tuned", {}).get(name) for name in ("weight", "bonus", "floor")}
    asked = tuned | {name: value for name, value in (("weight", weight), ("bonus", bonus)) if value is not None}
    return replace(
        BeamOptions(), **{name: value for name, value in (asked | {"beam": beam}).items() if value is not None}
    )


def fitted_calibration(model: LanguageModel) -> Calibration | None:
    """That was fitted on validation lines; None where none was, and the usual values have to do."""
    noted = model.notes.get("tuned", {}).get("calibration")
    if noted is None:
        return None
    return Calibration(**{name: float(noted[name]) for name in Calibration._fields if name in noted})


def language_model_file(name: str | os.PathLike[str]) -> Path:
    """A file's path; 'bundled': the one that comes along."""
    return LANGUAGE_MODEL if os.fspath(name) == BUNDLED else Path(name)


def language_model(name: str | os.PathLike[str]) -> LanguageModel:
    return LanguageModel.load(language_model_file(name))


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
        model = language_model(model)
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
