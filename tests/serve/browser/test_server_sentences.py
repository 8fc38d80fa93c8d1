"""Whatever the server can say to the page is known in French and German; a new sentence without them fails here."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import pytest

from .browser_help import words
from .server_sentences import BENEATH, SOURCE, sentences

# What the system and Starlette say, which the source does not have.
OTHERS = {
    "Input/output error",
    "Is a directory",
    "Method Not Allowed",
    "No space left on device",
    "No such file or directory",
    "Not Found",
    "Permission denied",
    "Read-only file system",
}
# Their faults are of options and names of data on a command line, which the server has none of, or of who builds an
# engine, which it does not.
OF_OPTIONS = {
    "data/batching.py",
    "data/compiling.py",
    "data/formats/__init__.py",
    "pages/origins.py",
    "readers/cpu/engine.py",
    "results/page.py",
    "training/devices.py",
}
FILLED = "7"  # in the place of {}


@cache
def patterns(language: str) -> list[re.Pattern[str]]:
    table = words(f"said-{language}")
    ordered = sorted(table, key=lambda sentence: -len(sentence.replace("{}", "")))
    return [re.compile("(.+)".join(map(re.escape, sentence.split("{}"))), re.DOTALL) for sentence in ordered]


def is_known(text: str, language: str) -> bool:
    """Whether all of a sentence is translated, as said.js does it."""
    text = text.strip(" ;")
    if not re.search(r"[A-Za-z]", text):
        return True
    if "; " in text:
        return all(is_known(part, language) for part in text.split("; "))
    for pattern in patterns(language):
        if found := pattern.fullmatch(text):
            return all(is_known(group, language) for group in found.groups())
    head, colon, tail = text.partition(": ")
    return bool(colon) and is_known(head, language) and is_known(tail, language)


@pytest.mark.parametrize("language", ["de", "fr"])
def test_every_sentence_of_the_server_is_translated(language: str) -> None:
    every = sentences()
    assert len(every) > 250, "the search finds less than there is"
    missing = {text: file for text, file in every.items() if not is_known(text.replace("{}", FILLED), language)}
    assert missing == {}


def test_a_sentence_that_nobody_translated_would_be_found() -> None:
    assert not is_known("the moon is full", "de")
    assert not is_known("7: must be round", "fr")
    assert not is_known("the disk is full; howl at it", "fr")
    assert is_known("page.png: must be true or false; correct the value", "fr") is False, "a name is no sentence"
    assert is_known("7: must be true or false; correct the value", "fr")


def test_the_search_finds_faults_remedies_problems_and_messages_of_every_kind() -> None:
    found = sentences()
    for text in (
        "must be a text",  # invalid
        "{} was changed by somebody else meanwhile",  # named before it is raised
        "page {}",  # what there is none of
        "an archive: unpack it, and take the files in it",  # an error of its own
        "has corrected lines, so its lines were left as they are",  # a problem of a page
        "its PAGE file cannot be written: {}",
        "looking through the folder",  # a message of a job
        "corrected lines on one page only: correct some of another page, to judge by",  # returned
        "there is nothing to redo",  # one of two
        "replace the image by a sound copy",  # in a report
        "not found: is the address right?",  # from a table
    ):
        assert text in found, text


def test_no_module_that_the_server_calls_and_that_raises_faults_is_passed_over() -> None:
    used = set()
    for file in (SOURCE / "serve").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spikehtr."):
                base = SOURCE.joinpath(*str(node.module).split(".")[1:])
                used |= {
                    base.with_suffix(".py"),
                    base / "__init__.py",
                    *(base / f"{one.name}.py" for one in node.names),
                }
    names = {file.relative_to(SOURCE).as_posix() for file in used if file.is_file() and file.parent.name != "serve"}
    raising = {name for name in names if re.search(r"raise \w*Error\(", (SOURCE / name).read_text(encoding="utf-8"))}
    assert raising - set(BENEATH) == OF_OPTIONS


def test_both_tables_have_the_same_sentences_and_each_is_one_of_the_server() -> None:
    german, french = words("said-de"), words("said-fr")
    assert german.keys() == french.keys()
    files = [*(SOURCE / "serve").glob("*.py"), *(SOURCE / name for name in BENEATH)]
    said = set(sentences())
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                said.add("".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values))
    for sentence in german.keys() - OTHERS - sentences().keys():
        pieces = [piece.strip(" :,;()") for piece in sentence.split("{}")]
        assert all(any(piece in one for one in said) for piece in pieces), sentence
    for sentence in german:
        for table in (german, french):
            assert table[sentence].count("{}") == sentence.count("{}"), sentence


@pytest.mark.parametrize("language", ["de", "fr"])
def test_the_page_shows_every_sentence_in_its_language(language: str, modules: Any) -> None:
    """In the browser, with its own code."""
    every = [text.strip(" ;").replace("{}", FILLED) for text in sentences()]
    script = """async ([texts, language]) => { const { settings } = await import("/static/state.js");
        const { said } = await import("/static/i18n/said.js");
        settings.value = { language };
        return texts.map(said); }"""
    shown = modules.evaluate(script, [every, language])
    same_in_both = {"builtin, 7", "page 7", "7, page 7"}
    assert {one for one, other in zip(every, shown, strict=True) if one == other} <= same_in_both
    assert all("{}" not in text for text in shown)
