"""N-grams from text, against the definition written out by dictionaries."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_help import LINES, small_model

from spikehtr.decoding.kneser_ney import _discounts, prepare_lines, train_ngrams
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.ngrams import END
from spikehtr.errors import SpikeHTRError

texts = st.lists(st.text("abc ", min_size=1, max_size=12), min_size=1, max_size=12)


class Written:
    """Interpolated modified Kneser-Ney as the paper has it, token by token."""

    def __init__(self, lines: list[str], order: int) -> None:
        self.order, self.predicted = order, len(set("".join(lines))) + 2
        seen: Counter[tuple[str, ...]] = Counter()
        for line in lines:
            tokens = ("<s>", *line, "</s>")
            for end in range(1, len(tokens) + 1):
                for length in range(1, min(order, end) + 1):
                    seen[tokens[end - length : end]] += 1
        before = defaultdict(set)
        for gram in seen:
            if len(gram) > 1:
                before[gram[1:]].add(gram[0])
        self.counts = {g: n if len(g) == order or g[0] == "<s>" else len(before[g]) for g, n in seen.items()}
        del self.counts[("<s>",)]
        self.taken = {}
        for length in range(1, order + 1):
            weights = np.array([n for g, n in self.counts.items() if len(g) == length])
            self.taken[length] = _discounts(weights)

    def probability(self, context: tuple[str, ...], token: str) -> float:
        context = context[max(0, len(context) - self.order + 1) :]
        after = {g[-1]: n for g, n in self.counts.items() if g[:-1] == context}
        shorter = self.probability(context[1:], token) if context else 1 / self.predicted
        if not after:
            return shorter
        whole, taken = sum(after.values()), self.taken[len(context) + 1]
        left = sum(taken[min(n, 3)] for n in after.values()) / whole
        n = after.get(token, 0)
        return max(n - taken[min(n, 3)], 0) / whole + left * shorter


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_are_those_of_the_definition(order: int) -> None:
    model, written = small_model(order), Written(LINES, order)
    for line in [*LINES, "hat tea", "mmm", "o"]:
        tokens = ["<s>", *line, "</s>"]
        wanted = [
            math.log(written.probability(tuple(tokens[:place]), tokens[place])) for place in range(1, len(tokens))
        ]
        assert model.score_lines([line])[0] == pytest.approx(wanted, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 5), st.integers(1, 3))
def test_the_probabilities_after_any_context_add_up_to_one(lines: list[str], order: int, min_count: int) -> None:
    lines = prepare_lines(lines)
    if not lines:
        return
    model = LanguageModel.from_ngrams(train_ngrams(lines, order, min_count))
    tokens = np.arange(len(model.vocabulary))
    for state in range(model.states):
        log_probs, _ = model.steps(np.full(len(tokens), state), tokens)
        assert np.exp(log_probs).sum() == pytest.approx(1, abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(texts, st.integers(2, 5))
def test_one_at_a_time_and_many_at_a_time_are_the_same(lines: list[str], order: int) -> None:
    lines = prepare_lines(lines)
    if not lines:
        return
    model = LanguageModel.from_ngrams(train_ngrams(lines, order))
    for line, scores in zip(lines, model.score_lines(lines), strict=True):
        state = model.start
        for token, score in zip([*model.vocabulary.tokens(line), END], scores, strict=True):
            found, state = model.step(state, int(token))
            assert found == pytest.approx(score)


def test_pruning_leaves_out_rare_long_ngrams_and_no_short_ones() -> None:
    whole, pruned = train_ngrams(LINES, 5), train_ngrams(LINES, 5, min_count=2)
    sizes = [[len(level.label) for level in ngrams.levels] for ngrams in (whole, pruned)]
    assert sizes[0][:3] == sizes[1][:3]
    assert all(fewer < more for more, fewer in zip(sizes[0][3:], sizes[1][3:], strict=True))


def test_a_line_with_unknown_characters_has_a_finite_score() -> None:
    assert np.isfinite(small_model().score_lines(["the Ω"])[0]).all()


def test_counts_of_counts_that_give_no_discounts_are_replaced() -> None:
    assert _discounts(np.array([5, 5, 5])).tolist() == [0.0, 0.5, 1.0, 1.5]
    good = _discounts(np.array([1] * 50 + [2] * 20 + [3] * 10 + [4] * 5))
    assert all(0 < discount < count for count, discount in enumerate(good[1:], start=1))


def test_paragraphs_are_cut_at_spaces_and_nothing_is_lost() -> None:
    text = "word " * 200
    lines = prepare_lines([text, "", "  a  line "])
    assert " ".join(lines[:-1]) == text.strip()
    assert max(map(len, lines)) < 80
    assert lines[-1] == "a line"


def test_no_text_and_impossible_orders_are_told() -> None:
    with pytest.raises(SpikeHTRError, match="no text"):
        train_ngrams([], 3)
    with pytest.raises(SpikeHTRError, match="1 to 8"):
        train_ngrams(LINES, 9)
