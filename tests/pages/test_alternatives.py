"""What else a character, a word or a line may be, in every format that has a place for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from spikehtr.data.formats import page_xml
from spikehtr.results import Glyph, Page, Region, TextLine, Word
from spikehtr.results.line import Alternative

BOX = (1.0, 1.0, 8.0, 8.0)
OUTLINE = ((0.0, 0.0), (39.0, 0.0), (39.0, 29.0))
T = Glyph("t", 0.8, BOX, (Alternative("l", 0.15), Alternative("", 0.05)))
OH = Glyph("o", 0.9, BOX)
LINE = TextLine("l", OUTLINE, (), (Word((T, OH)),), 0.85, alternatives=(Alternative("lo", 0.2),))
PAGE = Page("p.png", 40, 30, (Region("r", (LINE,)),), "m")


def test_a_word_may_be_what_its_characters_may_be() -> None:
    found = Word((T, OH)).alternatives
    assert [other.text for other in found] == ["lo", "o"]
    assert [other.confidence for other in found] == pytest.approx([0.15 * 0.9, 0.05 * 0.9])
    assert Word((OH,)).alternatives == ()


def test_json_has_them_and_gives_them_back() -> None:
    again = Page.from_json(PAGE.to_json())
    assert again.lines[0].alternatives == LINE.alternatives
    assert again.lines[0].words[0].characters[0].alternatives == T.alternatives
    bare = replace(PAGE, regions=(Region("r", (TextLine("l", OUTLINE, (), (Word((OH,)),), 0.9),)),))
    assert "alternatives" not in bare.to_json()


def test_page_xml_has_them_after_the_text_which_stays_the_one_that_counts(tmp_path: Path) -> None:
    root = etree.fromstring(PAGE.to_page(glyphs=True).encode())
    line = root.find(".//{*}TextLine")
    versions = [(text.get("index"), text.findtext("{*}Unicode")) for text in line.findall("{*}TextEquiv")]
    assert versions == [("0", "to"), ("1", "lo")]
    word = [text.findtext("{*}Unicode") for text in line.find("{*}Word").findall("{*}TextEquiv")]
    assert word == ["to", "lo", "o"]
    assert [line.text for line in page_xml.parse(root).lines] == ["to"]


def test_alto_has_them_for_words_and_characters() -> None:
    root = etree.fromstring(PAGE.to_alto(glyphs=True).encode())
    assert [other.text for other in root.findall(".//{*}ALTERNATIVE")] == ["lo", "o"]
    assert [(other.get("CONTENT"), other.get("VC")) for other in root.findall(".//{*}Variant")] == [("l", "0.1500")]
