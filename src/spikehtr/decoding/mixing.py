"""Several language models as one: linear interpolation, with the weights that suit some lines best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.ngrams import END, Floats, Ints, Level, NGrams, Vocabulary, build_levels, distinct, rows_of
from spikehtr.errors import SpikeHTRError

_ROUNDS, _SETTLED = 200, 1e-5


class Mixture(NamedTuple):
    model: NGrams
    weights: list[float]


def mix(models: Sequence[LanguageModel], lines: Sequence[str]) -> Mixture:
    """The models interpolated, with the weights that make `lines` likeliest."""
    if not lines:
        raise SpikeHTRError("weights of several sources need validation lines to suit: name some")
    weights = fit_weights(models, lines)
    return Mixture(interpolate(models, weights), weights)


def fit_weights(models: Sequence[LanguageModel], lines: Sequence[str]) -> list[float]:
    """By expectation and maximisation; they add up to 1."""
    vocabulary = _union(models)
    probs = np.stack(
        [np.exp(np.concatenate(model.score_lines(lines)) - _unknown_cost(model, vocabulary, lines)) for model in models]
    )  # [models, tokens]
    weights = np.full(len(models), 1.0 / len(models))
    for _ in range(_ROUNDS):
        shares = weights[:, None] * probs
        fresh = (shares / shares.sum(0)).mean(1)
        settled = np.abs(fresh - weights).max() < _SETTLED
        weights = fresh
        if settled:
            break
    return [float(weight) for weight in weights]


def interpolate(models: Sequence[LanguageModel], weights: Sequence[float]) -> NGrams:
    """One model with all the n-grams of all: each has the weighted mean of their probabilities.

    Back-off weights are such that probabilities add up to 1 again; what no model lists is then near the mean, not it.
    """
    vocabulary = _union(models)
    spelt = [(model, model.to_ngrams()) for model in models]
    readers = [_States(model, vocabulary) for model in models]
    grams: list[tuple[Ints, Floats, Floats]] = []
    for length in range(1, max(model.order for model in models) + 1):
        tokens = np.arange(vocabulary.start + 1)[:, None]
        if length > 1:
            tokens = distinct(
                np.concatenate([_renamed(ngrams, vocabulary, length) for m, ngrams in spelt if length <= m.order])
            )
        prefixes = rows_of(grams[-1][0], tokens[:, :-1]) if grams else np.zeros(len(tokens), np.int64)
        mixed = np.zeros(len(tokens))
        for reader, weight in zip(readers, weights, strict=True):
            mixed += weight * np.exp(reader.read(prefixes, tokens[:, -1]))
        grams.append((tokens, np.log(np.maximum(mixed, 1e-300)), np.zeros(len(tokens))))
    ngrams = build_levels(vocabulary, grams)
    return NGrams(vocabulary, tuple(_with_backoff(ngrams)))


class _States:
    """A model that is shown n-grams of another vocabulary, length by length."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        own = model.vocabulary
        self.model, self.share = model, _unknown_share(model, vocabulary)
        self.names = np.concatenate([[END], own.tokens(vocabulary.characters), [own.unknown, own.start]])
        self.states = np.zeros(1, np.int64)  # after each n-gram of the length before

    def read(self, prefixes: Ints, labels: Ints) -> Floats:
        """The log-probability of each label after its prefix. The line's start has none, and gets 0."""
        own, states = self.names[labels], self.states[prefixes]
        scores, after = np.zeros(len(own)), np.full(len(own), self.model.start, np.int64)
        predicted = own != self.model.vocabulary.start
        scores[predicted], after[predicted] = self.model.steps(states[predicted], own[predicted])
        scores[own == self.model.vocabulary.unknown] -= self.share
        self.states = after
        return scores


def _union(models: Sequence[LanguageModel]) -> Vocabulary:
    return Vocabulary(tuple(sorted(set().union(*(model.vocabulary.characters for model in models)))))


def _unknown_share(model: LanguageModel, vocabulary: Vocabulary) -> float:
    """What the unknown character's log-probability is lowered by: several of `vocabulary` share it."""
    return float(np.log(1 + len(vocabulary.characters) - len(model.vocabulary.characters)))


def _unknown_cost(model: LanguageModel, vocabulary: Vocabulary, lines: Sequence[str]) -> Floats:
    """The same for each token of each line, its end included: 0 for what the model knows."""
    known = set(model.vocabulary.characters)
    share = _unknown_share(model, vocabulary)
    return np.array([0.0 if c in known else share for line in lines for c in (*line, model.vocabulary.characters[0])])


def _renamed(ngrams: NGrams, vocabulary: Vocabulary, length: int) -> Ints:
    """N-grams in the tokens of another vocabulary."""
    own = ngrams.vocabulary.characters
    names = np.concatenate([[END], vocabulary.tokens(own), [vocabulary.unknown, vocabulary.start]])
    renamed: Ints = names[ngrams.tokens_of(length)]
    return renamed


def _with_backoff(ngrams: NGrams) -> list[Level]:
    levels = list(ngrams.levels)
    for length in range(len(levels) - 1, 0, -1):
        before, level = levels[length - 1], levels[length]
        count = len(before.label)
        shorter = np.exp(before.log_prob[level.suffix])
        listed = np.bincount(level.prefix, np.exp(level.log_prob), minlength=count)
        covered = np.bincount(level.prefix, shorter, minlength=count)
        left, unseen = np.maximum(1.0 - listed, 1e-9), np.maximum(1.0 - covered, 1e-9)
        backoff = np.where(np.bincount(level.prefix, minlength=count) > 0, np.log(left / unseen), 0.0)
        levels[length - 1] = Level(before.prefix, before.label, before.suffix, before.log_prob, backoff)
    return levels
