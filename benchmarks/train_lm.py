"""How long a language model takes to train, and how much memory: at most a minute and 2 GiB, else the exit code is 1.

python benchmarks/train_lm.py                 # order 6, 10 million characters, drawn
python benchmarks/train_lm.py --text BOOK.txt --order 8

Drawn text is of 60,000 invented words, the n-th with a frequency of 1/n, so it has more different n-grams than a
language has: what is measured is rather too much.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from spikehtr.decoding.kneser_ney import prepare_lines, train_ngrams
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.files import read_text

WORDS, A_LINE = 60_000, 9


def draw(characters: int, seed: int = 0) -> list[str]:
    """Lines of nine words."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("eaisnrtoludcmpévqfbghjàxèyêzçâîùôû"))
    shares = 1 / np.arange(1, len(letters) + 1)
    lengths = generator.integers(2, 11, WORDS)
    drawn = generator.choice(letters, (WORDS, 10), p=shares / shares.sum())
    words = np.array(["".join(word[:length]) for word, length in zip(drawn, lengths, strict=True)], object)
    frequencies = 1 / np.arange(1, WORDS + 1)
    chosen = generator.choice(words, characters // 6, p=frequencies / frequencies.sum())
    lines, total = [], 0
    for start in range(0, len(chosen), A_LINE):
        lines.append(" ".join(chosen[start : start + A_LINE]))
        total += len(lines[-1])
        if total >= characters:
            break
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a text file, instead of drawn text")
    parser.add_argument("--characters", type=int, default=10_000_000)
    parser.add_argument("--order", type=int, default=6)
    parser.add_argument("--most-seconds", type=float, default=60.0)
    parser.add_argument("--most-gib", type=float, default=2.0)
    options = parser.parse_args()
    lines = read_text(options.text).splitlines() if options.text else draw(options.characters)
    start = time.perf_counter()
    model = LanguageModel.from_ngrams(train_ngrams(prepare_lines(lines), options.order))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "lm.safetensors")
        size = (Path(folder) / "lm.safetensors").stat().st_size
    seconds = time.perf_counter() - start
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"order {options.order}, {sum(map(len, lines)) / 1e6:.1f} million characters: {model.arcs} n-grams, "
        f"{size / 1e6:.0f} MB, {seconds:.1f} s, {gib:.2f} GiB at most"
    )
    if seconds > options.most_seconds or gib > options.most_gib:
        sys.exit(f"more than {options.most_seconds:g} s or {options.most_gib:g} GiB")


if __name__ == "__main__":
    main()
