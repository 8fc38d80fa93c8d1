"""Tuning a language model on frames that are kept on disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "decoding"))
from lm_help import LINES, small_model

from spikehtr.decoding.beam import BeamOptions, Candidates
from spikehtr.evaluation.lm_tuning import KeptFrames, load_frames, save_frames, tune
from spikehtr.text import Charset

CHARSET = Charset(tuple(sorted(set("".join(LINES)))))


def frames_of(lines: list[str], noise: float, seed: int = 0) -> KeptFrames:
    """What a network may say of lines: each character in a frame of its own, a blank after it, and noise."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for line in lines:
        logits = torch.zeros(1, 2 * len(line), len(CHARSET))
        for place, label in enumerate(CHARSET.encode(line)):
            logits[0, 2 * place, label] = logits[0, 2 * place + 1, 0] = 5.0
        logits += noise * torch.randn(logits.shape, generator=generator)
        batches.append(Candidates.of(logits, torch.tensor([logits.shape[1]]), BeamOptions()))
    return KeptFrames(batches, lines)


def test_frames_are_kept_on_disk(tmp_path: Path) -> None:
    frames = frames_of(LINES, 1.0)
    save_frames(tmp_path / "kept", frames)
    again = load_frames(tmp_path / "kept")
    assert again is not None
    assert again.references == frames.references
    for ours, theirs in zip(frames.batches, again.batches, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    (tmp_path / "kept").write_bytes(b"damaged")
    assert load_frames(tmp_path / "kept") is None
    assert load_frames(tmp_path / "missing") is None


def test_a_model_of_the_same_texts_helps_and_its_settings_are_noted() -> None:
    found = tune(frames_of(LINES * 6, 2.6), small_model(4), CHARSET)
    assert found.helps
    assert found.cer[1] < 0.8 * found.cer[0]
    notes = found.notes("m", ["d"], len(LINES))
    assert notes["weight"] == found.options.weight > 0
    assert notes["validation"]["cer"]["with"] == found.cer[1]
    assert found.calibration is not None
    assert notes["calibration"] == pytest.approx(found.calibration._asdict(), abs=1e-4)


def test_a_model_of_other_texts_does_not_help_where_all_is_read_right() -> None:
    found = tune(frames_of(LINES, 0.1), small_model(3, ["xyz zyx"]), CHARSET)
    assert found.cer[0] == 0
    assert not found.helps
    assert found.cer[1] == pytest.approx(0)
    assert found.calibration is None
    assert "calibration" not in found.notes("m", ["d"], len(LINES))
