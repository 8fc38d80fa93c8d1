from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spikehtr.data.formats import alto_xml, page_xml, xml
from spikehtr.data.samples import ImportReport
from spikehtr.pages.digests import is_intact, sealed
from spikehtr.pages.origins import SUFFIX, Format
from spikehtr.results.page import Page, Region, TextLine

PAGE = Page("p.png", 40, 30, (Region("r", (TextLine("l", ((0.0, 0.0), (9.0, 0.0), (9.0, 9.0))),)),), "m")
TEXTS: dict[Format, str] = {
    "json": PAGE.to_json(),
    "page": PAGE.to_page(),
    "alto": PAGE.to_alto(),
    "hocr": PAGE.to_hocr(),
}
FILES = {form: sealed(text, form) for form, text in TEXTS.items()}


@pytest.mark.parametrize("form", list(FILES))
def test_a_sealed_file_is_intact_and_still_of_its_format(form: Format, tmp_path: Path) -> None:
    assert is_intact(FILES[form]) is True
    assert is_intact(TEXTS[form].encode()) is None, "what an earlier version wrote bears no seal"
    if form == "json":
        assert Page.from_json(FILES[form].decode()) == Page.from_json(TEXTS[form])
        assert json.loads(FILES[form]).keys() - json.loads(TEXTS[form]).keys() == {"digest"}
        return
    file = tmp_path / f"p{SUFFIX[form]}"
    file.write_bytes(FILES[form])
    report = ImportReport()
    root = xml.load(file, report)
    assert root is not None
    assert not report.problems
    if form != "hocr":
        (line,) = {"page": page_xml.parse, "alto": alto_xml.parse}[form](root).lines
        assert line.id == "l"


@given(st.sampled_from(list(FILES)), st.data())
def test_any_change_breaks_the_seal(form: Format, data: st.DataObject) -> None:
    file = FILES[form]
    at = data.draw(st.integers(0, len(file)))
    gone = data.draw(st.integers(0, 5))
    new = data.draw(st.binary(max_size=5))
    changed = file[:at] + new + file[at + gone :]
    assert (is_intact(changed) is True) is (changed == file)


@given(st.binary(max_size=400))
def test_nothing_but_a_seal_is_taken_for_one(data: bytes) -> None:
    assert is_intact(data) is not True
    assert is_intact(data + b"<!-- spikehtr:digest=" + b"0" * 32 + b" -->\n") is False


def test_text_bears_no_seal() -> None:
    assert sealed("ein Wort\n", "text") == b"ein Wort\n"
