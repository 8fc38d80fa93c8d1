"""What is written: pieces of transcripts, running text, words of a list, and numbers, dates and names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.random import Generator

from spikehtr.data.synthesis.writing import RAISED
from spikehtr.errors import SpikeHTRError
from spikehtr.files import read_text
from spikehtr.text import normalise

_LISTED = 1.5  # words a row: a file with fewer is a word list
_SHORT, _SHORTEST, _LONGEST = 0.15, 1, 85  # share of short lines; characters
_EDITORS = frozenset("<>#[]{}|_\u27e6\u27e7\u2260\u221e")  # signs of who transcribed, not of who wrote
_MARKS = (".", ",", ",", ",", ";", ":", "!", "?")
# Raised letters, by `^` in some transcripts, and in common abbreviations in others.
_RAISED_MARK = re.compile(r"\^\{?(\w+)\}?")
_ABBREVIATION = re.compile(
    r"\b(M|D|S|N|V|C|Mad|Monseig)(r|rs|me|mes|lle|gr|te|t|ve|ie|os?)\b|\b(\d+)(er|re|e|me|th|st|nd|rd|o|a)\b"
)
_MONTHS = (
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre 7bre 8bre 9bre Xbre "
    "January February March April May June July August September October November December Januar Februar März "
    "Jänner Juni Juli Oktober Dezember gennaio febbraio marzo aprile maggio giugno luglio agosto settembre "
    "ottobre novembre dicembre enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
    "diciembre janeiro fevereiro março maio junho julho setembro outubro dezembro januari februari maart mei "
    "augustus "
)
_UNITS = (
    "fr. f. F. livres lb s. d. sols sous kg m. ha ares cent. % £ $ francs Thlr. Rthlr. fl. Gulden lire ducati reales "
)
_HEADS = "N° No. Nr. fol. f° p. pag. art. § vol. lib. cap. Lit. le den den am il el the à "


@dataclass
class Texts:
    """Sources of text; each set, file or list counts by the square root of its size."""

    transcripts: list[list[str]] = field(default_factory=list)  # by set; `^` before raised letters
    running: list[list[str]] = field(default_factory=list)  # words of a file, in order
    listed: list[list[str]] = field(default_factory=list)  # words of a list

    def __post_init__(self) -> None:
        self.kinds = [
            (kind, share)
            for kind, share in ((self.transcripts, 0.4), (self.running, 0.27), (self.listed, 0.25))
            if any(kind)
        ]
        if not self.kinds:
            raise SpikeHTRError("there is no text to draw: name files by --text, or line sets by --like")
        self.shares = [_shares([len(source) for source in kind]) for kind, _ in self.kinds]

    def compose(self, rng: Generator) -> str:
        """A line's text, normalised but for RAISED before raised letters; never empty."""
        while True:
            wanted = int(rng.integers(_SHORTEST, 15)) if rng.random() < _SHORT else int(rng.normal(46, 17))
            text = self._words(min(max(wanted, _SHORTEST), _LONGEST), rng)
            if flat(text):
                return normalise(text)

    def _words(self, wanted: int, rng: Generator) -> str:
        if rng.random() < 0.08:
            return _facts(wanted, rng)
        weights = np.array([share for _, share in self.kinds])
        chosen = int(rng.choice(len(weights), p=weights / weights.sum()))
        kind, _ = self.kinds[chosen]
        source = kind[int(rng.choice(len(kind), p=self.shares[chosen]))]
        if kind is self.transcripts:
            text = _recombined(source, wanted, rng)
        elif kind is self.running:
            start = int(rng.integers(len(source)))
            text = _fill(source[start : start + wanted], wanted, rng)
        else:
            text = _sentence([source[int(i)] for i in rng.integers(len(source), size=wanted // 3 + 1)], wanted, rng)
        return _old_letters(_raise(text, rng), rng)


def flat(text: str) -> str:
    """The transcript of what is written: raised letters stand on the line."""
    return normalise(text.replace(RAISED, ""))


def plain_characters(texts: Texts) -> frozenset[str]:
    """All characters that may be written."""
    found: set[str] = set("0123456789 -.,;:!?/()'\u017f")
    for kind in (texts.transcripts, texts.running, texts.listed):
        for source in kind:
            found.update(*source)
    found.update(_MONTHS, _UNITS, _HEADS)
    return frozenset(found.union(*(c.upper() for c in found)))  # words of a list may get capitals


def read_texts(files: Sequence[Path], transcripts: Sequence[Sequence[str]] = ()) -> Texts:
    """Plain text in UTF-8, or the same packed by gzip: a file with one word a row is a list, any other runs on."""
    running: list[list[str]] = []
    listed: list[list[str]] = []
    for path in files:
        text = read_text(path)
        words = normalise(text.replace(RAISED, "")).split()
        if not words:
            raise SpikeHTRError(f"{path}: holds no text; leave it out")
        rows = sum(1 for row in text.splitlines() if row.strip())
        (listed if len(words) < _LISTED * rows else running).append(words)
    known = [[line for text in lines if (line := _written(text))] for lines in transcripts]
    return Texts([lines for lines in known if lines], running, listed)


def _written(text: str) -> str:
    """A transcript as it can be written again; empty where it holds signs that are not on the paper."""
    return "" if _EDITORS & set(text) else normalise(text.replace(RAISED, ""))


def _shares(sizes: list[int]) -> list[float]:
    roots = np.sqrt(np.array(sizes, np.float64))
    shares: list[float] = (roots / roots.sum()).tolist()
    return shares


def _recombined(lines: list[str], wanted: int, rng: Generator) -> str:
    """A line as it is, or the words of two one after the other, cut to length."""
    first = lines[int(rng.integers(len(lines)))]
    if rng.random() < 0.35 and len(first) <= _LONGEST:
        return first
    words = first.split()
    words = words[int(rng.integers(len(words))) :] + lines[int(rng.integers(len(lines)))].split()
    return _fill(words, wanted, rng)


def _fill(words: Sequence[str], wanted: int, rng: Generator) -> str:
    """The first words that fit; now and then the last is parted by a hyphen, as at the end of a line."""
    line = words[0][:_LONGEST]
    for word in words[1:]:
        if len(line) + 1 + len(word) > wanted:
            left = wanted - len(line) - 2
            if rng.random() < 0.12 and 2 <= left < len(word) - 2 and word[: left + 2].isalpha():
                line += f" {word[:left]}-"
            break
        line += f" {word}"
    return line


def _sentence(words: list[str], wanted: int, rng: Generator) -> str:
    """Words of a list as they might stand in a text: capitals, punctuation."""
    draws = rng.random((len(words), 2)).tolist()
    capitals = rng.random() < 0.03
    made = []
    for word, (case, mark) in zip(words, draws, strict=True):
        if capitals:
            word = word.upper()
        elif case < 0.18:
            word = word[:1].upper() + word[1:]
        if mark < 0.16:
            word += _MARKS[int(mark / 0.16 * len(_MARKS))]
        elif mark > 0.985:
            word = f"({word})"
        made.append(word)
    return _fill(made, wanted, rng)


def _raise(text: str, rng: Generator) -> str:
    """`^` becomes the mark of raised letters; of common abbreviations some are written so, too."""
    text = _RAISED_MARK.sub(lambda found: RAISED + found[1], text).replace("^", "")
    if rng.random() < 0.4:
        text = _ABBREVIATION.sub(lambda f: f"{f[1] or f[3]}{RAISED}{f[2] or f[4]}", text)
    return text


def _old_letters(text: str, rng: Generator) -> str:
    """Now and then v at the beginning of words and u within, as older hands have it."""
    if rng.random() > 0.04:
        return text
    text = re.sub(r"\bu", "v", text)
    return re.sub(r"(?<=[a-z])v", "u", text)


def _facts(wanted: int, rng: Generator) -> str:
    """Numbers, dates, sums and names of months."""
    parts: list[str] = []
    while sum(map(len, parts)) + len(parts) < wanted:
        kind = rng.random()
        number = int(10 ** rng.uniform(0, 4.5))
        if kind < 0.3:
            parts += [str(int(rng.integers(1, 32))), _any(_MONTHS, rng), str(int(rng.integers(1400, 2025)))]
        elif kind < 0.45:
            parts.append("/".join(str(int(rng.integers(1, top))) for top in (32, 13, 100)))
        elif kind < 0.6:
            parts += [f"{number},{int(rng.integers(100)):02d}", _any(_UNITS, rng)]
        elif kind < 0.75:
            parts += [_any(_HEADS, rng), str(number)]
        elif kind < 0.85:
            parts += [f"{number}{RAISED}{_any('e er o me th', rng)}"]
        elif kind < 0.92:
            parts.append("." * int(rng.integers(2, 9)))
        else:
            parts.append(f"{number}-{number + int(rng.integers(1, 30))}")
    return " ".join(parts)[:_LONGEST].strip()


def _any(words: str, rng: Generator) -> str:
    chosen = words.split()
    return chosen[int(rng.integers(len(chosen)))]
