"""What a language model of a data set's own transcriptions gains, by order, by text and by length, and where it hurts.

python benchmarks/language_models.py --set timeus=LINES --set modern-fr=COPISTE,WIKIPEDIA [--texts BOOK.txt] -o FRAMES

Each set's models are made of its training lines and tuned on its validation lines; the test lines are read once with
each. What the network says of the lines is kept in the folder FRAMES, so that a second run is quick. Prints Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from spikehtr.data.batching import Lines
from spikehtr.data.compiling import open_lines
from spikehtr.decoding.beam import NEVER, BeamOptions
from spikehtr.decoding.confidence import Sureness
from spikehtr.decoding.corpus import Corpus, Source, is_text, read_corpus
from spikehtr.decoding.decoders import BeamDecoder, tuned_options
from spikehtr.decoding.greedy import Decoded, Frames, decode_frames
from spikehtr.decoding.kneser_ney import prepare_lines
from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.training import train_language_model
from spikehtr.evaluation.calibration import calibration_error, judge_characters, judge_words
from spikehtr.evaluation.intervals import paired_bootstrap
from spikehtr.evaluation.lm_tuning import KeptFrames, load_frames, read_frames, save_frames, tune
from spikehtr.evaluation.rates import character_edits, total, word_edits
from spikehtr.files import read_text
from spikehtr.ops.host_copy import HostCopy
from spikehtr.readers import make_reader
from spikehtr.text import normalise
from spikehtr.weights import Loaded, load_model

ORDERS = (2, 3, 4, 6, 8)
FLOORS = (0.0, 1e-3, 1e-2, 3e-2, 0.1, 0.2)
WINDOW = 20  # characters: a line that shares so many with training may be known by heart
LENGTHS = ((1, 19), (20, 39), (40, 59), (60, 1000))


class Study(NamedTuple):
    """A set's lines as the network sees them, and the texts it was trained on."""

    name: str
    loaded: Loaded
    corpus: Corpus
    validation: KeptFrames
    test: KeptFrames

    @property
    def greedy(self) -> list[str]:
        batches = self.test.batches
        rows = (row for b in batches for row in zip(b.labels[..., 0].tolist(), b.lengths.tolist(), strict=True))
        return [normalise(self.loaded.charset.decode(labels[:length])) for labels, length in rows]

    def tuned(self, model: LanguageModel) -> LanguageModel:
        found = tune(above(self.validation, BeamOptions.floor), model, self.loaded.charset)
        model.notes["tuned"] = found.notes("", [], len(self.validation.references))
        return model

    def read(self, model: LanguageModel, floor: float | None = None) -> list[str]:
        options = replace(tuned_options(model), best=1)
        floor = options.floor if floor is None else floor
        decoder = BeamDecoder(self.loaded.charset, model, options)
        return [normalise(line.text) for batch in above(self.test, floor).batches for line in decoder.search(batch)]

    def errors(self, lines: Sequence[Decoded]) -> list[str]:
        """ECE of characters and of words, as `spikehtr evaluate` has it."""
        sure = [
            Sureness(line.text, found, found.mean(0))
            for line in lines
            for found in (np.array(line.confidences, np.float32)[:, None],)
        ]
        pairs = list(zip(self.test.references, sure, strict=True))
        judged = (judge(pairs) for judge in (judge_characters, judge_words))
        return [f"{calibration_error(found.confidences[:, 0], found.right):.4f}" for found in judged]

    def calibrated(self, model: LanguageModel) -> list[list[object]]:
        """A row without and one with the model, whose calibration is fitted on the validation lines."""
        without, beside = [], []
        decoder = BeamDecoder(self.loaded.charset, model, tuned_options(model))
        for all_of, batch in zip(self.test.batches, above(self.test, tuned_options(model).floor).batches, strict=True):
            first = (
                HostCopy(all_of.log_probs[..., 0]),
                HostCopy(all_of.labels[..., 0].long()),
                HostCopy(all_of.lengths),
            )
            without += decode_frames(Frames(*first), self.loaded.charset)
            beside += decoder.search(batch)
        return [["without", *self.errors(without)], ["with", *self.errors(beside)]]

    def rates(self, texts: Sequence[str], only: Callable[[str], bool] = lambda reference: True) -> list[str]:
        """CER and WER in %."""
        pairs = [pair for pair in zip(self.test.references, texts, strict=True) if only(pair[0])]
        return [f"{100 * total(of(*pair) for pair in pairs).rate:.2f}" for of in (character_edits, word_edits)]


def above(frames: KeptFrames, floor: float) -> KeptFrames:
    """Of each frame the labels that are as likely as that, and the likeliest."""
    batches = []
    for batch in frames.batches:
        below = batch.log_probs.exp() < floor
        below[..., 0] = False
        batches.append(batch._replace(log_probs=batch.log_probs.masked_fill(below, NEVER)))
    return KeptFrames(batches, frames.references)


def difference(study: Study, texts: Sequence[str], only: Callable[[str], bool]) -> str:
    """Of the character error rate with the model to that without, in points, and its interval over lines."""
    lines = [line for line in zip(study.test.references, study.greedy, texts, strict=True) if only(line[0])]
    without, beside = ([character_edits(line[0], line[place]) for line in lines] for place in (1, 2))
    found = paired_bootstrap(without, beside)
    return f"{100 * found.difference:+.2f} ({100 * found.interval.low:+.2f} to {100 * found.interval.high:+.2f})"


def open_study(name: str, sources: list[str], loaded: Loaded, folder: Path) -> Study:
    c = loaded.config
    frames = []
    for split in ("validation", "test"):
        file = folder / f"{name}.{split}.all.frames"
        if (found := load_frames(file)) is None:
            reader = make_reader(loaded.net, "fp32", recorded=False)
            stores = [open_lines([s], c.model.height, c.data.max_width, straighten=c.data.straighten) for s in sources]
            parts = [Lines(s, s.rows(split), loaded.charset, c.data.max_width, labelled=False) for s in stores]
            found = read_frames(reader, parts, loaded.temperature, floor=0.0)
            save_frames(file, found)
        frames.append(found)
    return Study(name, loaded, read_corpus(sources), *frames)


def windows(text: str) -> set[str]:
    return {text[start : start + WINDOW] for start in range(len(text) - WINDOW + 1)}


def kinds_of(seen: set[str]) -> dict[str, Callable[[str], bool]]:
    """Words by what a language model may know of them; each word is of the first kind that fits."""
    return {
        "with a digit": lambda word: any(c.isdigit() for c in word),
        "in training": lambda word: word in seen,
        "capitalised, not in training": lambda word: word[:1].isupper(),
        "other, not in training": lambda word: True,
    }


def right_words(references: Sequence[str], texts: Sequence[str]) -> list[list[bool]]:
    """Of each line's reference words, which were read right."""
    out = []
    for reference, text in zip(references, texts, strict=True):
        wanted, read = reference.split(), text.split()
        right = [False] * len(wanted)
        for block in Levenshtein.opcodes(wanted, read):
            if block.tag == "equal":
                right[block.src_start : block.src_end] = [True] * (block.src_end - block.src_start)
        out.append(right)
    return out


def by_kind(study: Study, texts: Sequence[str]) -> list[list[object]]:
    """A row a kind: words, right without and with, mended, spoilt."""
    kinds = kinds_of({word for source in study.corpus.sources for line in source.lines for word in line.split()})
    counts = {kind: [0, 0, 0, 0, 0] for kind in kinds}
    before, after = (right_words(study.test.references, read) for read in (study.greedy, texts))
    for reference, old, new in zip(study.test.references, before, after, strict=True):
        for word, was, now in zip(reference.split(), old, new, strict=True):
            row = counts[next(kind for kind, fits in kinds.items() if fits(word))]
            for place, there in enumerate((True, was, now, now and not was, was and not now)):
                row[place] += there
    return [
        [kind, n, *(f"{100 * part / max(1, n):.1f}" for part in (old, new)), mended, spoilt]
        for kind, (n, old, new, mended, spoilt) in counts.items()
    ]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def share_of(corpus: Corpus, part: int) -> Corpus:
    return Corpus([Source(s.name, s.lines[::part]) for s in corpus.sources], corpus.validation)


def examine(study: Study, texts: Sequence[str]) -> None:
    print(f"\n## {study.name}")
    models = {order: study.tuned(train_language_model(study.corpus, order)) for order in ORDERS}
    plain = study.rates(study.greedy)
    rows: list[list[object]] = [["without", *plain, ""]]
    rows += [
        [order, *study.rates(study.read(m)), f"{m.perplexity(study.corpus.validation):.2f}"]
        for order, m in models.items()
    ]
    table("By order", ["order", "CER", "WER", "perplexity"], rows)
    model = models[6]
    read = study.read(model)
    rows = [
        [
            f"a {name} of the transcriptions",
            *study.rates(study.read(study.tuned(train_language_model(share_of(study.corpus, part))))),
        ]
        for name, part in (("quarter", 4), ("half", 2))
    ]
    rows.append(["all", *study.rates(read)])
    for text in texts:
        more = Source(Path(text).name, prepare_lines(read_text(Path(text)).splitlines()))
        both = train_language_model(Corpus([*study.corpus.sources, more], study.corpus.validation))
        weight = both.notes["sources"][1]["weight"]
        rows.append([f"all and {more.name} (weight {weight:.2f})", *study.rates(study.read(study.tuned(both)))])
    table("By text", ["order 6, made of", "CER", "WER"], rows)
    rows = []
    for least, most in LENGTHS:

        def fits(reference: str, least: int = least, most: int = most) -> bool:
            return least <= len(reference) <= most

        count = sum(map(fits, study.test.references))
        if count:
            rows.append([f"{least} to {most}", count, *study.rates(study.greedy, fits), *study.rates(read, fits)])
    known = set[str]().union(*(windows(normalise(line)) for source in study.corpus.sources for line in source.lines))
    novelty: list[list[object]] = []
    for kind, shared in ((f"share {WINDOW} characters with a training line", True), ("share none", False)):

        def holds(reference: str, shared: bool = shared) -> bool:
            return bool(windows(reference) & known) == shared

        count = sum(map(holds, study.test.references))
        if count:
            rates = *study.rates(study.greedy, holds), *study.rates(read, holds), difference(study, read, holds)
            novelty.append([kind, count, *rates])
    head = ["lines that", "lines", "CER without", "WER", "CER with", "WER", "CER, difference"]
    table(
        "By novelty",
        head,
        [
            *novelty,
            ["all", len(read), *study.rates(study.greedy), *study.rates(read), difference(study, read, lambda _: True)],
        ],
    )
    table("By line length", ["characters", "lines", "CER without", "WER", "CER with", "WER"], rows)
    table("Where it hurts", ["words", "number", "right without, %", "with", "mended", "spoilt"], by_kind(study, read))
    table("Are confidences right? Expected calibration error", ["", "characters", "words"], study.calibrated(model))
    rows = []
    for floor in FLOORS:
        guarded = study.read(model, floor)
        spoilt = sum(int(str(row[-1])) for row in by_kind(study, guarded))
        rows.append([floor, *study.rates(guarded), spoilt])
    table("The guard: labels below the floor are no candidates", ["floor", "CER", "WER", "words spoilt"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--set", action="append", required=True, metavar="NAME=SOURCE,...")
    parser.add_argument("--texts", action="append", default=[], help="an open text, mixed with the transcriptions")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for what the network says")
    options = parser.parse_args()
    if wrong := [text for text in options.texts if not is_text(text)]:
        parser.error(f"not a text file: {wrong[0]}")
    options.output.mkdir(parents=True, exist_ok=True)
    loaded = load_model(options.model)
    for one in options.set:
        name, _, sources = one.partition("=")
        examine(open_study(name, sources.split(","), loaded, options.output), options.texts)


if __name__ == "__main__":
    main()
