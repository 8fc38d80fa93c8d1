"""CTC prefix beam search with a language model: what it is given, what it gives, and the plain reference.

A prefix is a text read so far. Of each the search keeps two sums over all alignments that spell it: those that end in a
blank and those that end in its last character. Its rank is

    log P(prefix | image) + weight * log P_lm(prefix) + bonus * length

and after each frame the best `beam` prefixes stay. After the last frame the model also says how likely a line ends
there. `beam_native` does the same in C and `beam_torch` for a batch at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.ngrams import END
from spikehtr.errors import SpikeHTRError
from spikehtr.text import BLANK

NEVER = -math.inf
Frame = list[tuple[int, float]]  # the candidates of one frame: labels and log-probabilities
_MOST = 100  # of weight and bonus: far beyond use, and no sum of them overflows


@dataclass(frozen=True)
class BeamOptions:
    """How the search goes. Weight, bonus and floor are tuned on validation lines (`spikehtr lm tune`)."""

    beam: int = 16  # prefixes that stay after a frame
    weight: float = 0.5  # of the language model
    bonus: float = 0.5  # for each character: the model alone likes short texts
    floor: float = 1e-3  # labels less likely in a frame are no candidates there: what the network is sure of stays
    candidates: int = 12  # most labels of a frame that are
    best: int = 5  # texts to give
    sums: bool = True  # over all alignments of a text; else the best one counts

    def __post_init__(self) -> None:
        for name in ("beam", "candidates", "best"):
            if getattr(self, name) < 1:
                raise SpikeHTRError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 <= self.weight <= _MOST:
            raise SpikeHTRError(f"weight must lie in 0..{_MOST}, not {self.weight}; 0.3 to 1.5 is usual")
        if not -_MOST <= self.bonus <= _MOST:
            raise SpikeHTRError(f"bonus must lie in -{_MOST}..{_MOST}, not {self.bonus}; 0 to 2 is usual")
        if not 0 <= self.floor < 1:
            raise SpikeHTRError(f"floor must be at least 0 and below 1, not {self.floor}")


class Candidates(NamedTuple):
    """The likeliest labels of each frame, likeliest first; what is below the floor has log-probability -inf."""

    log_probs: Tensor  # [B, L, K] fp32
    labels: Tensor  # [B, L, K] int32
    lengths: Tensor  # [B]

    @classmethod
    def of(cls, logits: Tensor, lengths: Tensor, options: BeamOptions) -> Self:
        """logits [B, L, V], lengths [B]. The likeliest label of a frame always stays."""
        count = min(options.candidates, logits.shape[-1])
        every = logits.float().log_softmax(-1)
        labels = _order_keys(every).topk(count, dim=-1).indices
        log_probs = every.gather(-1, labels)
        below = log_probs < (math.log(options.floor) if options.floor else NEVER)
        below[..., 0] = False
        return cls(log_probs.masked_fill(below, NEVER).contiguous(), labels.int().contiguous(), lengths)


def _order_keys(values: Tensor) -> Tensor:
    """Integers [..., V] in the order of the values; of equal ones the first is the largest.

    Of equal values `topk` may take either, and on another device the other; a stable sort takes twice as long.
    """
    bits = values.contiguous().view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as floats are: of negative ones, the bits run backwards
    return (ordered.long() << 20) - torch.arange(values.shape[-1], device=values.device)


class Hypothesis(NamedTuple):
    """A text the search found."""

    labels: list[int]
    score: float  # what it is ranked by
    log_prob: float  # of the text given the image, over the alignments that were followed


class Choices(NamedTuple):
    """What else could stand in place of each of C characters: the candidates of its clearest frame, and how likely.

    The weights are of the frame and of the language model, of the candidate and of the characters after it; the blank
    stands for leaving the character out.
    """

    spans: NDArray[np.int32]  # [C, 2], frames [start, end) that spelled the character
    labels: NDArray[np.int32]  # [C, K]
    log_probs: NDArray[np.float32]  # [C, K], of the frame alone
    log_weights: NDArray[np.float64]  # [C, K]; -inf where there are no more candidates
    chosen: NDArray[np.int64]  # [C], the place of the character that was read among them

    @classmethod
    def joined(cls, parts: Sequence[Choices]) -> Choices:
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def split(self, sizes: Sequence[int]) -> list[Choices]:
        """The inverse of `joined`."""
        ends = list(accumulate(sizes))
        return [
            Choices(*(part[end - size : end] for part in self))  # type: ignore[arg-type]
            for size, end in zip(sizes, ends, strict=True)
        ]


class SearchedLine(NamedTuple):
    """What the search says of a line: the texts, best first, and the choices of the best one's characters."""

    hypotheses: list[Hypothesis]
    choices: Choices


class Scorer(NamedTuple):
    """A language model in the labels of a network; or none, and every text is as likely as the other."""

    model: LanguageModel | None
    tokens: NDArray[np.int32]  # [V], the token of each label

    @property
    def start(self) -> int:
        return self.model.start if self.model else 0

    def step(self, state: int, label: int) -> tuple[float, int]:
        return self.model.step(state, int(self.tokens[label])) if self.model else (0.0, 0)

    def end(self, state: int) -> float:
        return self.model.step(state, END)[0] if self.model else 0.0


@dataclass
class _Prefix:
    """A text so far, with the sums over its alignments."""

    state: int
    lm: float
    length: int
    blank: float = NEVER  # alignments that end in a blank
    last: float = NEVER  # those that end in the last character

    def score(self, options: BeamOptions) -> float:
        return _log_add(self.blank, self.last, options.sums) + options.weight * self.lm + options.bonus * self.length


def search_reference(candidates: Candidates, scorer: Scorer, options: BeamOptions) -> list[SearchedLine]:
    """The search in plain Python: slow, and what the others are tested against."""
    return [_search_line(frames, scorer, options) for frames in frames_of(candidates)]


def frames_of(candidates: Candidates) -> Iterator[list[Frame]]:
    """Line by line, what each frame may be."""
    for log_probs, labels, n in zip(*(part.tolist() for part in candidates), strict=True):
        yield [
            [(label, value) for label, value in zip(*frame, strict=True) if value > NEVER]
            for frame in zip(labels[:n], log_probs[:n], strict=True)
        ]


def _search_line(frames: Sequence[Frame], scorer: Scorer, options: BeamOptions) -> SearchedLine:
    beam: dict[tuple[int, ...], _Prefix] = {(): _Prefix(scorer.start, 0.0, 0, blank=0.0)}
    for frame in frames:
        found = _advance(beam, frame, scorer, options)
        kept = sorted(found, key=lambda key: -found[key].score(options))[: options.beam]
        beam = {key: found[key] for key in kept if found[key].score(options) > NEVER}
    hypotheses = []
    for key, prefix in beam.items():
        score = prefix.score(options) + options.weight * scorer.end(prefix.state)
        hypotheses.append(Hypothesis(list(key), score, _log_add(prefix.blank, prefix.last, options.sums)))
    hypotheses.sort(key=lambda found: -found.score)
    return searched(hypotheses[: options.best], frames, scorer, options)


def searched(
    hypotheses: list[Hypothesis], frames: Sequence[Frame], scorer: Scorer, options: BeamOptions
) -> SearchedLine:
    """With the spans and choices of the best. Frames that are no numbers have no text at all, and no characters."""
    best = hypotheses[0].labels if hypotheses else []
    return SearchedLine(hypotheses, choices_of(frames, best, align(frames, best) if best else [], scorer, options))


def _advance(
    beam: dict[tuple[int, ...], _Prefix], frame: Frame, scorer: Scorer, options: BeamOptions
) -> dict[tuple[int, ...], _Prefix]:
    """All prefixes after one more frame; those there were come first."""
    by_label = dict(frame)
    found: dict[tuple[int, ...], _Prefix] = {}
    for key, prefix in beam.items():
        stays = _Prefix(prefix.state, prefix.lm, prefix.length)
        stays.blank = _log_add(prefix.blank, prefix.last, options.sums) + by_label.get(BLANK, NEVER)
        if key:
            stays.last = prefix.last + by_label.get(key[-1], NEVER)
        found[key] = stays
    for key, prefix in beam.items():
        for label, log_prob in frame:
            if label == BLANK:
                continue
            # The same character again begins anew only after a blank.
            again = bool(key) and key[-1] == label
            before = prefix.blank if again else _log_add(prefix.blank, prefix.last, options.sums)
            if before == NEVER:
                continue
            longer = (*key, label)
            if longer not in found:
                cost, state = scorer.step(prefix.state, label)
                found[longer] = _Prefix(state, prefix.lm + cost, prefix.length + 1)
            found[longer].last = _log_add(found[longer].last, before + log_prob, options.sums)
    return found


def _log_add(a: float, b: float, sums: bool) -> float:
    """log(exp(a) + exp(b)); without sums the larger."""
    high, low = max(a, b), min(a, b)
    return high if not sums or low == NEVER else high + math.log1p(math.exp(low - high))


def align(frames: Sequence[Frame], text: Sequence[int]) -> list[tuple[int, int]]:
    """The frames [start, end) of each character in the best alignment of a text."""
    # Places 0, 2, 4, ... are the blanks before, between and after the characters at 1, 3, 5, ...
    spelt = [BLANK if place % 2 == 0 else text[place // 2] for place in range(2 * len(text) + 1)]
    scores = [NEVER] * len(spelt)
    moves: list[list[int]] = []  # at each frame, by how many places it was come to each
    for number, frame in enumerate(frames):
        by_label = dict(frame)
        fresh, move = [], []
        for place, label in enumerate(spelt):
            step, best = 0, scores[place] if number else (0.0 if place == 0 else NEVER)
            if place >= 1 and (before := scores[place - 1] if number else (0.0 if place == 1 else NEVER)) > best:
                step, best = 1, before
            if place >= 3 and place % 2 and label != spelt[place - 2] and scores[place - 2] > best:
                step, best = 2, scores[place - 2]
            fresh.append(best + by_label.get(label, NEVER))
            move.append(step)
        scores = fresh
        moves.append(move)
    place = len(spelt) - 1
    if place and scores[place - 1] > scores[place]:
        place -= 1
    spans = [(0, 0)] * len(text)
    for number in range(len(frames) - 1, -1, -1):
        if place % 2:
            start, end = number, spans[place // 2][1] or number + 1
            spans[place // 2] = start, end
        place -= moves[number][place]
    return spans


def choices_of(
    frames: Sequence[Frame],
    text: Sequence[int],
    spans: Sequence[tuple[int, int]],
    scorer: Scorer,
    options: BeamOptions,
) -> Choices:
    """What else each character could be, the others as they are."""
    reach = scorer.model.order - 1 if scorer.model else 0  # so many characters on, the model has forgotten this one
    size = (len(text), options.candidates)
    labels, log_probs = np.zeros(size, np.int32), np.full(size, NEVER, np.float32)
    log_weights, chosen = np.full(size, NEVER), np.zeros(len(text), np.int64)
    state = scorer.start
    for place, (start, end) in enumerate(spans):
        clearest = max(range(start, end), key=lambda number: dict(frames[number])[text[place]])
        for number, (label, log_prob) in enumerate(frames[clearest]):
            cost, after = (0.0, state) if label == BLANK else scorer.step(state, label)
            for follower in text[place + 1 : place + 1 + reach]:
                more, after = scorer.step(after, follower)
                cost += more
            if place + 1 + reach > len(text):
                cost += scorer.end(after)
            labels[place, number], log_probs[place, number] = label, log_prob
            log_weights[place, number] = log_prob + options.weight * cost + (label != BLANK) * options.bonus
        chosen[place] = labels[place].tolist().index(text[place])
        state = scorer.step(state, text[place])[1]
    return Choices(np.array(spans, np.int32).reshape(-1, 2), labels, log_probs, log_weights, chosen)
