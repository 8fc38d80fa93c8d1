"""What tests of studies share: settings of a network of 32 channels, and a few lines to learn."""

import json

from PIL import Image

from conftest import MICRO, draw_line

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
