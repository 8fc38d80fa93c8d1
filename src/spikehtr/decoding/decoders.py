"""What turns frames into text: greedy, or by beam search with a language model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.assets import LANGUAGE_MODEL
from spikehtr.decoding.beam import BeamOptions, Candidates, Choices, Scorer, SearchedLine, search_reference
from spikehtr.decoding.beam_native import NativeSearch, prepare_search, search_native
from spikehtr.decoding.beam_torch import DeviceScorer, search_on_device
from spikehtr.decoding.confidence import LEAST, Calibration, Judged, Sureness, judge, shares_of
from spikehtr.decoding.greedy import Decoded, best_frames, decode_frames
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.records import records
from spikehtr.errors import SpikeHTRError
from spikehtr.ops.host_copy import HostCopy
from spikehtr.results.line import Alternative
from spikehtr.text import Charset

NO_MODEL, BUNDLED = "none", "bundled"


class Begun:
    """A batch on its way: on the device, then searched beside the host, then made into lines."""

    def __init__(self, search: Callable[[], Callable[[], list[Decoded]]]) -> None:
        """`search` waits for the device and begins to search; what it gives waits for that."""
        self._search = search
        self._finish: Callable[[], list[Decoded]] | None = None

    def search(self) -> None:
        if self._finish is None:
            self._finish = self._search()

    def __call__(self) -> list[Decoded]:
        self.search()
        assert self._finish is not None
        return self._finish()


class Decoder(Protocol):
    """`begin` asks the device for what it needs of a batch; what it gives is called for the lines."""

    charset: Charset
    temperature: float  # that the logits are divided by

    def begin(self, logits: Tensor, lengths: Tensor) -> Begun: ...


class GreedyDecoder:
    """The likeliest label of each frame."""

    def __init__(self, charset: Charset, temperature: float = 1.0) -> None:
        self.charset, self.temperature = charset, temperature

    def begin(self, logits: Tensor, lengths: Tensor) -> Begun:
        frames = best_frames(logits / self.temperature, lengths)
        return Begun(lambda: lambda: decode_frames(frames, self.charset))


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
            raw = shares_of(line.choices)[np.arange(len(line.text)), line.choices.chosen]
            both = np.stack([raw, line.confidences], 1).astype(np.float32)  # [C, 2]
            out.append(Sureness(line.text, both, both.sum(0) / max(1, len(both))))
        return out

    def begin(self, logits: Tensor, lengths: Tensor) -> Begun:
        candidates = Candidates.of(logits / self.temperature, lengths, self.options)
        if candidates.log_probs.is_cuda and not _has_native():
            scorer = DeviceScorer(self.scorer, candidates.log_probs.device)
            found = partial(search_on_device, candidates, scorer, self.scorer, self.options)
            return Begun(lambda: lambda: self.decoded(found()))
        copies = [HostCopy(part) for part in candidates]

        def host() -> Candidates:
            return Candidates(*(copy.wait() for copy in copies))

        def begin_search() -> Callable[[], list[Decoded]]:
            run = prepare_search(host(), self.scorer, self.options, self.calibration)
            begun = self._beside.submit(run, max(1, torch.get_num_threads() - 1))  # and one for the host
            return lambda: self.decoded_native(begun.result())

        return Begun(begin_search if logits.is_cuda else lambda: lambda: self.search(host()))

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
        scores = np.full((len(lines), max(1, self.options.best)), -np.inf)
        for row, line in enumerate(lines):
            scores[row, : len(line.hypotheses)] = [h.score for h in line.hypotheses]
        shares = self._shares(scores)
        rows, columns = _worth_naming(shares)
        named = [
            Alternative(self.charset.text_of(lines[row].hypotheses[place].labels), float(shares[row, place]))
            for row, place in zip(rows.tolist(), columns.tolist(), strict=True)
        ]
        judged = judge(choices, sizes, self.calibration)
        return self._made(sizes, choices, judged, _by_line(named, rows, len(lines)))

    def decoded_native(self, found: NativeSearch) -> list[Decoded]:
        """What C has found and judged."""
        every = self.charset.text_of(found.all_labels)
        there = found.text_lengths >= 0
        sizes = found.text_lengths.clip(0)
        ends = sizes.cumsum().reshape(sizes.shape)
        shares = self._shares(np.where(there, found.scores[..., 0], -np.inf))
        rows, columns = _worth_naming(shares)
        begins, ends = (ends - sizes)[rows, columns].tolist(), ends[rows, columns].tolist()
        texts = [every[begin:end] for begin, end in zip(begins, ends, strict=True)]
        named = records(Alternative, texts, shares[rows, columns].tolist())
        return self._made(found.sizes, found.choices(), found.judged(), _by_line(named, rows, len(shares)))

    def _made(
        self, sizes: Sequence[int], choices: Choices, judged: Judged, texts: Sequence[tuple[Alternative, ...]]
    ) -> list[Decoded]:
        """Of all characters of all lines at once: a GPU reads lines faster than they could be looked at one by one."""
        sure = judged.confidences.tolist()
        characters = self.charset.text_of(choices.labels[np.arange(len(sure)), choices.chosen])
        starts, frames_after = choices.spans.T.tolist() if sure else ([], [])
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
            found = characters[own], starts[own], frames_after[own], sure[own], mean, tuple(others[own])
            out.append(Decoded(*found, own_texts, own_choices))
        return out

    def _shares(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of a line's texts among all that were found: [B, N] -> [B, N]; -inf where there is no such text."""
        slope = self.calibration.search + self.calibration.frame + self.calibration.around
        found = np.isfinite(scores)
        behind = np.subtract(scores, scores[:, :1], out=np.zeros_like(scores), where=found)
        weights = np.exp(behind * slope) * found
        shares: NDArray[np.float64] = weights / np.maximum(weights.sum(1, keepdims=True), np.finfo(np.float64).tiny)
        return shares


def _worth_naming(shares: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lines and places of texts beside the first, which is the line's own."""
    worth = shares >= LEAST
    worth[:, 0] = False
    rows, columns = np.nonzero(worth)
    return rows, columns


def _by_line(named: Sequence[Alternative], rows: NDArray[np.int64], lines: int) -> list[tuple[Alternative, ...]]:
    """Those of each line, of a list line after line."""
    ends = np.searchsorted(rows, np.arange(lines), side="right").tolist()
    return [tuple(named[begin:end]) for begin, end in pairwise([0, *ends])]


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
