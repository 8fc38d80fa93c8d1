"""A language model from a run's own transcriptions, for the network that was trained on them."""

from __future__ import annotations

from pathlib import Path

from spikehtr.data.batching import Lines
from spikehtr.decoding.corpus import Corpus, Source
from spikehtr.decoding.kneser_ney import prepare_lines
from spikehtr.decoding.training import train_language_model
from spikehtr.evaluation.lm_tuning import read_frames, tune
from spikehtr.readers import make_reader
from spikehtr.training.datasets import TrainingSets
from spikehtr.training.loop import BEST
from spikehtr.weights import attach_language_model, load_model

FILE = "lm.safetensors"


def add_language_model(folder: Path, sets: TrainingSets, device: str) -> str:
    """Make FILE of the training lines, tune it on the validation lines and, if it helps there, put it into the run's
    best model. What came of it, in words."""
    held = _texts(sets.validation)
    model = train_language_model(Corpus([Source("training lines", _texts(sets.train))], held))
    if not held:
        model.save(folder / FILE)
        return f"{FILE} is made of the training lines; without validation lines nobody can say whether it helps (--lm)"
    loaded = load_model(folder / BEST)
    reader = make_reader(loaded.net.to(device).eval(), "fp32", recorded=False)
    lines = Lines(
        sets.validation.store, sets.validation.rows, loaded.charset, sets.validation.max_width, labelled=False
    )
    frames = read_frames(reader, [lines], loaded.temperature)
    found = tune(frames, model, loaded.charset)
    model.notes["tuned"] = found.notes(BEST, lines.store.sources, len(held))
    model.save(folder / FILE)
    rates = f"CER {found.cer[0]:.2%} -> {found.cer[1]:.2%}, WER {found.wer[0]:.2%} -> {found.wer[1]:.2%}"
    if not found.helps:
        return f"{FILE} is made of the training lines, but does not help on the validation lines ({rates}): left out"
    attach_language_model(folder / BEST, model, folder / BEST)
    return f"with a language model of the training lines, now in {BEST}: validation {rates}"


def _texts(lines: Lines) -> list[str]:
    return prepare_lines([lines.store.text(int(row)) for row in lines.rows])
