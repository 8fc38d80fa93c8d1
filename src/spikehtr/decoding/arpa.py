"""ARPA files of character models, which KenLM, SRILM and PyLaia write and read."""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spikehtr.decoding.language_model import LanguageModel
from spikehtr.decoding.ngrams import (
    END,
    LONGEST_ORDER,
    MOST_CHARACTERS,
    Floats,
    Ints,
    Vocabulary,
    build_levels,
    distinct,
)
from spikehtr.errors import SpikeHTRError, reason_of
from spikehtr.files import whole_file

SPACE = "<space>"
_SPACES = (SPACE, "\u23b5", "\u2581", "\u2423", "<sp>")  # how programs spell a space, which separates tokens
_START, _END, _UNKNOWN = "<s>", "</s>", "<unk>"
_NEVER = -99.0  # the probability of what is never predicted
_LOG10 = math.log(10)


class _Section(NamedTuple):
    """The n-grams of one length, as a file has them."""

    tokens: list[tuple[str, ...]]
    log_prob: list[float]
    backoff: list[float]


def read_arpa(path: str | os.PathLike[str], space: str | None = None) -> LanguageModel:
    """A model whose tokens are single characters, and a symbol for the space: `space`, or a usual one."""
    path = Path(path)
    if not path.is_file():
        raise SpikeHTRError(f"{path}: {'a folder, not an ARPA file' if path.is_dir() else 'no such file'}")
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8")
        with io.StringIO(text, newline="\n") as file:
            # Not splitlines or strip: characters that Unicode takes for white space are tokens.
            sections = _sections(path, (line.rstrip("\r\n") for line in file))
    except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpikeHTRError(f"{path}: damaged, or not an ARPA file ({reason_of(error)})") from None
    return _model(path, sections, space)


def _sections(path: Path, lines: Iterator[str]) -> list[_Section]:
    counts: list[int] = []
    sections: list[_Section] = []
    begun = seen_end = False
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if not begun or not line.strip(" \t"):
            begun = begun or line.startswith("\\data\\")
            continue
        if line.startswith("ngram ") and not sections:
            found = re.fullmatch(r"ngram +(\d+) *= *(\d+)\s*", line)
            if not found or int(found[1]) != len(counts) + 1:
                raise SpikeHTRError(f"{where}: {line!r} where `ngram {len(counts) + 1}=COUNT` should stand")
            counts.append(int(found[2]))
            if len(counts) > LONGEST_ORDER:
                raise SpikeHTRError(f"{where}: n-grams of more than {LONGEST_ORDER} tokens; make a model of fewer")
        elif line.startswith("\\end\\"):
            seen_end = True
            break
        elif line.startswith("\\") and line.rstrip() == f"\\{len(sections) + 1}-grams:":
            if len(sections) == len(counts):
                raise SpikeHTRError(f"{where}: n-grams that the head does not announce")
            sections.append(_Section([], [], []))
        elif sections:
            _add(sections[-1], len(sections), line, where)
        else:
            raise SpikeHTRError(f"{where}: {line!r} where `\\1-grams:` should stand")
    if not counts:
        raise SpikeHTRError(f"{path}: not an ARPA file: no `\\data\\` with its counts")
    if not seen_end or len(sections) != len(counts):
        raise SpikeHTRError(f"{path}: cut short: `\\end\\` is missing; get it again")
    for length, (count, section) in enumerate(zip(counts, sections, strict=True), start=1):
        if count != len(section.tokens):
            raise SpikeHTRError(f"{path}: {len(section.tokens)} n-grams of {length}, where its head says {count}")
    return sections


def _add(section: _Section, length: int, line: str, where: str) -> None:
    parts = [part for part in re.split("[ \t]", line) if part]
    try:
        log_prob = float(parts[0])
        backoff = float(parts[length + 1]) if len(parts) == length + 2 else 0.0
    except (ValueError, IndexError):
        raise SpikeHTRError(f"{where}: {line!r} is no n-gram of {length} tokens with its probability") from None
    if len(parts) not in (length + 1, length + 2) or math.isnan(log_prob) or not math.isfinite(backoff):
        raise SpikeHTRError(f"{where}: {line!r} is no n-gram of {length} tokens with its probability")
    if log_prob > 1e-4:  # files are rounded
        raise SpikeHTRError(f"{where}: a log-probability above 0, {log_prob}")
    section.tokens.append(tuple(parts[1 : length + 1]))
    section.log_prob.append(min(0.0, max(_NEVER, log_prob)) * _LOG10)
    section.backoff.append(max(_NEVER, backoff) * _LOG10)


def _model(path: Path, sections: list[_Section], space: str | None) -> LanguageModel:
    symbols = [tokens[0] for tokens in sections[0].tokens]
    if space is None:
        space = next((symbol for symbol in _SPACES if symbol in symbols), SPACE)
    names = {_START: _START, _END: _END, _UNKNOWN: _UNKNOWN, "<UNK>": _UNKNOWN, space: " "}
    characters = tuple(
        sorted(names.get(symbol, symbol) for symbol in symbols if symbol not in names or symbol == space)
    )
    wrong = [character for character in characters if len(character) != 1]
    if wrong:
        raise SpikeHTRError(
            f"{path}: its tokens are not characters: {', '.join(map(repr, wrong[:5]))}. A model of words cannot be "
            f"used; where one of these stands for the space, name it with --space"
        )
    if len(characters) > MOST_CHARACTERS:
        raise SpikeHTRError(f"{path}: {len(characters)} different characters; at most {MOST_CHARACTERS} will do")
    if not characters:
        raise SpikeHTRError(f"{path}: lists no character")
    vocabulary = Vocabulary(characters)
    ids = {character: token for token, character in enumerate(characters, start=1)}
    ids |= {_START: vocabulary.start, _END: END, _UNKNOWN: vocabulary.unknown}
    grams = []
    for length, section in enumerate(sections, start=1):
        try:
            listed = [[ids[names.get(symbol, symbol)] for symbol in tokens] for tokens in section.tokens]
        except KeyError as error:
            raise SpikeHTRError(
                f"{path}: {reason_of(error)} stands in an n-gram, but not among single tokens"
            ) from None
        tokens = np.array(listed, np.int64).reshape(-1, length)
        if (tokens[:, 1:] == vocabulary.start).any() or (tokens[:, :-1] == END).any():
            raise SpikeHTRError(f"{path}: an n-gram of {length} with a line's start or end in its middle")
        if len(distinct(tokens)) < len(tokens):
            raise SpikeHTRError(f"{path}: an n-gram of {length} is there twice")
        grams.append((tokens, np.array(section.log_prob), np.array(section.backoff)))
    grams[0] = _complete(vocabulary, *grams[0])
    return LanguageModel.from_ngrams(build_levels(vocabulary, grams), {"sources": [{"name": path.name}]})


def _complete(vocabulary: Vocabulary, tokens: Ints, log_prob: Floats, backoff: Floats) -> tuple[Ints, Floats, Floats]:
    """A file without the unknown character or a line's end: they are less likely than any other."""
    missing = np.setdiff1d(np.arange(vocabulary.start + 1), tokens[:, 0])
    rare = float(log_prob[tokens[:, 0] != vocabulary.start].min(initial=0.0)) - 1.0
    tokens = np.concatenate([tokens, missing[:, None]])
    return tokens, np.append(log_prob, np.full(len(missing), rare)), np.append(backoff, np.zeros(len(missing)))


def write_arpa(model: LanguageModel, path: str | os.PathLike[str]) -> None:
    """As text; the space is written <space>. A name that ends in .gz is packed."""
    ngrams = model.to_ngrams()
    vocabulary = model.vocabulary
    # What splits lines or tokens for any reader of such files cannot be written otherwise.
    unwritable = [c for c in vocabulary.characters if c != " " and (c.isspace() or c in "\x1c\x1d\x1e\x1f\x85")]
    if unwritable:
        raise SpikeHTRError(f"an ARPA file cannot hold the character U+{ord(unwritable[0]):04X}")
    symbols = [_END, *(SPACE if c == " " else c for c in vocabulary.characters), _UNKNOWN, _START]
    with whole_file(path) as temporary:
        packed = Path(path).suffix == ".gz"
        with gzip.open(temporary, "wt", encoding="utf-8") if packed else temporary.open("w", encoding="utf-8") as file:
            file.write("\\data\\\n")
            for length, level in enumerate(ngrams.levels, start=1):
                file.write(f"ngram {length}={len(level.label)}\n")
            for length, level in enumerate(ngrams.levels, start=1):
                file.write(f"\n\\{length}-grams:\n")
                rows = zip(
                    ngrams.tokens_of(length).tolist(), level.log_prob.tolist(), level.backoff.tolist(), strict=True
                )
                for tokens, log_prob, backoff in rows:
                    start = tokens == [vocabulary.start]
                    value = _NEVER if start else log_prob / _LOG10
                    text = " ".join(symbols[token] for token in tokens)
                    more = f"\t{backoff / _LOG10:.7g}" if backoff or start else ""
                    file.write(f"{value:.7g}\t{text}{more}\n")
            file.write("\n\\end\\\n")
