"""The texts that a language model is made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from spikehtr.data.formats import read
from spikehtr.data.samples import ImportReport, Sample, Split
from spikehtr.decoding.kneser_ney import prepare_lines
from spikehtr.errors import SpikeHTRError
from spikehtr.files import read_text

_TEXTS = (".txt", ".txt.gz", ".text")


class Source(NamedTuple):
    name: str
    lines: list[str]  # as lines of handwriting have them


class Corpus(NamedTuple):
    sources: list[Source]
    validation: list[str]


def read_corpus(
    texts: Sequence[str],
    words: Sequence[Path] = (),
    validation: Sequence[str] = (),
    tell: Callable[[str], None] = lambda message: None,
) -> Corpus:
    """Text files and lists of words, each a source of its own; handwriting data, whose training lines are one."""
    sources, transcriptions, held = [], list[str](), list[str]()
    named = []
    for text in texts:
        if is_text(text):
            sources.append(Source(Path(text).name, _filled(text, prepare_lines(read_text(Path(text)).splitlines()))))
            continue
        samples = read_data(text, tell)
        named.append(Path(text).name)
        transcriptions += _filled(text, prepare_lines(_of_split(samples, "train")), "training lines")
        held += prepare_lines(_of_split(samples, "validation"))
    if transcriptions:
        sources.insert(0, Source(", ".join(named), transcriptions))
    for path in words:
        listed = " ".join(word for line in read_text(path).splitlines() for word in line.split())
        sources.append(Source(path.name, _filled(str(path), prepare_lines([listed]))))
    if validation:
        held = []
    for text in validation:
        if is_text(text):
            held += prepare_lines(read_text(Path(text)).splitlines())
        else:
            held += prepare_lines(_of_split(read_data(text, tell), "validation"))
    return Corpus(sources, held)


def is_text(path: str) -> bool:
    return path.lower().endswith(_TEXTS) and Path(path).is_file()


def read_data(source: str, tell: Callable[[str], None]) -> list[Sample]:
    """The lines of handwriting data, whose images are not looked at."""
    report = ImportReport()
    samples = list(read(source, report))
    if report.left_out:
        tell(f"{source}: {report.left_out} lines cannot be used; `spikehtr data check` lists them")
    return samples


def _of_split(samples: Sequence[Sample], split: Split) -> list[str]:
    """The texts of a split; where none is marked for training, what is not marked at all is taken for that."""
    if split == "train" and not any(sample.split == "train" for sample in samples):
        return [sample.text for sample in samples if sample.split is None]
    return [sample.text for sample in samples if sample.split == split]


def _filled(source: str | os.PathLike[str], lines: list[str], what: str = "text") -> list[str]:
    if not lines:
        raise SpikeHTRError(f"{source}: holds no {what}")
    return lines
