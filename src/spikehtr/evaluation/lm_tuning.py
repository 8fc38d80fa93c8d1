"""What a language model should count beside a network: found on validation lines, whose frames are kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from spikehtr.data.batching import Lines, load_batches, plan_epoch
from spikehtr.data.compiling import cache_folder, open_lines
from spikehtr.decoding.beam import BeamOptions, Candidates
from spikehtr.decoding.confidence import Calibration
from spikehtr.decoding.decoders import BeamDecoder
from spikehtr.decoding.greedy import Decoded
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.errors import SpikeHTRError
from spikehtr.evaluation.lm_calibration import cross_fitted_errors, fit_calibration
from spikehtr.evaluation.rates import character_edits, total, word_edits
from spikehtr.files import whole_file
from spikehtr.readers import Reader, make_reader
from spikehtr.text import Charset, normalise
from spikehtr.training.datasets import split_rows
from spikehtr.weights import Loaded, model_file

NO_HELP = 3  # the exit code that says so
_WEIGHTS, _RATIOS, _FINER = (0.2, 0.4, 0.6, 0.8, 1.0), (0.5, 1.0, 2.0, 3.0), (-0.1, 0.1)


class KeptFrames(NamedTuple):
    """What a network said of some lines: batches of candidates, and what each line should say."""

    batches: list[Candidates]
    references: list[str]


class Tuned(NamedTuple):
    """Settings, and error rates without and with the model."""

    options: BeamOptions
    calibration: Calibration | None  # None where errors are too few to fit one
    calibration_error: dict[str, float]  # of characters and words, cross-fitted
    cer: tuple[float, float]
    wer: tuple[float, float]

    @property
    def helps(self) -> bool:
        return self.cer[1] < self.cer[0]

    def notes(self, model: str, data: Sequence[str], lines: int) -> dict[str, Any]:
        """What a language model's file keeps of it."""
        rates = {
            name: dict(zip(("without", "with"), pair, strict=True))
            for name, pair in zip(("cer", "wer"), (self.cer, self.wer), strict=True)
        }
        found: dict[str, Any] = {
            "weight": self.options.weight,
            "bonus": self.options.bonus,
            "floor": self.options.floor,
        }
        if self.calibration is not None:
            found |= {"calibration": {name: round(value, 4) for name, value in self.calibration._asdict().items()}}
            found |= {"calibration_error": {name: round(value, 5) for name, value in self.calibration_error.items()}}
        return found | {"model": model, "data": list(data), "lines": lines, "validation": rates}


@torch.no_grad()
def read_frames(
    reader: Reader,
    parts: Sequence[Lines],
    temperature: float,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
    floor: float = BeamOptions.floor,
) -> KeptFrames:
    """The frames of all lines of `parts`, their logits divided by the model's temperature."""
    batches, references = [], list[str]()
    for lines in parts:
        plan = plan_epoch(lines.widths, batch_size, seed=0, epoch=0, shuffle=False)
        for batch in load_batches(lines, plan, 0):
            out = reader(batch.images, batch.widths)
            kept = Candidates.of(out.logits / temperature, out.lengths, BeamOptions(floor=floor))
            batches.append(Candidates(*(part.cpu() for part in kept)))
            references += [normalise(lines.store.text(row)) for row in batch.rows.tolist()]
            if progress:
                progress(len(references))
    return KeptFrames(batches, references)


def kept_frames(
    path: str | os.PathLike[str],
    loaded: Loaded,
    data: Sequence[str],
    device: str = "cpu",
    progress: Callable[[int], None] | None = None,
) -> KeptFrames:
    """The frames of the validation lines of `data`, as the model of this file reads them; from the cache where they
    were read before."""
    c = loaded.config
    stores = [open_lines([source], c.model.height, c.data.max_width, straighten=c.data.straighten) for source in data]
    parts = []
    for source, store in zip(data, stores, strict=True):
        rows = split_rows(store)[1]
        if not len(rows):
            raise SpikeHTRError(f"{source}: has no validation lines; mark some, or name other data")
        parts.append(Lines(store, rows, loaded.charset, c.data.max_width, labelled=False))
    digest = hashlib.sha256(model_file(path).read_bytes())
    for part in parts:
        digest.update(f"{part.store.digest()} {part.rows.tolist()}".encode())
    target = cache_folder() / f"{digest.hexdigest()[:32]}.frames.safetensors"
    if (found := load_frames(target)) is None:
        reader = make_reader(loaded.net.to(device).eval(), "fp32", recorded=False)
        found = read_frames(reader, parts, loaded.temperature, progress=progress)
        save_frames(target, found)
    return found


def save_frames(path: Path, frames: KeptFrames) -> None:
    tensors = {
        f"{name}.{number}": part
        for number, batch in enumerate(frames.batches)
        for name, part in zip(Candidates._fields, batch, strict=True)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as temporary:
        save_file(tensors, temporary, {"references": json.dumps(frames.references, ensure_ascii=False)})


def load_frames(path: str | os.PathLike[str]) -> KeptFrames | None:
    """What `save_frames` wrote; None where there is no such file, or it is damaged."""
    if not Path(path).is_file():
        return None
    try:
        with safe_open(str(path), "pt") as file:
            references = json.loads((file.metadata() or {})["references"])
            numbers = range(len(file.keys()) // len(Candidates._fields))
            batches = [Candidates(*(file.get_tensor(f"{name}.{n}") for name in Candidates._fields)) for n in numbers]
    except (SafetensorError, KeyError, ValueError):
        return None
    return KeptFrames(batches, references)


def tune(
    frames: KeptFrames, model: LanguageModel, charset: Charset, progress: Callable[[int], None] | None = None
) -> Tuned:
    """The weight and bonus with which the fewest characters are wrong, then the fewest words."""
    tried: dict[tuple[float, float], tuple[int, int]] = {}

    def errors(weight: float, ratio: float) -> tuple[int, int]:
        if (weight, ratio) not in tried:
            read = _read(frames, BeamDecoder(charset, model, _options(weight, ratio)))
            tried[weight, ratio] = _errors(frames.references, [normalise(line.text) for line in read])
            if progress:
                progress(len(tried))
        return tried[weight, ratio]

    for weight in _WEIGHTS:
        errors(weight, 1.5)
    weight = min(tried, key=tried.__getitem__)[0]
    for ratio in _RATIOS:
        errors(weight, ratio)
    weight, ratio = min(tried, key=tried.__getitem__)
    for step in _FINER:
        errors(round(weight + step, 2), ratio)
    weight, ratio = min(tried, key=tried.__getitem__)
    decoder = BeamDecoder(charset, model, _options(weight, ratio))
    read = _read(frames, decoder)
    calibration = fit_calibration(frames.references, read)
    error = cross_fitted_errors(frames.references, read)
    greedy = [text for batch in frames.batches for text in _greedy(batch, charset)]
    without, after = (_rates(frames.references, texts) for texts in (greedy, [normalise(line.text) for line in read]))
    return Tuned(decoder.options, calibration, error, (without[0], after[0]), (without[1], after[1]))


def _options(weight: float, ratio: float) -> BeamOptions:
    return BeamOptions(weight=weight, bonus=round(weight * ratio, 3), best=1)


def _read(frames: KeptFrames, decoder: BeamDecoder) -> list[Decoded]:
    return [line for batch in frames.batches for line in decoder.search(batch)]


def _greedy(batch: Candidates, charset: Charset) -> list[str]:
    rows = zip(batch.labels[..., 0].tolist(), batch.lengths.tolist(), strict=True)
    return [normalise(charset.decode(labels[:length])) for labels, length in rows]


def _errors(references: Sequence[str], texts: Sequence[str]) -> tuple[int, int]:
    pairs = list(zip(references, texts, strict=True))
    return total(character_edits(*pair) for pair in pairs).errors, total(word_edits(*pair) for pair in pairs).errors


def _rates(references: Sequence[str], texts: Sequence[str]) -> tuple[float, float]:
    pairs = list(zip(references, texts, strict=True))
    return total(character_edits(*pair) for pair in pairs).rate, total(word_edits(*pair) for pair in pairs).rate
