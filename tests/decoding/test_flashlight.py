"""Another implementation of beam search and of ARPA models, to check ours against: flashlight-text with KenLM."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from lm_help import random_candidates, scorer_of, small_model

from spikehtr.decoding.arpa import write_arpa
from spikehtr.decoding.beam import BeamOptions, search_reference

decoder = pytest.importorskip("flashlight.lib.text.decoder", reason="flashlight-text is not installed (extra: dev)")
kenlm = pytest.importorskip("flashlight.lib.text.decoder.kenlm", reason="flashlight-text is not installed (extra: dev)")
dictionary = pytest.importorskip("flashlight.lib.text.dictionary", reason="flashlight-text is not installed")

LETTERS = "aeht "  # few, so that neither search drops a text


def symbol(character: str) -> str:
    return "<space>" if character == " " else character


def their_model(tmp_path: Path, order: int = 4) -> tuple[object, object]:
    write_arpa(small_model(order), tmp_path / "lm.arpa")
    known = dictionary.Dictionary(["<blank>", *map(symbol, LETTERS), "<unk>"])
    return kenlm.KenLM(str(tmp_path / "lm.arpa"), known), known


def test_the_model_scores_lines_as_kenlm_does(tmp_path: Path) -> None:
    theirs, known = their_model(tmp_path)
    for line in ["the hat", "a tea", "teteah"]:
        state, total = theirs.start(False), 0.0  # type: ignore[attr-defined]
        for character in line:
            state, score = theirs.score(state, known.get_index(symbol(character)))  # type: ignore[attr-defined]
            total += score
        total += theirs.finish(state)[1]  # type: ignore[attr-defined]
        assert small_model(4).score_lines([line])[0].sum() == pytest.approx(total * math.log(10), abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sums", [True, False])
def test_the_best_texts_and_their_scores_are_those_of_flashlight(tmp_path: Path, seed: int, sums: bool) -> None:
    theirs, _ = their_model(tmp_path)
    options = BeamOptions(beam=10_000, weight=0.6, bonus=0.0, floor=0.0, candidates=100, best=20, sums=sums)
    candidates = random_candidates(seed, 1, 5, len(LETTERS) + 1, options)
    wanted: dict[tuple[int, ...], float] = {}
    search = decoder.LexiconFreeDecoder(
        decoder.LexiconFreeDecoderOptions(
            beam_size=20_000,
            beam_size_token=len(LETTERS) + 1,
            beam_threshold=1e9,
            lm_weight=options.weight * math.log(10),  # of logarithms to base 10
            sil_score=0.0,
            log_add=sums,
            criterion_type=decoder.CriterionType.CTC,
        ),
        theirs,
        0,  # no silence: it would be the first token before the first frame
        0,
        [],
    )
    frames = np.zeros((5, len(LETTERS) + 1), np.float32)
    np.put_along_axis(frames, candidates.labels[0].numpy().astype(np.int64), candidates.log_probs[0].numpy(), 1)
    for result in search.decode(frames.ctypes.data, *frames.shape):
        tokens = [t for t in result.tokens if t >= 0][1:-1]  # it puts a silence before and after
        text = tuple(t for place, t in enumerate(tokens) if t and (place == 0 or t != tokens[place - 1]))
        score = wanted.get(text, -math.inf)  # a text that may end in a blank or not is there twice
        wanted[text] = float(np.logaddexp(score, result.score)) if sums else max(score, result.score)
    found = search_reference(candidates, scorer_of(small_model(4), LETTERS), options)[0].hypotheses
    best = sorted(wanted, key=lambda text: -wanted[text])[:5]
    assert [tuple(h.labels) for h in found[:5]] == best
    for h in found[:10]:
        assert h.score == pytest.approx(wanted[tuple(h.labels)], abs=1e-4)
