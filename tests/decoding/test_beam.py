"""The prefix beam search: exact on small cases, and the same in C and in batches."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_help import EXACT, random_candidates, random_logits, scorer_of, small_model

from spikehtr.decoding.beam import BeamOptions, Candidates, Hypothesis, Scorer, SearchedLine, search_reference
from spikehtr.decoding.beam_native import NativeSearch, search_native
from spikehtr.decoding.beam_torch import DeviceScorer, search_torch
from spikehtr.decoding.confidence import Calibration, judge
from spikehtr.decoding.greedy import decode_greedy
from spikehtr.errors import SpikeHTRError
from spikehtr.readers.cpu.library import library
from spikehtr.text import Charset

LETTERS = "abcdefhmnot "


def built() -> bool:
    try:
        library()
    except SpikeHTRError:
        return False
    return True


native = pytest.mark.skipif(not built(), reason="the native kernels were not built: no C compiler")


def brute_force(candidates: Candidates, scorer: Scorer, options: BeamOptions) -> list[tuple[list[int], float]]:
    """Every text of a single line with its score, best first: by adding up all alignments."""
    length, labels = int(candidates.lengths[0]), candidates.labels[0].tolist()
    log_probs = candidates.log_probs[0].tolist()
    texts: dict[tuple[int, ...], list[float]] = {}
    for path in itertools.product(range(len(labels[0])), repeat=length):
        spelt = [labels[frame][place] for frame, place in enumerate(path)]
        text = tuple(label for label, _ in itertools.groupby(spelt) if label)
        texts.setdefault(text, []).append(sum(log_probs[frame][place] for frame, place in enumerate(path)))
    found = []
    for text, scores in texts.items():
        state, lm = scorer.start, 0.0
        for label in text:
            cost, state = scorer.step(state, label)
            lm += cost
        image = math.log(math.fsum(map(math.exp, scores))) if options.sums else max(scores)
        found.append((list(text), image + options.weight * (lm + scorer.end(state)) + options.bonus * len(text)))
    return sorted(found, key=lambda pair: -pair[1])


@pytest.mark.parametrize("sums", [True, False])
@pytest.mark.parametrize("weight", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_what_trying_every_text_finds(seed: int, weight: float, sums: bool) -> None:
    options = replace(EXACT, weight=weight, bonus=0.3, sums=sums, beam=500, best=500)
    scorer = scorer_of(small_model(3), "at ")
    candidates = random_candidates(seed, 1, 5, 4, options)
    wanted = brute_force(candidates, scorer, options)
    found = search_reference(candidates, scorer, options)[0].hypotheses
    assert len(found) == len(wanted)
    assert [h.score for h in found] == pytest.approx([score for _, score in wanted])
    for (text, score), h in zip(wanted[:5], found, strict=False):
        assert h.labels == text or h.score == pytest.approx(score)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 20), st.integers(2, 13))
def test_one_alignment_without_a_model_is_greedy_decoding(seed: int, frames: int, labels: int) -> None:
    charset = Charset(tuple(LETTERS[: labels - 1]))
    logits, lengths = random_logits(seed, 3, frames, labels)
    options = BeamOptions(beam=1, weight=0.0, bonus=0.0, floor=0.0, sums=False)
    found = search_reference(Candidates.of(logits, lengths, options), scorer_of(None, charset_text(charset)), options)
    for line, greedy in zip(found, decode_greedy(logits, lengths, charset), strict=True):
        assert "".join(charset.characters[label - 1] for label in line.hypotheses[0].labels) == greedy.text
        assert line.choices.spans.tolist() == [[span.start, span.end] for span in greedy.spans]


def charset_text(charset: Charset) -> str:
    return "".join(charset.characters)


settings_drawn = st.builds(
    BeamOptions,
    beam=st.sampled_from([1, 2, 5, 16]),
    weight=st.sampled_from([0.0, 0.5, 2.0]),
    bonus=st.sampled_from([-0.5, 0.0, 0.7]),
    floor=st.sampled_from([0.0, 1e-3, 0.05, 0.4]),
    candidates=st.sampled_from([1, 3, 13]),
    sums=st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 24), st.booleans(), settings_drawn)
@native
def test_the_search_in_c_is_the_reference(seed: int, frames: int, with_model: bool, options: BeamOptions) -> None:
    scorer = scorer_of(small_model(4) if with_model else None, LETTERS)
    candidates = random_candidates(seed, 3, frames, len(LETTERS) + 1, options)
    found = search_native(candidates, scorer, options)
    check_same(search_reference(candidates, scorer, options), lines_of(found))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 24),
    st.booleans(),
    settings_drawn,
    st.builds(Calibration, *[st.floats(-1.0, 1.0)] * 4),
)
@native
def test_c_judges_characters_as_the_reference_does(
    seed: int, frames: int, with_model: bool, options: BeamOptions, calibration: Calibration
) -> None:
    scorer = scorer_of(small_model(4) if with_model else None, LETTERS)
    candidates = random_candidates(seed, 3, frames, len(LETTERS) + 1, options)
    searched = search_native(candidates, scorer, options, calibration)
    found, wanted = searched.judged(), judge(searched.choices(), searched.sizes, calibration)
    assert found.confidences == pytest.approx(wanted.confidences, abs=1e-9)
    assert found.counts.tolist() == wanted.counts.tolist()
    assert found.labels.tolist() == wanted.labels.tolist()
    assert found.shares == pytest.approx(wanted.shares, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 16), st.booleans(), settings_drawn)
def test_the_search_in_batches_is_the_reference(seed: int, frames: int, with_model: bool, options: BeamOptions) -> None:
    scorer = scorer_of(small_model(4) if with_model else None, LETTERS)
    candidates = random_candidates(seed, 3, frames, len(LETTERS) + 1, options)
    found = search_torch(candidates, DeviceScorer(scorer, torch.device("cpu")), options)
    for row, line in enumerate(search_reference(candidates, scorer, options)):
        assert int((found.scores[row] > -math.inf).sum()) == len(line.hypotheses)
        for place, wanted in enumerate(line.hypotheses):
            assert found.scores[row, place].item() == pytest.approx(wanted.score, abs=1e-6)
            assert found.log_probs[row, place].item() == pytest.approx(wanted.log_prob, abs=1e-6)
            assert found.texts[row, place, : found.lengths[row, place]].tolist() == wanted.labels


def lines_of(found: NativeSearch) -> list[SearchedLine]:
    """What C has found, as the reference gives it."""
    labels, at, every = found.all_labels.tolist(), 0, []
    choices = found.choices().split(found.sizes)
    for sizes, scores, own in zip(found.text_lengths.tolist(), found.scores.tolist(), choices, strict=True):
        hypotheses = []
        for size, score in zip(sizes, scores, strict=True):
            if size >= 0:
                hypotheses.append(Hypothesis(labels[at : at + size], *score))
                at += size
        every.append(SearchedLine(hypotheses, own))
    return every


def check_same(wanted_lines: list[SearchedLine], found_lines: list[SearchedLine]) -> None:
    for ours, theirs in zip(wanted_lines, found_lines, strict=True):
        assert [h.labels for h in theirs.hypotheses] == [h.labels for h in ours.hypotheses]
        assert [h[1:] for h in theirs.hypotheses] == [pytest.approx(h[1:], abs=1e-6) for h in ours.hypotheses]
        a, b = ours.choices, theirs.choices
        size = min(a.labels.shape[1], b.labels.shape[1])  # there may be room for more
        assert a.spans.tolist() == b.spans.tolist()
        assert a.chosen.tolist() == b.chosen.tolist()
        there = np.isfinite(a.log_weights[:, :size])
        assert np.array_equal(there, np.isfinite(b.log_weights[:, :size]))
        assert not np.isfinite(a.log_weights[:, size:]).any()
        assert not np.isfinite(b.log_weights[:, size:]).any()
        assert a.labels[:, :size][there].tolist() == b.labels[:, :size][there].tolist()
        for name in ("log_probs", "log_weights"):
            wanted, found = getattr(a, name)[:, :size][there], getattr(b, name)[:, :size][there]
            assert found == pytest.approx(wanted, abs=1e-6)


@native
def test_results_do_not_hang_on_batch_padding_or_threads() -> None:
    options, scorer = BeamOptions(beam=8), scorer_of(small_model(4), LETTERS)
    logits, lengths = random_logits(7, 6, 30, len(LETTERS) + 1)
    together = search_native(Candidates.of(logits, lengths, options), scorer, options)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        again = search_native(Candidates.of(logits, lengths, options), scorer, options)
        check_same(lines_of(together), lines_of(again))
        for one, other in zip(together.judged(), again.judged(), strict=True):
            np.testing.assert_array_equal(one, other)
    finally:
        torch.set_num_threads(threads)
    ends = np.cumsum(together.sizes)
    for row, line in enumerate(lines_of(together)):
        size = int(lengths[row])
        alone = search_native(
            Candidates.of(logits[row : row + 1, :size], lengths[row : row + 1], options), scorer, options
        )
        check_same([line], lines_of(alone))
        own = slice(ends[row] - together.sizes[row], ends[row])
        np.testing.assert_array_equal(alone.judged().confidences, together.judged().confidences[own])


def test_a_model_decides_between_letters_that_look_alike() -> None:
    charset = Charset(tuple("ceht "))
    logits = torch.full((1, 7, 6), -8.0)
    for frame, label in enumerate([4, 0, 3, 0, 0, 0, 0]):
        logits[0, frame, label] = 8.0
    logits[0, 4] = torch.tensor([-8.0, 1.2, 1.0, -8.0, -8.0, -8.0])  # c rather than e
    options = BeamOptions()
    text = {}
    for name, model in (("without", None), ("with", small_model(3))):
        scorer = scorer_of(model, "ceht ")
        line = search_reference(Candidates.of(logits, torch.tensor([7]), options), scorer, options)[0]
        text[name] = "".join(charset.characters[label - 1] for label in line.hypotheses[0].labels)
        weights = dict(zip(line.choices.labels[-1].tolist(), line.choices.log_weights[-1].tolist(), strict=True))
        assert (weights[2] > weights[1]) == (name == "with")
    assert text == {"without": "thc", "with": "the"}


def test_what_the_network_is_sure_of_stays_whatever_the_model_says() -> None:
    charset = Charset(tuple("ceht "))
    logits = torch.full((1, 5, 6), -8.0)
    for frame, label in enumerate([4, 0, 3, 0, 1]):
        logits[0, frame, label] = 8.0  # "thc"
    options = BeamOptions(weight=50.0, floor=1e-3)
    line = search_reference(
        Candidates.of(logits, torch.tensor([5]), options), scorer_of(small_model(3), "ceht "), options
    )
    assert "".join(charset.characters[label - 1] for label in line[0].hypotheses[0].labels) == "thc"


@pytest.mark.parametrize(
    "wrong",
    [{"beam": 0}, {"weight": -1.0}, {"weight": math.nan}, {"weight": 1e300}, {"bonus": math.inf}, {"floor": 1.0}],
)
def test_impossible_settings_are_told(wrong: dict[str, float]) -> None:
    with pytest.raises(SpikeHTRError, match=next(iter(wrong))):
        BeamOptions(**wrong)  # type: ignore[arg-type]


@native
def test_characters_that_the_model_does_not_know_can_be_read() -> None:
    logits = torch.full((1, 4, 3), -9.0)
    logits[0, :, 0] = 9.0
    logits[0, 1] = torch.tensor([-9.0, -9.0, 9.0])  # Ω
    options, scorer = BeamOptions(), scorer_of(small_model(3), "aΩ")
    found = lines_of(search_native(Candidates.of(logits, torch.tensor([4]), options), scorer, options))
    assert found[0].hypotheses[0].labels == [2]
    assert np.isfinite(found[0].hypotheses[0].score)
