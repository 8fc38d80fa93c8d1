"""What tests of studies share: settings of a network of 32 channels, and a few lines to learn."""

import json

from PIL import Image

from conftest import MICRO, draw_line
from spikehtr.studies.study_runs import SplitResult, StudyRow, StudyRun

SMALL = MICRO | {
    "model.dim": 16,
    "model.encoder.norm_groups": 2,
    "model.baseline.scale": 0.0625,
    "data.workers": 0,
    "data.max_width": 64,
    "training.batch_size": 4,
    "training.warmup_epochs": 1,
}
SETTINGS = [part for key, value in SMALL.items() for part in ("-s", f"{key}={json.dumps(value)}")]
WORDS = {"train": ("ink", "pen", "nib", "pine", "kin", "bin"), "validation": ("pin", "ken"), "test": ("nine", "be")}


def write_lines(folder):
    """Images and texts in a folder for each split."""
    for split, words in WORDS.items():
        (folder / split).mkdir(parents=True)
        for number, word in enumerate(words):
            Image.fromarray(draw_line(word, 32, number)).save(folder / split / f"{number}.png")
            (folder / split / f"{number}.txt").write_text(word)
    return folder


def reading(errors, lines=60):
    """`lines` lines of ten characters, `errors` of which have one wrong."""
    texts = ["abcdefghij"] * lines
    read = ["abcdefghiX" if i < errors else text for i, text in enumerate(texts)]
    predictions = [
        {"set": "s", "id": str(i), "reference": text, "text": got, "confidence": 1.0, "keep_ratio": 0.9,
         "document": None}
        for i, (text, got) in enumerate(zip(texts, read, strict=True))
    ]  # fmt: skip
    rate = {"rate": errors / lines / 10, "interval": [errors / lines / 20, errors / lines / 5]}
    words = {"rate": errors / lines, "interval": None}
    facts = {"keep_ratio": 0.9, "lines_per_second": 5.0, "too_few": False, "units": lines, "resampled": "lines"}
    return SplitResult(
        {"rates": {"CER, plain": rate, "WER, whitespace words": words}, "predictions": predictions, **facts}
    )


def row(study, name, *errors):
    facts = {"parameters": 1_500_000, "macs": 2e9, "firing_rate": None, "minutes": 1.0, "epochs": 12}
    runs = [
        StudyRun(seed, facts, {"validation": reading(count), "test": reading(count)})
        for seed, count in enumerate(errors)
    ]
    return StudyRow(study.variant(name), runs, "" if runs else "not run yet")
