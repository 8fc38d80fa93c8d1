"""Transcripts: how they are normalised, and the alphabet that turns them into CTC labels and back."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spikehtr.errors import SpikeHTRError

BLANK = 0  # the CTC blank's label, everywhere
_NOT_SIGN = "\u00ac"  # marks line-end hyphens in many transcriptions; the paper removes it


def normalise(text: str) -> str:
    """Unicode NFKC, U+00AC removed, runs of whitespace made one space, ends stripped. Idempotent.

    An empty result means the line has no usable transcript; readers leave such lines out and report them.
    """
    text = unicodedata.normalize("NFKC", text).replace(_NOT_SIGN, "")
    # Taking a sign out can bring a letter and its accent together, so compose once more.
    return " ".join(unicodedata.normalize("NFKC", text).split())


_PLAIN = {
    "^": "",
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2500\u23af", "-"),
    **dict.fromkeys("\u2018\u2019\u02bc", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb", '"'),
}


def plain(text: str) -> str:
    """A normalised transcript without what conventions of transcribing differ in. Idempotent; may be empty.

    Sets mark raised letters by ^ or not at all, part words at a line's end by =, - or a sign of its own, and use
    several dashes, apostrophes and quotation marks for one.
    """
    text = normalise("".join(_PLAIN.get(c, c) for c in normalise(text)))
    return f"{text[:-1]}-" if len(text) > 1 and text[-1] == "=" and text[-2].isalpha() else text


class UnknownCharacterError(SpikeHTRError):
    """A transcript holds characters that the charset does not."""


class CharacterSpan(NamedTuple):
    """A decoded character and the frames [start, end) that spelled it."""

    character: str
    start: int
    end: int


@dataclass(frozen=True)
class Charset:
    """The characters a model knows. Label 0 is the CTC blank, label i the i-th character."""

    characters: tuple[str, ...]
    _labels: dict[str, int] = field(init=False, repr=False, compare=False)
    _codes: NDArray[np.uint32] = field(init=False, repr=False, compare=False)  # of labels, as Unicode has them

    def __post_init__(self) -> None:
        object.__setattr__(self, "characters", tuple(self.characters))  # a list, from JSON say, will do
        for character in self.characters:
            if len(character) != 1:
                raise SpikeHTRError(f"a charset holds single characters, not {character!r}")
        labels = {character: label for label, character in enumerate(self.characters, start=BLANK + 1)}
        if len(labels) < len(self.characters):
            twice = sorted({c for c in self.characters if self.characters.count(c) > 1})
            raise SpikeHTRError(f"characters given twice in a charset: {show(twice)}")
        object.__setattr__(self, "_labels", labels)
        object.__setattr__(self, "_codes", np.array([0, *map(ord, self.characters)], "<u4"))

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Self:
        """The sorted characters of (already normalised) training transcripts."""
        return cls(tuple(sorted(set().union(*texts))))

    def __len__(self) -> int:
        """The number of labels, blank included: the network's `vocab_size`."""
        return len(self.characters) + 1

    def __contains__(self, character: object) -> bool:
        return character in self._labels

    def unknown(self, text: str) -> list[str]:
        """The characters of `text` that are not in the set, sorted, each once."""
        return sorted(set(text) - self._labels.keys())

    def encode(self, text: str) -> list[int]:
        missing = self.unknown(text)
        if missing:
            raise UnknownCharacterError(f"{text!r} holds characters the charset does not: {show(missing)}")
        return [self._labels[character] for character in text]

    def decode(self, frames: Sequence[int]) -> str:
        """Collapse repeats, drop blanks (the map B of Eq. 2): one label a frame -> text."""
        return "".join(span.character for span in self.decode_spans(frames))

    def text_of(self, labels: ArrayLike) -> str:
        """A character each: for many labels at once."""
        return self._codes[np.asarray(labels, np.int64)].tobytes().decode("utf-32-le", "surrogatepass")

    def decode_spans(self, frames: Sequence[int]) -> list[CharacterSpan]:
        """As `decode`, with the frame range of each character."""
        spans: list[CharacterSpan] = []
        start = 0
        for label, run in groupby(frames):
            end = start + sum(1 for _ in run)
            if label != BLANK:
                if not 0 < label < len(self):
                    raise SpikeHTRError(f"label {label} is outside a charset of {len(self)} labels")
                spans.append(CharacterSpan(self.characters[label - 1], start, end))
            start = end
        return spans


def show(characters: Iterable[str]) -> str:
    """Characters with their code points, for messages: a stray combining mark is invisible on its own."""
    return ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
