"""PAGE files: what others wrote stays, log and file agree after every write, and edits from outside are taken in."""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from editing_help import ADA, KINDS, in_file, same, step
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from serve_help import draw_page, opened, page_with_lines, served

from spikehtr.errors import SpikeHTRError
from spikehtr.serve.documents import PageState
from spikehtr.serve.merging import merge
from spikehtr.serve.page_files import PageFiles
from spikehtr.serve.project import Project

SPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2013-07-15"
FOREIGN = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment before the root -->
<PcGts xmlns="{SPACE}" xmlns:x="urn:x">
  <Metadata><Creator>another program</Creator><Created>2020-01-01T00:00:00</Created>
    <LastChange>2020-01-01T00:00:00</LastChange></Metadata>
  <Page imageFilename="page.png" imageWidth="400" imageHeight="300" x:own="kept">
    <ReadingOrder><OrderedGroup id="ro" caption="kept"><RegionRefIndexed index="0" regionRef="b"/>
      <RegionRefIndexed index="1" regionRef="pic"/><RegionRefIndexed index="2" regionRef="a"/></OrderedGroup>
    </ReadingOrder>
    <TextRegion id="a" type="paragraph" custom="structure {{type:kept;}}"><Coords points="10,20 390,20 390,140 10,140"/>
      <TextLine id="a1" custom="readingOrder {{index:0;}} person {{offset:0; length:4;}}" primaryLanguage="German">
        <Coords points="20,30 380,30 380,70 20,70"/><Baseline points="20,60 380,60"/>
        <Word id="w1"><Coords points="20,30 90,30 90,70 20,70"/><TextEquiv><Unicode>Anna</Unicode></TextEquiv></Word>
        <TextEquiv index="0"><Unicode>Anna geht</Unicode></TextEquiv>
        <TextEquiv index="1" dataType="other"><Unicode>Auua gcht</Unicode></TextEquiv>
        <TextStyle bold="true"/></TextLine>
      <TextLine id="a2"><Coords points="20,90 380,90 380,130 20,130"/>
        <TextEquiv><Unicode>zwei</Unicode></TextEquiv></TextLine>
      <TextEquiv><Unicode>Anna geht
zwei</Unicode></TextEquiv>
    </TextRegion>
    <TextRegion id="b" type="heading"><Coords points="10,150 390,150 390,190 10,190"/>
      <TextLine id="b1"><Coords points="20,150 380,150 380,190 20,190"/>
        <TextEquiv><Unicode>drei</Unicode></TextEquiv></TextLine>
      <TextLine id="flat"><Coords points="5,5 5,5"/>
        <TextEquiv><Unicode>without an outline</Unicode></TextEquiv></TextLine>
    </TextRegion>
    <ImageRegion id="pic"><Coords points="0,200 400,200 400,300 0,300"/></ImageRegion>
    <!-- a comment within -->
  </Page>
</PcGts>
"""


def foreign_page(project: Project, content: str = FOREIGN) -> int:
    draw_page(project.folder / "page.png")
    (project.folder / "page.xml").write_text(content, encoding="utf-8")
    page = project.add_page(project.folder / "page.png", project.folder / "page.xml")
    assert page is not None
    return page


def op(project: Project, page: int, kind: str, line: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "line": line, "version": project.log.state(page).version("lines", line), **more}


def test_a_file_of_another_program_is_understood(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        state = project.log.state(foreign_page(project))
        assert state.order == ["b", "a"]
        assert [(name, line["text"], line["by"]) for name, line in state.ordered()] == [
            ("b1", "drei", "person"),
            ("a1", "Anna geht", "person"),
            ("a2", "zwei", "person"),
        ]
        assert state.regions["b"]["kind"] == "heading"


def test_only_what_changed_is_touched_in_a_file_of_another_program(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        files = PageFiles(project)
        project.edit(page, [op(project, page, "set_text", "a2", text="two & more")], ADA)
        files.write(page)
        written = (tmp_path / "page.xml").read_text(encoding="utf-8")
        assert "two &amp; more" in written
        before, after = (etree.fromstring(text.encode()) for text in (FOREIGN, written))
        for element in after.iter(f"{{{SPACE}}}TextLine"):
            if element.get("id") == "a2":
                element.find("{*}TextEquiv/{*}Unicode").text = "zwei"
                assert element.attrib.pop("custom") == "confirmed {}"
        after.find(".//{*}TextRegion[@id='a']/{*}TextEquiv/{*}Unicode").text = "Anna geht\nzwei"
        after.find("{*}Metadata/{*}LastChange").text = "2020-01-01T00:00:00"
        assert etree.tostring(after, method="c14n") == etree.tostring(before, method="c14n")
        assert written.startswith("<?xml")
        assert "a comment before the root" in written
        assert (tmp_path / "page.xml.bak").read_text(encoding="utf-8") == FOREIGN


def test_words_go_where_the_text_changed_and_all_else_of_the_line_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        project.edit(page, [op(project, page, "set_text", "a1", text="Anna ging")], ADA)
        PageFiles(project).write(page)
        line = etree.parse(tmp_path / "page.xml").find(".//{*}TextLine[@id='a1']")
        assert [etree.QName(child).localname for child in line] == [
            "Coords",
            "Baseline",
            "TextEquiv",
            "TextEquiv",
            "TextStyle",
        ]
        assert [equivalent.findtext("{*}Unicode") for equivalent in line.iterfind("{*}TextEquiv")] == [
            "Anna ging",
            "Auua gcht",
        ]
        assert line.get("custom") == "readingOrder {index:0;} person {offset:0; length:4;} confirmed {}"
        assert line.get("primaryLanguage") == "German"


def test_what_cannot_be_used_stays_in_the_file(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        version = project.log.state(page).version("regions", "b")
        seq = project.row(page)["seq"]
        project.edit(page, [{"op": "delete_region", "region": "b", "version": version, "seq": seq}], ADA)
        PageFiles(project).write(page)
        root = etree.parse(tmp_path / "page.xml")
        assert root.find(".//{*}TextLine[@id='b1']") is None
        assert root.find(".//{*}TextLine[@id='flat']") is not None
        assert root.find(".//{*}ImageRegion") is not None
        assert same(in_file(project, page), project.log.state(page))


@settings(max_examples=12)
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12), st.integers(0, 1 << 30), st.booleans())
def test_file_and_log_say_the_same_after_random_edits(kinds: list[str], seed: int, is_foreign: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
        page = foreign_page(project) if is_foreign else page_with_lines(project)[0]
        files, rng = PageFiles(project), random.Random(seed)
        for kind in kinds:
            step(project, page, kind, rng)
            if rng.random() < 0.4:
                files.write(page)
        files.write(page)
        assert project.row(page)["written"] == project.row(page)["seq"]
        assert same(in_file(project, page), project.log.state(page))
        if is_foreign:
            root = etree.parse(project.folder / "page.xml")
            assert root.find(".//{*}ImageRegion[@id='pic']") is not None
            assert root.find(".//{*}TextLine[@id='flat']") is not None
        assert not files.look(page)  # what we wrote is no edit from outside


@settings(max_examples=12)
@given(st.lists(st.sampled_from(KINDS), max_size=6), st.lists(st.sampled_from(KINDS), max_size=6), st.integers(0, 99))
def test_a_file_that_a_kill_kept_from_being_noted_takes_back_nothing(
    before: list[str], after: list[str], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as project:
        page, rng = page_with_lines(project)[0], random.Random(seed)
        files = PageFiles(project)
        files.write(page)
        for kind in before:
            step(project, page, kind, rng)
        noted = {name: project.row(page)[name] for name in ("written", "file_digest", "file_stamp")}
        files.write(page)
        project.set_page(page, **noted)
        for kind in ["delete", *after]:
            step(project, page, kind, rng)
        state, last = project.log.state(page).copy(), project.log.last
        files = PageFiles(project)
        files.write(page)
        assert project.log.last == last, "our own file is no edit from outside"
        assert same(in_file(project, page), project.log.state(page))
        assert same(project.log.state(page), state)


def test_an_edit_from_outside_becomes_an_event_that_can_be_undone(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        (tmp_path / "page.xml").write_text(FOREIGN.replace("drei", "three"), encoding="utf-8")
        assert PageFiles(project).look(page)
        state = project.log.state(page)
        assert state.lines["b1"]["text"] == "three"
        last = project.log.next_steps(page)[0]
        assert last is not None
        assert (last.label, last.lines) == ("outside", ("b1",))
        project.turn(page, "undo", last.seq, ADA)
        assert project.log.state(page).lines["b1"]["text"] == "drei"


def test_edits_here_and_outside_of_different_lines_are_both_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        project.edit(page, [op(project, page, "set_text", "a1", text="ours")], ADA)  # not written yet: a kill
        (tmp_path / "page.xml").write_text(FOREIGN.replace("drei", "theirs"), encoding="utf-8")
        PageFiles(project).write(page)
        state = project.log.state(page)
        assert (state.lines["a1"]["text"], state.lines["b1"]["text"]) == ("ours", "theirs")
        assert same(in_file(project, page), state)


def test_where_both_changed_a_line_ours_stands_and_theirs_is_kept_beside_it(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        project.edit(page, [op(project, page, "set_text", "b1", text="ours")], ADA)
        (tmp_path / "page.xml").write_text(FOREIGN.replace("drei", "theirs"), encoding="utf-8")
        PageFiles(project).write(page)
        assert project.log.state(page).lines["b1"]["text"] == "ours"
        assert "b1" in project.row(page)["problem"]
        assert any("theirs" in file.read_text() for file in tmp_path.glob("page.xml.bak*"))


def test_a_file_broken_from_outside_is_left_alone_and_the_edits_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        project.edit(page, [op(project, page, "set_text", "b1", text="ours")], ADA)
        (tmp_path / "page.xml").write_text("<PcGts", encoding="utf-8")
        files = PageFiles(project)
        files.note(page)
        assert not files.flush()
        assert (tmp_path / "page.xml").read_text() == "<PcGts"
        assert "mend it" in project.row(page)["problem"]
        (tmp_path / "page.xml").write_text(FOREIGN, encoding="utf-8")
        assert files.flush()
        assert in_file(project, page).lines["b1"]["text"] == "ours"
        assert project.row(page)["problem"] is None


def test_an_alto_file_in_the_place_of_a_page_file_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        project.edit(page, [op(project, page, "set_text", "b1", text="ours")], ADA)
        alto = '<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Layout><Page ID="p"/></Layout></alto>'
        (tmp_path / "page.xml").write_text(alto, encoding="utf-8")
        files = PageFiles(project)
        files.note(page)
        assert not files.flush()
        assert (tmp_path / "page.xml").read_text(encoding="utf-8") == alto
        assert "no PAGE file" in project.row(page)["problem"]
        assert project.log.state(page).lines["b1"]["text"] == "ours"


def test_a_broken_file_is_a_problem_of_the_page_until_it_is_as_it_was(tmp_path: Path) -> None:
    with served(tmp_path) as browser:
        draw_page(tmp_path / "page.png")
        browser.wait_for_job(browser.send("/api/jobs", {"kind": "scan"}, 202)["job"]["id"])
        browser.wait_for_all()
        file = tmp_path / "page.xml"
        browser.client.app.state.bench.files.flush()  # type: ignore[attr-defined]
        kept = file.rename(tmp_path / "kept")
        for mended in (kept, None):
            file.write_text("<PcGts", encoding="utf-8")
            assert "cannot be used" in browser.page(1)["page"]["problem"]
            file.unlink() if mended is None else mended.replace(file)
            assert browser.page(1)["page"]["problem"] is None
        browser.send("/api/pages/1", {"problem": "mine"}, 422, "PATCH")
        file.write_text("<PcGts", encoding="utf-8")
        assert browser.page(1)["page"]["problem"]
        assert browser.send("/api/pages/1", {"problem": None}, method="PATCH")["problem"] is None


def test_a_deleted_file_is_written_again_with_the_next_edit(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        (tmp_path / "page.xml").unlink()
        project.edit(page, [op(project, page, "set_text", "b1", text="ours")], ADA)
        PageFiles(project).write(page)
        assert same(in_file(project, page), project.log.state(page))


def test_a_file_that_cannot_be_written_is_a_problem_of_the_page_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as project:
        page, _ = page_with_lines(project)
        files = PageFiles(project)
        files.note(page)
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(Path, "write_bytes", full)
            assert not files.flush()
        assert "the disk is full" in project.row(page)["problem"]
        assert files.flush()
        assert project.row(page)["problem"] is None
        assert same(in_file(project, page), project.log.state(page))


def test_a_flush_waits_for_what_another_thread_is_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as project:
        page, _ = page_with_lines(project)
        files = PageFiles(project)
        begun, write = threading.Event(), files.write

        def slowly(number: int) -> None:
            begun.set()
            time.sleep(0.1)
            write(number)

        monkeypatch.setattr(files, "write", slowly)
        files.note(page)
        other = threading.Thread(target=files.flush)
        other.start()
        assert begun.wait(10)
        assert files.flush()
        assert project.row(page)["written"] == project.row(page)["seq"]
        other.join()


def test_an_image_outside_the_folder_is_no_page(tmp_path: Path) -> None:
    draw_page(tmp_path / "outside.png")
    (tmp_path / "inside").mkdir()
    with opened(tmp_path / "inside") as project:
        (project.folder / "link.png").symlink_to(tmp_path / "outside.png")
        with pytest.raises(SpikeHTRError, match="out of the project"):
            project.path("link.png")


def state_of(**texts: str) -> PageState:
    """Lines by their names, one below the other in a region."""
    state = PageState()
    for number, (name, text) in enumerate(texts.items()):
        box = [[0, 10 * number], [90, 10 * number], [90, 10 * number + 9]]
        line = {"region": "r", "baseline": [], "polygon": box, "text": text, "by": "person"}
        state.lines[name] = {**line, "confidence": None, "reading": None, "stale": False}
    state.regions["r"] = {"kind": "paragraph", "polygon": [], "lines": list(texts)}
    state.order = ["r"]
    return state


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "wanted", "conflicts"),
    [
        ({"a": "1"}, {"a": "1"}, {"a": "2"}, {"a": "2"}, []),
        ({"a": "1"}, {"a": "2"}, {"a": "1"}, {"a": "2"}, []),
        ({"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "2"}, ["a"]),
        ({"a": "1"}, {"a": "2"}, {"a": "2"}, {"a": "2"}, []),
        ({"a": "1", "b": "1"}, {"a": "1", "b": "1"}, {"a": "1"}, {"a": "1"}, []),  # deleted outside
        ({"a": "1", "b": "1"}, {"a": "1", "b": "2"}, {"a": "1"}, {"a": "1", "b": "2"}, []),  # but changed here
        ({"a": "1", "b": "1"}, {"a": "1"}, {"a": "1", "b": "1"}, {"a": "1"}, []),  # deleted here
        ({"a": "1", "b": "1"}, {"a": "1"}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}, []),  # but changed outside
        ({"a": "1"}, {"a": "1", "n": "1"}, {"a": "1", "m": "1"}, {"a": "1", "n": "1", "m": "1"}, []),
    ],
)
def test_merging_takes_from_each_side_what_it_alone_changed(
    base: dict[str, str], ours: dict[str, str], theirs: dict[str, str], wanted: dict[str, str], conflicts: list[str]
) -> None:
    merged = merge(state_of(**base), state_of(**ours), state_of(**theirs))
    merged.state.check()
    assert {name: line["text"] for name, line in merged.state.lines.items()} == wanted
    assert merged.conflicts == conflicts


def test_the_original_of_a_file_from_elsewhere_is_kept_once(tmp_path: Path) -> None:
    with opened(tmp_path) as project:
        page = foreign_page(project)
        files = PageFiles(project)
        for text in ("one", "two", "three"):
            project.edit(page, [op(project, page, "set_text", "b1", text=text)], ADA)
            files.write(page)
        assert [file.name for file in tmp_path.glob("*.bak*")] == ["page.xml.bak"]
        shutil.copy(tmp_path / "page.xml.bak", tmp_path / "page.xml")  # somebody puts it back
        files.look(page)
        assert project.log.state(page).lines["b1"]["text"] == "drei"
