"""Synthetic lines: a plain-text corpus and a folder of fonts become `000000.png` + `000000.gt.txt` and so on."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from spikehtr.data.handwriting import Font, draw_text, load_font
from spikehtr.errors import SpikeHTRError
from spikehtr.files import read_json, whole_file, write_json
from spikehtr.text import normalise

SETTINGS = "synth.json"  # what a folder's lines were made from; a run that would mix two kinds stops


@dataclass
class SynthReport:
    """What was drawn and what could not be."""

    written: int = 0  # pairs made now
    kept: int = 0  # pairs that were there already
    fonts: int = 0  # fonts in use
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # font files left out, and why
    texts: int = 0  # lines of the corpus that can be drawn
    skipped: int = 0  # lines of the corpus that no single font can draw
    missing: Counter[str] = field(default_factory=Counter)  # character no font has -> how many lines hold it


def split_corpus(text: str, seed: int = 0, shortest: int = 20, longest: int = 60) -> list[str]:
    """Cut running text into normalised lines of about `shortest` to `longest` characters, between words.

    A blank line ends a paragraph and with it a line, which may then be shorter. A word longer than `longest` is cut.
    """
    rng = np.random.default_rng([seed % 2**63, 2])
    lines: list[str] = []
    for paragraph in _paragraphs(text):
        line, wanted = "", int(rng.integers(shortest, longest + 1))
        for word in _words(paragraph, longest):
            if line and len(line) + 1 + len(word) > wanted:
                lines.append(line)
                line, wanted = "", int(rng.integers(shortest, longest + 1))
            line = f"{line} {word}" if line else word
        if line:
            lines.append(line)
    return lines


def _paragraphs(text: str) -> Iterator[str]:
    rows: list[str] = []
    for row in [*text.splitlines(), ""]:
        if row.strip():
            rows.append(row)
        elif rows:
            yield normalise("\n".join(rows))
            rows = []


def _words(paragraph: str, longest: int) -> Iterator[str]:
    """Words, none longer than `longest`; a cut never parts a letter from the marks on it."""
    for word in paragraph.split():
        while len(word) > longest:
            cut = longest
            while cut > 1 and unicodedata.category(word[cut]).startswith("M"):
                cut -= 1
            yield word[:cut]
            word = word[cut:]
        yield word


def synthesise(
    texts: Sequence[str],
    fonts: Path,
    count: int,
    folder: Path,
    seed: int = 0,
    height: int = 64,
    progress: Callable[[int], None] | None = None,
) -> SynthReport:
    """Draw `count` lines [height, w] of `texts` with the .ttf and .otf files under `fonts` into `folder`.

    Line i depends on the seed, the texts, the fonts and i alone: a larger count extends a smaller one, and pairs that
    are there already are kept. Every text is used once before any is used again. A text is drawn with a font that has
    all its characters; where there is none it is left out and counted. `progress` is called with the lines done so far.
    """
    texts = [text for text in map(normalise, texts) if text]
    if not texts:
        raise SpikeHTRError("there is no text to draw: the corpus is empty")
    report = SynthReport()
    usable = load_fonts(fonts, frozenset().union(*texts), report)
    texts = _drawable(texts, usable, report)
    _prepare(folder, {"seed": seed, "height": height, "texts": _digest(texts), "fonts": _digest(_names(usable, fonts))})
    start = seed % 2**63
    for i in range(count):
        turn, place = divmod(i, len(texts))
        if place == 0:
            order = np.random.default_rng([start, 0, turn]).permutation(len(texts))
        if _finished(folder, i):
            report.kept += 1
        else:
            text = texts[order[place]]
            rng = np.random.default_rng([start, 1, i])
            able = [font for font in usable if font.characters.issuperset(text)]
            font = able[int(rng.integers(len(able)))]
            _write_pair(folder, i, text, draw_text(text, font, height, rng))
            report.written += 1
        if progress:
            progress(i + 1)
    return report


def load_fonts(folder: Path, characters: frozenset[str], report: SynthReport) -> list[Font]:
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".ttf", ".otf") and p.is_file())
    if not files:
        raise SpikeHTRError(f"{folder}: no fonts there; give a folder that holds .ttf or .otf files")
    fonts: list[Font] = []
    for path in files:
        try:
            fonts.append(load_font(path, characters))
        except OSError as error:
            report.unreadable.append((str(path.relative_to(folder)), str(error)))
    if not fonts:
        name, reason = report.unreadable[0]
        raise SpikeHTRError(f"{folder}: none of its {len(files)} fonts can be used; {name}: {reason}")
    report.fonts = len(fonts)
    return fonts


def _drawable(texts: list[str], fonts: list[Font], report: SynthReport) -> list[str]:
    """The texts that some font can draw whole; the others are counted."""
    drawn = [text for text in texts if any(font.characters.issuperset(text) for font in fonts)]
    report.texts, report.skipped = len(drawn), len(texts) - len(drawn)
    known = frozenset().union(*(font.characters for font in fonts))
    for text in texts:
        report.missing.update(set(text) - known)
    if not drawn:
        examples = " ".join(sorted(report.missing)[:20])
        raise SpikeHTRError(f"no font can draw any of the {len(texts)} texts (missing: {examples}); add fonts")
    return drawn


def _names(fonts: list[Font], folder: Path) -> list[str]:
    return [f"{font.path.relative_to(folder).as_posix()} {font.digest()}" for font in fonts]


def _digest(items: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(items).encode()).hexdigest()[:16]


def _prepare(folder: Path, settings: dict[str, object]) -> None:
    """Make the folder, or see that what it holds was made the same way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / SETTINGS
        if not place.exists():
            if _finished(folder, 0):
                raise SpikeHTRError(f"{folder} holds lines of another making; take another folder")
            write_json(place, settings)
        for left_over in folder.glob(".*.tmp"):  # of a run that was killed
            left_over.unlink()
        found = read_json(place)
    except OSError as error:
        raise SpikeHTRError(f"{folder}: cannot be written to ({error.strerror or error})") from None
    if found != settings:
        other = ", ".join(key for key in settings if not isinstance(found, dict) or found.get(key) != settings[key])
        raise SpikeHTRError(f"{folder} holds lines made with other {other}; take another folder, or empty this one")


def _paths(folder: Path, i: int) -> tuple[Path, Path]:
    return folder / f"{i:06d}.png", folder / f"{i:06d}.gt.txt"


def _finished(folder: Path, i: int) -> bool:
    return all(path.exists() for path in _paths(folder, i))


def _write_pair(folder: Path, i: int, text: str, image: NDArray[np.uint8]) -> None:
    # Noise has no repeats to look for: Huffman coding alone is faster and no larger.
    encoded = cv2.imencode(".png", image, [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_HUFFMAN_ONLY])[1]
    png, transcript = _paths(folder, i)
    try:
        _write_whole(png, encoded.tobytes())
        _write_whole(transcript, f"{text}\n".encode())
    except OSError as error:
        raise SpikeHTRError(f"{folder}: cannot be written to ({error.strerror or error})") from None


def _write_whole(path: Path, content: bytes) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
