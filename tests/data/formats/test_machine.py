"""Which lines are a model's and which a person's: after edits, and after other programs wrote the file."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from formats_help import draw, gather
from hypothesis import assume, given
from hypothesis import strategies as st
from lxml import etree

from spikehtr.config import Config
from spikehtr.data.check import check_data
from spikehtr.data.compiling import compile_store, open_lines
from spikehtr.data.formats import alto_xml, page_xml, read
from spikehtr.data.formats.machine import READ, digest, list_read, noted_id
from spikehtr.data.samples import CORRECTED_ELSEWHERE, MACHINE, ImportReport
from spikehtr.errors import SpikeHTRError
from spikehtr.results.page import Glyph, Page, Region, TextLine, Word
from spikehtr.results.xml_text import clean
from spikehtr.training.dry_run import reason_to_stop
from spikehtr.training.job import Job

Patch = pytest.MonkeyPatch
texts = st.text(max_size=12).map(lambda text: " ".join(text.split()))
PARSE: dict[str, Callable[[Any], Any]] = {"page": page_xml.parse, "alto": alto_xml.parse}
PAGE_2019 = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
PAGE_2013 = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15"
ALTO_4 = "http://www.loc.gov/standards/alto/ns-v4#"


def made(lines: list[tuple[str, str]]) -> Page:
    """A page as a model read it: (id, text) of its lines."""
    rows = []
    for index, (name, text) in enumerate(lines):
        top = 10.0 + 20 * index
        box = (5.0, top, 90.0, top + 15)
        words = tuple(Word(tuple(Glyph(c, 0.9, box) for c in word)) for word in text.split(" ") if word)
        outline = ((5.0, top), (90.0, top), (90.0, top + 15), (5.0, top + 15))
        rows.append(TextLine(name, outline, ((5.0, top + 12), (90.0, top + 12)), words, 0.9))
    return Page(
        "p.png", 100, 200, (Region("r1", tuple(rows), polygon=((0.0, 0.0), (99.0, 0.0), (99.0, 199.0))),), "a model"
    )


def written(form: str, lines: list[tuple[str, str]]) -> str:
    return made(lines).to_page() if form == "page" else made(lines).to_alto()


def whose(form: str, text: str) -> list[str | None]:
    return [line.by for line in PARSE[form](etree.fromstring(text.encode())).lines]


THREE = [(noted_id(f"r1l{n}", text), text) for n, text in enumerate(("a fair copy", "of the deed", "of sale"), 1)]


def escriptorium(form: str, text: str, changes: dict[str, str] | None = None) -> str:
    """As eScriptorium exports what it imported: from its database, which has ids, outlines and one text a line."""
    content = PARSE[form](etree.fromstring(text.encode()))
    out = []
    for line in content.lines:
        said = (
            (changes or {}).get(line.text, line.text).replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
        )
        points = [f"{x:.0f},{y:.0f}" for x, y in line.shape.polygon]
        if form == "page":
            out.append(
                f'<TextLine id="{line.id}" >\n<Coords points="{" ".join(points)}"/>\n'
                f"<TextEquiv>\n<Unicode>{said}</Unicode>\n</TextEquiv></TextLine>"
            )
        else:
            flat = " ".join(points).replace(",", " ")
            out.append(
                f'<TextLine ID="{line.id}" HPOS="5" VPOS="9" WIDTH="85" HEIGHT="9"><Shape><Polygon POINTS="{flat}"/>'
                f'</Shape><String CONTENT="{said}" HPOS="5" VPOS="9" WIDTH="85" HEIGHT="9"></String></TextLine>'
            )
    if form == "page":
        return (
            f'<PcGts xmlns="{PAGE_2019}"><Metadata><Creator>escriptorium</Creator></Metadata><Page '
            f'imageFilename="p.png" imageWidth="100" imageHeight="200"><TextRegion id="r1"><Coords points="0,0 9,9"/>'
            f"{''.join(out)}</TextRegion></Page></PcGts>"
        )
    return (
        f'<alto xmlns="{ALTO_4}"><Description><MeasurementUnit>pixel</MeasurementUnit><sourceImageInformation>'
        '<fileName>p.png</fileName></sourceImageInformation></Description><Layout><Page WIDTH="100" HEIGHT="200" '
        f'ID="eSc_dummypage_"><PrintSpace><TextBlock ID="r1">{"".join(out)}</TextBlock></PrintSpace></Page></Layout>'
        "</alto>"
    )


def transkribus(text: str, status: str = "IN_PROGRESS", changes: dict[str, str] | None = None) -> str:
    """As Transkribus exports what it imported: PAGE 2013 with metadata of its own, tags in another order, no words."""
    root = etree.fromstring(text.replace(PAGE_2019, PAGE_2013).encode())
    metadata = root.find("{*}Metadata")
    metadata.find("{*}Creator").text = "TRP"
    etree.SubElement(metadata, f"{{{PAGE_2013}}}TranskribusMetadata", docId="1", pageId="2", status=status)
    for line in root.iter("{*}TextLine"):
        tags = re.findall(r"\w+ \{[^}]*\}", line.get("custom"))
        line.set("custom", "structure {type:paragraph;} " + "  ".join(reversed(tags)))
        for word in line.findall("{*}Word"):
            line.remove(word)
        said = line.find("{*}TextEquiv/{*}Unicode")
        said.text = (changes or {}).get(said.text, said.text)
    return str(etree.tostring(root, encoding="unicode"))


@given(st.lists(st.tuples(st.text(max_size=8), texts), max_size=5), st.sampled_from(["page", "alto"]))
def test_every_line_that_was_read_is_the_machines_whatever_its_id_and_text(
    lines: list[tuple[str, str]], form: str
) -> None:
    found = PARSE[form](etree.fromstring(written(form, lines).encode())).lines
    assert len(found) == len(lines)
    for line, (_, text) in zip(found, lines, strict=True):
        assert line.text == clean(text)
        assert line.by == ("machine" if text else "person")  # nothing was read, so what is filled in is a person's


@given(texts, texts, st.sampled_from(["page", "alto"]))
def test_a_change_to_the_text_makes_it_a_persons_and_other_lines_stay(text: str, change: str, form: str) -> None:
    text, change = clean(text), clean(change)
    assume(text and " ".join(unicodedata.normalize("NFC", change).split()) != unicodedata.normalize("NFC", text))
    root = etree.fromstring(written(form, [("l1", text), ("l2", "other")]).encode())
    line = next(root.iter("{*}TextLine"))
    if form == "page":
        line.find("{*}TextEquiv/{*}Unicode").text = change
    else:
        first, *rest = line.findall("{*}String")
        first.set("CONTENT", change)
        for part in [*rest, *line.findall("{*}SP")]:
            line.remove(part)
    assert whose(form, etree.tostring(root, encoding="unicode")) == ["person", "machine"]


@given(texts)
def test_spaces_and_the_way_accents_are_kept_are_no_change(text: str) -> None:
    assert digest(f"  {unicodedata.normalize('NFD', text)}\n") == digest(text.replace(" ", "\n\t "))
    assert re.fullmatch("m[0-9a-f]{8}", digest(text))


@pytest.mark.parametrize("form", ["page", "alto"])
def test_escriptorium_keeps_ids_and_so_what_was_read(form: str) -> None:
    exported = escriptorium(form, written(form, THREE), {"of the deed": "of the dead"})
    assert whose(form, exported) == ["machine", "person", "machine"]


def test_transkribus_keeps_tags_and_so_what_was_read() -> None:
    given_ids = [(f"tl_{n}", text) for n, (_, text) in enumerate(THREE)]
    exported = transkribus(written("page", given_ids), changes={"of sale": "of Sale"})
    assert whose("page", exported) == ["machine", "machine", "person"]


@pytest.mark.parametrize("status", ["DONE", "FINAL", "GT"])
def test_a_page_that_is_done_in_transkribus_is_confirmed(status: str) -> None:
    assert whose("page", transkribus(written("page", THREE), status)) == ["person"] * 3


@pytest.mark.parametrize(
    ("form", "old", "new", "confirmed"),
    [
        ("page", 'custom="readingOrder {index:1;} ', 'custom="confirmed {} readingOrder {index:1;} ', [1]),
        ("page", f" machine {{text:{digest(THREE[2][1])};}}", "", [2]),  # the note is taken out, though the id has it
        ("page", "<TextRegion ", '<TextRegion custom="confirmed" ', [0, 1, 2]),
        ("page", "<Page ", '<Page custom="confirmed {}" ', [0, 1, 2]),
        ("alto", 'CS="false"', 'CS="true"', [0, 1, 2]),
        ("alto", "<TextBlock ", '<TextBlock CS="true" ', [0, 1, 2]),
        ("alto", f' TAGREFS="read_{digest(THREE[0][1])}"', "", [0]),
    ],
)
def test_a_person_can_confirm(form: str, old: str, new: str, confirmed: list[int]) -> None:
    text = written(form, THREE)
    if old == "<TextRegion ":  # it has a custom attribute already
        text = text.replace(' type="paragraph" custom="readingOrder {index:0;}"', "")
    assert old in text
    assert whose(form, text.replace(old, new)) == ["person" if n in confirmed else "machine" for n in range(3)]


@pytest.mark.parametrize("form", ["page", "alto"])
def test_what_was_read_by_given_ids_is_listed_in_the_folder(tmp_path: Path, form: str) -> None:
    """eScriptorium made the lines, so their ids must stay: the folder of results knows what was read."""
    lines = [(f"eSc_line_{n}", text) for n, (_, text) in enumerate(THREE)]
    exported = escriptorium(form, written(form, lines), {"of sale": "of sails"})
    for folder in ("results/export", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "p.xml").write_text(exported, encoding="utf-8")
        draw(tmp_path / folder / "p.png", (100, 200))
    list_read(tmp_path / "results", "p.png", lines)
    list_read(tmp_path / "results", "p.png", THREE)  # these need no list
    assert len((tmp_path / "results" / READ).read_text().split()) == 3
    reader = PARSE_ALL[form]
    samples, _ = gather(reader, tmp_path / "results")
    assert [sample.machine for sample in samples] == [True, True, False]
    samples, _ = gather(reader, tmp_path / "elsewhere")
    assert [sample.machine for sample in samples] == [False] * 3


PARSE_ALL = {"page": page_xml.read, "alto": alto_xml.read}


def stored(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    draw(folder / "p.png", (100, 200))
    (folder / "p.xml").write_text(text, encoding="utf-8")
    return folder


def test_machine_lines_are_left_out_counted_and_taken_on_demand(tmp_path: Path) -> None:
    folder = stored(tmp_path, written("page", THREE).replace("of the deed", "of the dead"))
    report = ImportReport()
    assert [sample.text for sample in read(folder, report)] == ["of the dead"]
    assert report.machine_read == report.counts["warning", MACHINE] == 2
    assert (report.used, report.left_out) == (1, 0)
    assert "--machine-lines" in report.problems[0].remedy
    report = ImportReport()
    assert [sample.machine for sample in read(folder, report, machine_lines=True)] == [True, False, True]
    assert not report.machine_read


def test_a_store_knows_the_machines_lines_that_it_was_asked_to_take(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    folder = stored(tmp_path / "results", written("page", THREE).replace("of the deed", "of the dead"))
    remark, said = "2 of 3 lines are as the model read them: left out; --machine-lines takes them", list[str]()
    for _ in range(2):  # compiled, and found in the cache
        assert open_lines([folder], say=said.append, machine_lines=False).machine.tolist() == [False]
    assert said == [remark, remark]
    store, report = compile_store([folder], tmp_path / "all.arrow", machine_lines=True)
    assert store.machine.tolist() == [True, False, True]
    assert not report.counts
    again, _ = compile_store([tmp_path / "all.arrow"], tmp_path / "again.arrow")  # a store is what it was made to be
    assert again.machine.tolist() == [True, False, True]
    compile_store([folder], tmp_path / "corrected.arrow")
    said.clear()
    open_lines([tmp_path / "corrected.arrow"], say=said.append, machine_lines=True)
    open_lines([folder], say=said.append)  # by a command that has no such option
    assert said == [remark.replace("--machine-lines takes", "`data compile --machine-lines` takes")] * 2


def test_a_check_counts_them_and_where_none_is_left_that_is_an_error(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SPIKEHTR_CACHE", str(tmp_path / "cache"))
    folder = stored(tmp_path / "results", written("page", THREE))
    report = check_data([folder], Config()).report
    assert (report.used, report.machine_read) == (0, 3)
    with pytest.raises(SpikeHTRError) as stopped:
        compile_store([folder], tmp_path / "s.arrow")
    assert "all 3 lines are as the model read them, so that none is left: correct some" in str(stopped.value)
    assert reason_to_stop(Job(Config(), [folder], tmp_path), None, report) == str(stopped.value)
    assert check_data([folder], Config(), machine_lines=True).report.used == 3


def test_a_word_corrected_while_its_line_was_not_is_told(tmp_path: Path) -> None:
    root = etree.fromstring(written("page", THREE).encode())
    next(root.iter("{*}Word")).find("{*}TextEquiv/{*}Unicode").text = "The"
    report = ImportReport()
    assert not list(read(stored(tmp_path, etree.tostring(root, encoding="unicode")), report))
    (problem,) = (one for one in report.problems if one.kind == CORRECTED_ELSEWHERE)
    assert "its words say 'The fair copy', but the line itself 'a fair copy'" in problem.message
    assert "correct the text of the line" in problem.remedy


def test_a_region_corrected_while_its_lines_were_not_is_told(tmp_path: Path) -> None:
    root = etree.fromstring(written("page", THREE).encode())
    whole = root.find(".//{*}TextRegion/{*}TextEquiv/{*}Unicode")
    whole.text = whole.text.replace("deed", "dead")
    report = ImportReport()
    assert not list(read(stored(tmp_path, etree.tostring(root, encoding="unicode")), report))
    (problem,) = (one for one in report.problems if one.kind == CORRECTED_ELSEWHERE)
    assert "its region says 'of the dead', but the line itself 'of the deed'" in problem.message


def test_a_region_that_holds_other_lines_or_another_order_is_no_correction(tmp_path: Path) -> None:
    for number, other in enumerate(("a summary", "of sale\na fair copy\nof the deed")):
        root = etree.fromstring(written("page", THREE).encode())
        root.find(".//{*}TextRegion/{*}TextEquiv/{*}Unicode").text = other
        report = ImportReport()
        folder = stored(tmp_path / f"{number}", etree.tostring(root, encoding="unicode"))
        assert not list(read(folder, report))
        assert not report.counts["warning", CORRECTED_ELSEWHERE]


@pytest.mark.parametrize("form", ["page", "alto"])
def test_files_without_notes_are_a_persons(tmp_path: Path, form: str) -> None:
    lines = [(f"l{n}", text) for n, (_, text) in enumerate(THREE)]
    folder = stored(tmp_path, escriptorium(form, written(form, lines)))
    assert len(list(read(folder, ImportReport()))) == 3


@given(st.lists(texts, min_size=1, max_size=4), st.data())
def test_json_keeps_what_a_person_wrote(said: list[str], data: st.DataObject) -> None:
    before = made([(f"l{n}", text) for n, text in enumerate(said)])
    values = json.loads(before.to_json())
    assert Page.from_json(json.dumps(values)) == before
    rows = values["regions"][0]["lines"]
    place = data.draw(st.integers(0, len(rows) - 1))
    rows[place]["text"] = change = data.draw(texts)
    assume(digest(change) != digest(said[place]))
    after = Page.from_json(json.dumps(values))
    assert [line.text for line in after.lines] == [*said[:place], change, *said[place + 1 :]]
    assert [line.is_machines for line in after.lines] == [bool(t) and n != place for n, t in enumerate(said)]
    assert Page.from_json(after.to_json()) == after
    for form, text in (("page", after.to_page()), ("alto", after.to_alto())):
        found = PARSE[form](etree.fromstring(text.encode())).lines
        assert [line.text for line in found] == [clean(line.text) for line in after.lines]
        assert found[place].by == "person"
    assert change in after.to_text()


def test_json_with_a_corrected_word_but_not_its_line_is_refused() -> None:
    values = json.loads(made(THREE).to_json())
    values["regions"][0]["lines"][0]["words"][0]["text"] = "The"
    with pytest.raises(SpikeHTRError, match="correct the text of the line too"):
        Page.from_json(json.dumps(values))
