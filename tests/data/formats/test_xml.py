import pytest
from formats_help import kinds, write

from spikehtr.data.formats import xml
from spikehtr.data.samples import ImportReport

ENTITIES = '<!ENTITY a0 "haha">' + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))


@pytest.mark.parametrize("body", ["<r>&a11;</r>", '<r x="&a11;"/>', "<r/>"], ids=["text", "attribute", "unused"])
def test_entity_expansion_is_refused_at_once(tmp_path, body):
    report = ImportReport()
    assert xml.load(write(tmp_path / "bomb.xml", f"<!DOCTYPE r [{ENTITIES}]>{body}"), report) is None
    assert kinds(report) == {"unsafe XML": 1}
    assert "DOCTYPE" in report.problems[0].remedy


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE r [<!ENTITY x SYSTEM "{secret}">]><r>&x;</r>',
        '<!DOCTYPE r [<!ENTITY % x SYSTEM "{secret}"> %x;]><r/>',
        '<!DOCTYPE r SYSTEM "{secret}"><r/>',
        '<!DOCTYPE r PUBLIC "-//X//Y" "http://localhost:9/x.dtd"><r/>',
    ],
)
def test_outside_entities_and_dtds_are_refused_and_never_read(tmp_path, doctype):
    secret = write(tmp_path / "secret.dtd", "this is not a DTD & must not be looked at")
    report = ImportReport()
    file = write(tmp_path / "spy.xml", doctype.format(secret=secret.as_uri()))
    assert xml.load(file, report) is None
    assert kinds(report) == {"unsafe XML": 1}
    assert "looked at" not in str(report.problems)


def test_a_dtd_may_be_named_where_the_collection_is_known_to_and_is_still_not_read(tmp_path):
    file = write(tmp_path / "a.xml", '<!DOCTYPE form SYSTEM "nowhere.dtd"><form id="x"/>')
    assert xml.load(file, ImportReport(), dtd_may_be_named=True).get("id") == "x"
    spy = write(tmp_path / "b.xml", '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]><r>&x;</r>')
    assert xml.load(spy, ImportReport(), dtd_may_be_named=True) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<PcGts><Page>",
        b"<r>Tom & Jerry</r>",
        b"<r>&nbsp;</r>",
        b"not XML",
        '<?xml version="1.0" encoding="UTF-8"?><r>\xe9t\xe9</r>'.encode("latin-1"),
        b'<?xml version="1.0" encoding="klingon"?><r/>',
        b"<r>\x01</r>",
        b"<a>" * 5000,
    ],
    ids=[
        "empty",
        "truncated",
        "ampersand",
        "undeclared entity",
        "text",
        "wrong encoding",
        "unknown encoding",
        "control character",
        "deep",
    ],
)
def test_broken_files_are_reported_with_a_remedy(tmp_path, content):
    report = ImportReport()
    file = write(tmp_path / "x.xml", content)
    assert xml.load(file, report) is None
    assert kinds(report) == {"broken XML": 1}
    assert report.problems[0].where == str(file)
    assert report.problems[0].remedy


def test_a_missing_file_is_reported(tmp_path):
    report = ImportReport()
    assert xml.load(tmp_path / "none.xml", report) is None
    assert kinds(report) == {"broken XML": 1}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_stated_encodings_are_read_and_sniffed(tmp_path, encoding):
    text = f'<?xml version="1.0" encoding="{encoding}"?><!-- <no> --><p:r xmlns:p="urn:x">é</p:r>'
    file = write(tmp_path / "x.xml", text.encode(encoding))
    root = xml.load(file, ImportReport())
    assert (root.text, xml.name_of(root), xml.sniff(file)) == ("é", "r", "r")


def test_sniffing_passes_over_the_prologue_and_survives_anything(tmp_path):
    file = write(tmp_path / "a.xml", '<?xml version="1.0"?><!DOCTYPE form SYSTEM "x">\n<!-- <a> --><form/>')
    assert xml.sniff(file) == "form"
    assert xml.sniff(write(tmp_path / "b.xml", bytes(range(256)))) in (None, "=")
    assert xml.sniff(tmp_path / "none.xml") is None
