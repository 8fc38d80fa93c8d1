"""Fits the error that a model expects of itself on hands it has never seen, and notes it in the model's file.

    python tools/fit_expected_error.py MODEL SET ... [--lines 140]

Each SET is handwriting data that the model was not trained on. Prints what is expected of each by a fit on the others,
and the truth; then the fit on all is noted, and `transcribe` tells what it expects.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from rapidfuzz.distance import Levenshtein

from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.decoding.confidence import sureness
from spikehtr.evaluation.fit_expected_error import ReadLine, fit, leave_one_out
from spikehtr.evaluation.predict import Prediction, predict
from spikehtr.weights import Loaded, load_model, update_notes

BLOCK = 20  # lines in a row: a page or two


def read_set(model: Loaded, source: str, most: int) -> list[ReadLine]:
    """Blocks of lines from all over the set, as the model reads them."""
    c = model.config
    store = open_lines([source], c.model.height, c.data.max_width, straighten=c.data.straighten)
    blocks = np.array_split(np.arange(len(store)), max(1, len(store) // BLOCK))
    step = max(1, len(store) // most)
    lines = Lines(store, np.concatenate(blocks[::step]), model.charset, c.data.max_width, labelled=False)
    judge = partial(sureness, temperatures=[model.temperature])
    return [_line(one) for one in predict(model.net, lines, 8, judge=judge)]


def _line(read: Prediction) -> ReadLine:
    assert read.sure is not None
    edits = Levenshtein.distance(read.reference, read.text)
    return ReadLine(read.sure.characters[:, 0].tolist(), edits, len(read.reference))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--lines", type=int, default=140, help="of each set")
    given = parser.parse_args()
    model = load_model(given.model)
    sets = {}
    for source in given.sets:
        sets[Path(source).name] = read_set(model, source, given.lines)
        print(f"read {source}", flush=True)
    print("| set | expected | true | difference |\n|---|---|---|---|")
    for name, (expected, true) in leave_one_out(sets).items():
        print(f"| {name} | {expected:.1%} | {true:.1%} | {100 * (expected - true):+.1f} |")
    estimate = fit(sets)
    update_notes(given.model, estimate.note())
    print(f"noted in {given.model}: {estimate.note()}")


if __name__ == "__main__":
    main()
