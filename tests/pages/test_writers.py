"""What is written can be read again: by our readers, by kraken's where it is installed, and by the official schemas.

The schemas are not ours to pass on. Put pagecontent.xsd (PAGE 2019), alto-4-4.xsd and xlink.xsd into tests/schemas, or
name their folder in $SPIKEHTR_SCHEMAS, and every file written here is checked against them. (The wheel of htrflow has
the first two, that of ocrd the third.)
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from spikehtr.data.formats import alto_xml, page_xml
from spikehtr.errors import SpikeHTRError
from spikehtr.pages.word_boxes import slice_box
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word
from spikehtr.results.write_page import KINDS

SCHEMAS = Path(os.environ.get("SPIKEHTR_SCHEMAS", Path(__file__).parents[1] / "schemas"))


def word(text: str, left: float, confidence: float = 0.9) -> Word:
    return Word(tuple(Glyph(c, confidence, (left + 10 * i, 20.0, left + 10 * i + 8, 45.0)) for i, c in enumerate(text)))


def line(name: str, top: float, *words: Word) -> TextLine:
    polygon = ((5.0, top), (300.0, top), (300.0, top + 30), (5.0, top + 30))
    return TextLine(name, polygon, ((5.0, top + 22), (150.0, top + 24), (300.0, top + 22)), words, 0.8)


PAGE = Page(
    "my page.jpg",
    400,
    200,
    (
        Region("eSc_block_1", (line("eSc_line_a", 20, word("Évrard", 10), word("<&>", 90, 0.4)), line("l2", 60))),
        Region(
            "note", (line("l3", 100, word("œ\u0301x", 10)),), "marginalia", ((0.0, 90.0), (310.0, 90.0), (310.0, 140.0))
        ),
    ),
    "tiny.safetensors",
)
TEXTS = ["Évrard <&>", "", "œ\u0301x"]
EMPTY = Page("nothing.png", 10, 10, ())


@pytest.mark.parametrize(("written", "parse"), [(PAGE.to_page(), page_xml.parse), (PAGE.to_alto(), alto_xml.parse)])
def test_our_readers_find_the_same_ids_texts_and_places(written: str, parse: object) -> None:
    read = parse(etree.fromstring(written.encode()))  # type: ignore[operator]
    assert (read.image, read.size) == (PAGE.image, (PAGE.width, PAGE.height))
    assert [found.id for found in read.lines] == [line.id for line in PAGE.lines]
    assert [found.text for found in read.lines] == TEXTS
    assert [found.shape.polygon for found in read.lines] == [line.polygon for line in PAGE.lines]
    assert [found.shape.baseline for found in read.lines] == [line.baseline for line in PAGE.lines]


def test_page_structure() -> None:
    root = etree.fromstring(PAGE.to_page(glyphs=True).encode())
    assert root.xpath("//*[local-name()='TextRegion']/@id") == ["eSc_block_1", "note"]
    assert root.xpath("//*[local-name()='TextRegion']/@type") == ["paragraph", "marginalia"]
    assert root.xpath("//*[local-name()='RegionRefIndexed']/@regionRef") == ["eSc_block_1", "note"]
    order = {"Coords": 0, "Baseline": 1, "Word": 2, "Glyph": 2, "TextLine": 2, "TextEquiv": 3}
    for element in root.iter("{*}TextRegion", "{*}TextLine", "{*}Word", "{*}Glyph"):
        places = [order[etree.QName(child).localname] for child in element]
        assert places == sorted(places)
    assert root.xpath("//*[local-name()='Glyph']//*[local-name()='Unicode']/text()") == [*"Évrard<&>", *"œ\u0301x"]


def test_alto_structure() -> None:
    root = etree.fromstring(PAGE.to_alto(glyphs=True).encode())
    assert root.xpath("//*[local-name()='Glyph']/@CONTENT") == [*"Évrard<&>", *"œ\u0301x"]
    assert root.xpath("//*[local-name()='TextBlock']/@ID") == ["eSc_block_1", "note"]
    assert all(len(found) for found in root.iter("{*}TextLine"))
    assert [found.getprevious() is not None for found in root.iter("{*}SP")] == [True]
    strings = root.findall(".//{*}String")
    assert [float(found.get("WC", "nan")) for found in strings if found.get("CONTENT")] == pytest.approx(
        [0.9**6, 0.4**3, 0.9**3], abs=1e-4
    )


@pytest.mark.parametrize("form", ["to_page", "to_alto"])
def test_characters_have_elements_only_where_they_are_asked_for(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    plain, full = (getattr(PAGE, form)(glyphs=glyphs) for glyphs in (False, True))
    assert getattr(PAGE, form)() == plain
    assert "Glyph" not in plain
    assert full.count("<Glyph") == 12
    assert [line.text for line in Page.from_json(PAGE.to_json()).lines] == TEXTS
    assert "x_confs" in PAGE.to_hocr()


def test_every_format_says_what_read_the_page() -> None:
    read = replace(PAGE, precision="bf16", version="7.8.9")
    found = etree.fromstring(read.to_page().encode())
    assert found.findtext(".//{*}Creator") == "spikehtr 7.8.9"
    labels = {label.get("type"): label.get("value") for label in found.iter("{*}Label")}
    assert labels == {"model": "tiny.safetensors", "precision": "bf16", "version": "7.8.9"}
    found = etree.fromstring(read.to_alto().encode())
    assert found.findtext(".//{*}processingStepSettings") == "model: tiny.safetensors; precision: bf16"
    assert found.findtext(".//{*}softwareVersion") == "7.8.9"
    found = etree.fromstring(read.to_hocr().encode())
    notes = {meta.get("name"): meta.get("content") for meta in found.iter("{*}meta")}
    assert (notes["ocr-system"], notes["spikehtr-model"]) == ("spikehtr 7.8.9", "tiny.safetensors")
    assert notes["spikehtr-precision"] == "bf16"
    data = json.loads(read.to_json())
    assert (data["model"], data["precision"], data["version"]) == ("tiny.safetensors", "bf16", "7.8.9")
    again = Page.from_json(read.to_json())
    assert (again.precision, again.version) == ("bf16", "7.8.9")
    unread = replace(PAGE, model="")
    assert "Label" not in unread.to_page()
    assert "processingStepSettings" not in unread.to_alto()


OFF = Page(
    "o.png",
    100,
    50,
    (
        Region(
            "r",
            (
                TextLine(
                    "l",
                    ((-5.0, 10.0), (100.0, 10.0), (140.0, 55.0), (-5.0, 50.0)),
                    ((-20.0, 40.0), (50.0, 52.0), (120.0, 40.0)),
                    (Word((Glyph("a", 0.5, (-3.0, 5.0, 4.2, 60.0)), Glyph("b", 0.5, (99.5, 49.9, 130.0, 50.0)))),),
                    0.5,
                ),
            ),
        ),
    ),
)


def test_nothing_is_written_that_lies_off_the_page() -> None:
    def check(points: list[tuple[float, float]]) -> None:
        assert len(set(points)) > 1
        assert all(0 <= x <= 99 and 0 <= y <= 49 for x, y in points)

    for found in etree.fromstring(OFF.to_page(glyphs=True).encode()).xpath("//@points"):
        check([tuple(map(int, pair.split(","))) for pair in found.split()])
    root = etree.fromstring(OFF.to_alto(glyphs=True).encode())
    for found in root.xpath("//@POINTS | //@BASELINE"):
        check([tuple(map(int, pair.split(","))) for pair in found.split()])
    for element in root.xpath("//*[@HPOS][local-name()!='PrintSpace']"):
        left, top, width, height = (int(element.get(name)) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
        assert min(width, height) >= 1
        check([(left, top), (left + width, top + height)])
    for title in etree.fromstring(OFF.to_hocr().encode()).xpath("//*[@class!='ocr_page']/@title"):
        left, top, right, bottom = map(int, title.split(";")[0].split()[1:])
        check([(left, top), (right, bottom)])
    for part in json.loads(OFF.to_json())["regions"][0]["lines"]:
        check([tuple(point) for point in part["polygon"]])
        check([tuple(point) for point in part["baseline"]])
        for box in (c["box"] for w in part["words"] for c in [w, *w["characters"]]):
            check([(box[0], box[1]), (box[2], box[3])])


@pytest.mark.parametrize("form", ["to_page", "to_alto"])
def test_ids_are_unique_and_references_lead_somewhere(form: str) -> None:
    twice = Page("x.png", 400, 200, (Region("1 bad id", (line("a", 20, word("x", 5)), line("a", 60))), Region("a", ())))
    root = etree.fromstring(getattr(twice, form)().encode())
    ids = root.xpath("//@id | //@ID")
    assert len(ids) == len(set(ids))
    assert all(name[0].isalpha() or name[0] == "_" for name in ids)
    for reference in root.xpath("//@regionRef | //@TAGREFS"):
        assert reference in ids


def test_doubtful_words_are_marked_everywhere() -> None:
    least = 0.3
    assert PAGE.to_text(least).splitlines()[0] == "Évrard <&>[?]"
    assert "unclear {offset:7; length:3;}" in PAGE.to_page(least)
    assert PAGE.to_alto(least).count('TAGREFS="doubtful"') == 1
    assert PAGE.to_hocr(least).count("ocrx_word doubtful") == 1
    words = [w for r in json.loads(PAGE.to_json(least))["regions"] for part in r["lines"] for w in part["words"]]
    assert [w["doubtful"] for w in words] == [False, True, False]
    for sure in (PAGE.to_text(), PAGE.to_page(), PAGE.to_hocr()):
        assert "[?]" not in sure
        assert "unclear" not in sure
        assert "doubtful" not in sure


def test_text_has_a_line_a_line_and_a_gap_between_regions() -> None:
    assert PAGE.to_text() == "Évrard <&>\n\nœ\u0301x\n"
    sure = [f"{line.confidence:.2f}" for line in PAGE.lines if line.text]
    assert [line.split("\t")[0] for line in PAGE.to_text(confidences=True).splitlines() if line] == sure
    assert EMPTY.to_text() == ""


def test_hocr() -> None:
    root = etree.fromstring(PAGE.to_hocr().encode())
    assert [" ".join("".join(found.itertext()).split()) for found in root.xpath("//*[@class='ocr_line']")] == TEXTS
    title = root.xpath("//*[@class='ocr_line']/@title")[0]
    assert title.startswith("bbox 5 20 300 50; baseline 0.0000 -8; poly 5 20 ")
    assert root.xpath("//*[@class='ocrx_word']/@title")[0].startswith("bbox 10 20 68 45; x_wconf 53; x_confs 90 ")


def test_json_there_and_back() -> None:
    again = Page.from_json(PAGE.to_json())
    assert again.to_json() == PAGE.to_json()
    assert [line.text for line in again.lines] == TEXTS
    short = json.loads(PAGE.to_json())
    short["regions"][0]["polygon"] = [[1]]
    for broken in ("{", "[]", '{"format": "other"}', '{"format": "spikehtr-page-1"}', json.dumps(short)):
        with pytest.raises(SpikeHTRError):
            Page.from_json(broken)


def test_which_page_of_its_image_file_it_is() -> None:
    second = replace(PAGE, frame=2)
    assert 'custom="frame {number:2;}"' in second.to_page()
    assert 'PHYSICAL_IMG_NR="2"' in second.to_alto()
    assert "; ppageno 1" in second.to_hocr()
    assert Page.from_json(second.to_json()).frame == 2
    assert "frame" not in PAGE.to_page() + PAGE.to_json()
    assert 'PHYSICAL_IMG_NR="1"' in PAGE.to_alto()
    assert Page.from_json(PAGE.to_json()).frame is None


def test_characters_that_xml_cannot_hold_do_not_break_a_file() -> None:
    odd = Page("a\x00b\x1b.png", 400, 200, (Region("r", (line("l", 20, word("a\x00\x0b\ud800b", 10)),)),))
    for form in ("to_page", "to_alto", "to_hocr"):
        root = etree.fromstring(getattr(odd, form)().encode())
        assert "a\ufffd\ufffd\ufffdb" in etree.tostring(root, encoding="unicode")


@pytest.mark.parametrize(
    ("x0", "x1", "expected"),
    [(10, 20, (10, 0, 20, 40)), (50, 60, (50, 10, 60, 40)), (500, 510, (500, 0, 510, 40))],
)
def test_a_characters_box_is_as_high_as_the_outline_there(x0: float, x1: float, expected: object) -> None:
    outline = ((0.0, 0.0), (40.0, 0.0), (50.0, 10.0), (100.0, 10.0), (100.0, 40.0), (0.0, 40.0))
    assert slice_box(outline, x0, x1) == expected


def schema(name: str) -> etree.XMLSchema:
    file = SCHEMAS / name
    if not file.is_file():
        pytest.skip(f"{file} is not there: see the top of this file")
    local = file.read_bytes().replace(b"http://www.loc.gov/standards/xlink/xlink.xsd", b"xlink.xsd")
    return etree.XMLSchema(etree.fromstring(local, base_url=str(file)))


KIND_PAGE = Page(
    "k.png", 400, 200, tuple(Region(f"r{i}", (), kind) for i, kind in enumerate([*sorted(KINDS), "strange"]))
)


@pytest.mark.parametrize(
    "written",
    [PAGE, EMPTY, KIND_PAGE, replace(PAGE, frame=2, precision="fp32"), OFF],
    ids=["page", "empty", "kinds", "frame", "off"],
)
@pytest.mark.parametrize(("least", "glyphs"), [(0.0, False), (1.0, True)])
def test_official_schemas(written: Page, least: float, glyphs: bool) -> None:
    texts = written.to_page(least, glyphs), written.to_alto(least, glyphs)
    for name, text in zip(("pagecontent.xsd", "alto-4-4.xsd"), texts, strict=True):
        schema(name).assertValid(etree.fromstring(text.encode()))


@pytest.mark.parametrize("form", ["page", "alto"])
def test_kraken_reads_it(form: str, tmp_path: Path) -> None:
    xml = pytest.importorskip("kraken.lib.xml", exc_type=ImportError)
    file = tmp_path / "page.xml"
    file.write_text(getattr(PAGE, f"to_{form}")(), encoding="utf-8")
    (tmp_path / PAGE.image).touch()
    segmentation = xml.XMLPage(file).to_container()
    assert {found.id: (found.text or "").strip() for found in segmentation.lines} == {
        line.id: text for line, text in zip(PAGE.lines, TEXTS, strict=True)
    }
