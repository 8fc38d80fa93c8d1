"""What else a character might be: the next most likely ones at the frames that spelled it."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import torch

from spikehtr.data.batching import pad_right
from spikehtr.data.geometry import cut_line
from spikehtr.readers.line_reader import read_batches

if TYPE_CHECKING:
    from spikehtr.serve.workbench import Workbench

_SHOWN = 5
_LEAST = 0.001  # probability


def alternatives_of(bench: Workbench, page: int, name: str) -> dict[str, Any] | None:
    """Each character of a line's reading, with the most likely others; none where today's model reads it otherwise.
    None where there is no such line."""
    with bench.project.log.lock:
        line = bench.project.log.state(page).lines.get(name)
    if line is None:
        return None
    model = bench.model()
    cut = cut_line(bench.pictures.gray(page), [(x, y) for x, y in line["polygon"]])
    if not cut.width or not cut.height:
        return {"text": "", "characters": []}
    images, widths = pad_right([model.fit(cut).pixels])
    batch = next(iter(read_batches(model.reader, [(0, images, widths)], model.decoder)))
    decoded = batch.lines[0]
    probabilities = (batch.output.logits[0].float() / model.temperature).softmax(-1).cpu()
    characters = []
    for span in decoded.spans:
        best = probabilities[span.start : span.end].max(0).values
        values, labels = torch.topk(best, min(_SHOWN + 2, len(best)))
        others = []
        for value, label in zip(values.tolist(), labels.tolist(), strict=True):
            if label == 0 or value < _LEAST:
                continue
            character = model.charset.characters[label - 1]
            if character != span.character:
                others.append([character, round(value, 4)])
        characters.append([span.character, others[:_SHOWN]])
    kept = as_kept(characters)
    text = "".join(character for character, _ in kept)
    if line["reading"] is not None and text != line["reading"]["text"]:
        kept = []
    return {"text": text, "characters": kept}


def as_kept(characters: list[list[Any]]) -> list[list[Any]]:
    """Characters as a reading keeps them: marks with their letters, one space between words. A letter with its mark
    has no others: those known are of its parts."""
    kept: list[list[Any]] = []
    for character, others in characters:
        if character.isspace():
            if kept and kept[-1][0] != " ":
                kept.append([" ", others])
        elif kept and unicodedata.combining(character[0]):
            kept[-1] = [unicodedata.normalize("NFC", kept[-1][0] + character), []]
        else:
            kept.append([character, others])
    return kept[:-1] if kept and kept[-1][0] == " " else kept
